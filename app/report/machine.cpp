#include "app/report/machine.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <thread>

#include "comm/session/control_groups.hpp"
#include "comm/session/own_cores.hpp"

namespace lockstep::app {
namespace {

/// Instruction sets that are reported: those of x86, then those of Arm.
constexpr std::array<std::string_view, 15> kTold{"avx2",        "fma",      "avx512f",  "avx512_vnni", "avx512_bf16",
                                                 "avx512_fp16", "avx_vnni", "amx_tile", "amx_int8",    "amx_bf16",
                                                 "asimd",       "sve",      "sve2",     "bf16",        "i8mm"};

}  // namespace

Processor processor_in(std::istream& cpuinfo) {
  Processor processor;
  for (std::string line; std::getline(cpuinfo, line) && !line.empty();) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) processor.model = value;
    if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
    std::istringstream words(value);
    for (std::string word; words >> word;) {
      if (std::ranges::find(kTold, word) != kTold.end()) processor.instruction_sets.push_back(word);
    }
  }
  std::ranges::sort(processor.instruction_sets, {},
                    [](const std::string& word) { return std::ranges::find(kTold, word); });
  return processor;
}

Processor own_processor() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  return processor_in(cpuinfo);
}

int processors() {
  const std::size_t own = comm::own_cores().size();
  const int count = std::max(1, static_cast<int>(own > 0 ? own : std::thread::hardware_concurrency()));
  const std::optional<comm::CpuGroup> group = comm::tightest_cpu_group(count);
  return group ? std::max(1, static_cast<int>(group->cpus)) : count;
}

std::optional<double> load_average() {
  double load = 0;
  return getloadavg(&load, 1) == 1 ? std::optional(load) : std::nullopt;
}

}  // namespace lockstep::app
