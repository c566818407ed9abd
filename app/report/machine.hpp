/// \file
/// The machine of this process: its processor and its load.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

struct Processor {
  std::string model;  ///< "AMD EPYC 7543 32-Core Processor"; "": unknown to the system
  /// Instruction sets that matter for matrix products, in the system's names.
  std::vector<std::string> instruction_sets;
};

/// Reads the first processor of a text like /proc/cpuinfo.
Processor processor_in(std::istream& cpuinfo);
Processor own_processor();
/// Number of processors that this process may use, limited by its affinity and its control groups. At least 1.
int processors();
/// Mean number of running or runnable processes in the last minute; nullopt: unknown to the system.
std::optional<double> load_average();

}  // namespace lockstep::app
