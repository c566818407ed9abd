// kernel_times.so lists the work of a GPU, kernel by kernel. CUDA's driver loads it into any program that uses a GPU
// (CUDA_INJECTION64_PATH). At the end of the program it writes the file that KERNEL_TIMES names: a table of kernels,
// copies and fills with calls and microseconds, the longest first, then the last KERNEL_LAST (1,000) of them in order,
// with the gaps between them. Kernels of recorded steps count one by one. It uses CUPTI's activities, without counters
// or replay, so the program runs almost at full speed. ncu reports more, but fails when cuDNN starts.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cupti.h>
#include <cxxabi.h>

namespace {

struct Activity {
  std::uint64_t begin = 0, end = 0;  ///< nanoseconds
  std::string name;

  double microseconds() const { return static_cast<double>(end - begin) * 1e-3; }
};

/// Activities so far. CUPTI delivers them from its own thread.
std::mutex mutex;
std::vector<Activity>& activities() {
  static auto* const all = new std::vector<Activity>;  // needed at exit, after static destructors
  return *all;
}

std::string plain_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                          &std::free);
  return status == 0 && plain != nullptr ? plain.get() : mangled;
}

void request_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBytes));
  *bytes = *buffer == nullptr ? 0 : kBytes;
  *max_records = 0;
}

void take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      char grid[80];
      std::snprintf(grid, sizeof grid, " [%d %d %d] x %d, %u registers", kernel.gridX, kernel.gridY, kernel.gridZ,
                    kernel.blockX, static_cast<unsigned>(kernel.registersPerThread));
      activities().push_back({kernel.start, kernel.end, plain_name(kernel.name) + grid});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto& fill = *reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      activities().push_back({fill.start, fill.end, "fill"});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto& copy = *reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      activities().push_back({copy.start, copy.end, "copy of " + std::to_string(copy.bytes) + " bytes"});
    }
  }
  std::free(buffer);
}

void write_table() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  const char* const path = std::getenv("KERNEL_TIMES");
  std::FILE* const out = path == nullptr ? stderr : std::fopen(path, "w");
  if (out == nullptr) return std::perror("kernel_times: KERNEL_TIMES");
  const std::lock_guard lock(mutex);
  std::vector<Activity>& all = activities();
  struct Total {
    long calls = 0;
    double microseconds = 0;
  };
  std::map<std::string, Total> totals;
  for (const Activity& each : all) {
    Total& total = totals[each.name];
    ++total.calls;
    total.microseconds += each.microseconds();
  }
  std::vector<std::pair<std::string, Total>> longest(totals.begin(), totals.end());
  std::ranges::sort(longest,
                    [](const auto& a, const auto& b) { return a.second.microseconds > b.second.microseconds; });
  std::fprintf(out, "us together, calls, us each, what\n");
  for (const auto& [name, total] : longest) {
    std::fprintf(out, "%11.1f %6ld %9.2f  %.240s\n", total.microseconds, total.calls,
                 total.microseconds / static_cast<double>(total.calls), name.c_str());
  }
  std::ranges::sort(all, {}, &Activity::begin);
  const char* const last = std::getenv("KERNEL_LAST");
  const auto count = std::min<std::size_t>(last == nullptr ? 1000 : std::strtoul(last, nullptr, 10), all.size());
  std::fprintf(out, "us of the beginning, us, us idle before it, what: the last %zu\n", count);
  const auto first = all.end() - static_cast<std::ptrdiff_t>(count);
  std::uint64_t reached = count == 0 ? 0 : first->begin;
  for (auto each = first; each != all.end(); ++each) {
    const double idle = each->begin > reached ? static_cast<double>(each->begin - reached) * 1e-3 : 0;
    std::fprintf(out, "%11.2f %9.2f %7.2f  %.160s\n", static_cast<double>(each->begin - first->begin) * 1e-3,
                 each->microseconds(), idle, each->name.c_str());
    reached = std::max(reached, each->end);
  }
  if (out != stderr) std::fclose(out);
}

}  // namespace

extern "C" int InitializeInjection() {
  bool takes = cuptiActivityRegisterCallbacks(request_buffer, take_buffer) == CUPTI_SUCCESS;
  for (const CUpti_ActivityKind kind :
       {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY}) {
    takes = takes && cuptiActivityEnable(kind) == CUPTI_SUCCESS;
  }
  if (takes) return std::atexit(write_table) == 0;
  std::fputs("kernel_times: CUPTI gives no activities here\n", stderr);
  return 1;  // the program continues
}
