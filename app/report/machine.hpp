/// \file
/// The machine of this process: its processor, and how busy it is.
#pragma once

#include <istream>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::app {

struct Processor {
  std::string model;                          ///< "AMD EPYC 7543 32-Core Processor"; "": the system does not tell
  std::vector<std::string> instruction_sets;  ///< those that matter for matrix products, as the system calls them
};

/// `cpuinfo`: as in /proc/cpuinfo. Its first processor counts.
Processor processor_in(std::istream& cpuinfo);
Processor own_processor();
/// Those that this process may run on.
int processors();
/// Processes that ran or wanted to, on the average of the last minute; nullopt: the system does not tell.
std::optional<double> load_average();

}  // namespace lockstep::app
