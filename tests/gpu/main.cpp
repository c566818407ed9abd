/// \file
/// gpu_tests: compares the CUDA backend with the float64 reference and the CPU. Exits with 77 without a GPU.
#include <charconv>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/loaded_libraries.hpp"

namespace lockstep::model::test {
namespace {

constexpr char kUsage[] =
    "usage: gpu_tests [--survey] [--backend cuda|cpu] [--device N] [--quick] [--seed N] [--break] "
    "[--gtest_filter=...]\n"
    "  --survey       print what devices there are, and stop\n"
    "  --backend cpu  the CPU takes the GPU's place: tests the tests\n"
    "  --device N     which GPU, as CUDA counts\n"
    "  --quick        fewer and smaller samples of the sweeps\n"
    "  --seed N       the random inputs of an earlier run, which printed N\n"
    "  --break        falsify what is read off the device; succeeds if every test fails then\n";

/// With --break: prints one line per test; counts those that did not notice.
class Unnoticed final : public testing::EmptyTestEventListener {
 public:
  int count() const { return count_; }

 private:
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Skipped()) return;
    const bool failed = test.result()->Failed();
    std::printf("%-9s %s.%s\n", failed ? "noticed" : "UNNOTICED", test.test_suite_name(), test.name());
    if (!failed) ++count_;
  }
  int count_ = 0;
};

/// Prints one line per test that compares with limits, passed or not, with its largest error relative to the limit.
class LargestErrors final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { static_cast<void>(take_largest_error()); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const double share = take_largest_error();
    if (share >= 0) std::printf("largest error %.2g of its limit: %s.%s\n", share, test.test_suite_name(), test.name());
  }
};

bool parse_number(const char* text, std::uint64_t& number) {
  const char* const end = text == nullptr ? nullptr : text + std::strlen(text);
  return text != nullptr && std::from_chars(text, end, number) == std::from_chars_result{end, std::errc()};
}

bool survey_only = false;

/// False if the option is not ours.
bool parse(int count, char** words) {
  Subject& chosen = subject();
  std::random_device device;
  chosen.seed = device();
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    const char* const next = i + 1 < count ? words[i + 1] : nullptr;
    std::uint64_t number = 0;
    if (word == "--survey") {
      survey_only = true;
    } else if (word == "--quick") {
      chosen.quick = true;
    } else if (word == "--break") {
      chosen.broken = true;
    } else if (word == "--backend" && next != nullptr && (!std::strcmp(next, "cpu") || !std::strcmp(next, "cuda"))) {
      chosen.backend = words[++i];
    } else if (word == "--seed" && parse_number(next, number)) {
      chosen.seed = number;
      ++i;
    } else if (word == "--device" && parse_number(next, number)) {
      chosen.device = static_cast<int>(number);
      ++i;
    } else {
      return false;
    }
  }
  return true;
}

/// In the library's own encoding; file names may lack the version.
std::string version_of(void* library) {
  for (const char* const function : {"cublasLtGetVersion", "cudnnGetVersion"}) {
    void* const found = dlsym(library, function);
    if (found != nullptr) return std::to_string(reinterpret_cast<std::size_t (*)()>(found)());
  }
  int version = 0;
  void* const found = dlsym(library, "ncclGetVersion");
  if (found != nullptr) static_cast<void>(reinterpret_cast<int (*)(int*)>(found)(&version));
  return version == 0 ? "?" : std::to_string(version);
}

/// The files that the loader chooses here; so far this program has loaded at most cuBLASLt.
void tell_libraries() {
  for (const char* const name : {"libcudnn.so.9", "libnccl.so.2"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL) == nullptr) std::printf("library: %s\n", dlerror());
  }
  for (const std::string& file : loaded_gpu_libraries()) {
    void* const library = dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    const std::string version = library == nullptr ? "?" : version_of(library);
    std::printf("library: %s, version %s\n", file.c_str(), version.c_str());
  }
}

int run() {
  const Subject& chosen = subject();
  if (chosen.backend == "cuda") {
    const DeviceSurvey survey = survey_devices();
    if (survey.devices.empty()) {
      std::printf("not run (no device): %s\n", survey.obstacle.c_str());
      return 77;
    }
    if (chosen.device < 0 || static_cast<std::size_t>(chosen.device) >= survey.devices.size()) {
      std::printf("there is no device %d: %zu visible\n", chosen.device, survey.devices.size());
      return 2;
    }
    for (const Device& device : survey.devices) {
      if (!survey_only && device.index != chosen.device) continue;
      std::printf("device %d: %s, %s, compute capability %d.%d, %d multiprocessors, %.1f GiB, %s\n", device.index,
                  device.name.c_str(), device.pci.c_str(), device.major, device.minor, device.processors,
                  static_cast<double>(device.bytes) / (1 << 30), cuda_build().c_str());
    }
    if (survey_only) {
      tell_libraries();
      return 0;
    }
  }
  std::printf("inputs: --seed %llu\n", static_cast<unsigned long long>(chosen.seed));
  if (!chosen.broken) {
    testing::UnitTest::GetInstance()->listeners().Append(new LargestErrors);  // owned by the list
    const int failed = RUN_ALL_TESTS();
    return testing::UnitTest::GetInstance()->test_to_run_count() == 0 ? 1 : failed;
  }
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  auto* const unnoticed = new Unnoticed;  // owned by the list
  listeners.Append(unnoticed);
  const int failed = RUN_ALL_TESTS();
  const int tests = testing::UnitTest::GetInstance()->test_to_run_count();
  std::printf("%d of %d tests did not notice\n", unnoticed->count(), tests);
  return failed != 0 && unnoticed->count() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::model::test

int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  if (!lockstep::model::test::parse(count, words)) {
    std::fputs(lockstep::model::test::kUsage, stderr);
    return 2;
  }
  return lockstep::model::test::run();
}
