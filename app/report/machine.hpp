/// \file
/// The machine of this process: its processor and its load.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

struct Processor {
  std::string model;                          ///< "AMD EPYC 7543 32-Core Processor"; "": unknown to the system
  std::vector<std::string> instruction_sets;  ///< sets that matter for matrix products, in the system's names
};

/// `cpuinfo`: as in /proc/cpuinfo. Its first processor counts.
Processor processor_in(std::istream& cpuinfo);
Processor own_processor();
/// Those that this process may use: it may run on them, and its control groups leave it so many. At least 1.
int processors();
/// Processes that ran or were ready to, averaged over the last minute; nullopt: unknown to the system.
std::optional<double> load_average();

}  // namespace lockstep::app
