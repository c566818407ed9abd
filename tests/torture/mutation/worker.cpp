#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <stdexcept>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "app/options/usage_error.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/file_error.hpp"
#include "torture/mutation/cases.hpp"

namespace lockstep::torture {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMemory = std::uint64_t{1} << 30;  ///< the limit for a case of a few kilobytes

std::uint64_t peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}
void forget_peak_memory() { std::ofstream("/proc/self/clear_refs") << 5; }

bool is_foreign(std::string_view text) {
  constexpr std::array<std::string_view, 9> kOthers = {
      "json.exception", "std::", "vector::", "basic_string", "stoi", "stod", "_M_", "filesystem error", "bad_alloc"};
  return text.empty() || std::any_of(kOthers.begin(), kOthers.end(), [&](std::string_view words) {
           return text.find(words) != std::string_view::npos;
         });
}

struct Verdict {
  Outcome outcome = accepted;
  std::string text;
};

/// A message to a user says which file it is about.
bool names_file(const Subject& subject, const fs::path& folder, std::string_view text) {
  const auto names = [&](const std::string& file) {
    return text.find(fs::path(file).filename().string()) != std::string_view::npos;
  };
  return text.find(folder.string()) != std::string_view::npos || std::ranges::any_of(subject.targets, names);
}

Verdict judge(const Subject& subject, const fs::path& folder, const std::string& right) {
  try {
    const std::string read = subject.read(folder);
    if (subject.has_checksums && read != right) return {altered, "the damage went unnoticed"};
    return {};
  } catch (const io::FileError& error) {
    const bool ours = !is_foreign(error.what()) && names_file(subject, folder, error.what());
    return {ours ? refused : words, error.what()};
  } catch (const app::UsageError& error) {
    return {is_foreign(error.what()) ? words : refused, error.what()};
  } catch (const std::bad_alloc& error) {
    return {memory, error.what()};
  } catch (const std::length_error& error) {
    return {memory, error.what()};
  } catch (const std::exception& error) {
    return {words, error.what()};
  }
}

/// Programs that read as the tested ones do print, too.
class Voice {
 public:
  Voice() : out_(::dup(STDOUT_FILENO)) {
    const io::Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    ::dup2(nowhere.get(), STDOUT_FILENO);
    ::dup2(nowhere.get(), STDERR_FILENO);
  }
  void say(const std::string& line) const { io::write_all(out_, line + "\n", "standard output"); }

 private:
  io::Descriptor out_;
};

}  // namespace

int work(const Options& options) {
  const Cases cases(options, options.scratch.parent_path());
  const Voice voice;
  std::map<std::size_t, std::string> right;
  for (std::int64_t number = options.first; number < options.cases; ++number) {
    const std::size_t index = cases.subject_of(number);
    const Subject& subject = cases.subjects()[index];
    const auto fresh = [&] {
      fs::remove_all(options.scratch);
      fs::copy(cases.samples(index), options.scratch, fs::copy_options::recursive);
    };
    if (!right.contains(index)) {
      fresh();
      voice.say(fmt::format("begin {} sound", number));
      right[index] = subject.read(options.scratch);  // throws: the harness is wrong
    }
    fresh();
    const Cases::Damage damage = cases.damage(number);
    std::ofstream(options.scratch / damage.target, std::ios::binary | std::ios::trunc) << damage.bytes;
    voice.say(fmt::format("begin {}", number));
    const std::uint64_t before = peak_memory();
    forget_peak_memory();
    Verdict verdict = judge(subject, options.scratch, right[index]);
    if (const std::uint64_t peak = peak_memory(); peak > before + kMaxMemory) {
      verdict = {memory, fmt::format("{} MiB more than before", (peak - before) >> 20)};
    }
    std::replace(verdict.text.begin(), verdict.text.end(), '\n', ' ');
    voice.say(fmt::format("end {} {} {}", number, static_cast<int>(verdict.outcome), verdict.text));
  }
  return 0;
}

}  // namespace lockstep::torture
