/// \file
/// Identity of the program, which must be equal on all ranks before the first step.
#pragma once

#include <string>
#include <vector>

#include "app/plan/plan.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

/// Version, build id and size of the running file; distinguishes two builds of one version. Does not read the file.
std::string program_fingerprint();

std::vector<comm::FingerprintItem> fingerprint_of(const Plan& plan);

}  // namespace lockstep::app
