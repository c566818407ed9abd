/// \file
/// Identity of program and plan, which must be equal on all ranks before the first step.
#pragma once

#include <string>
#include <vector>

#include "app/plan/plan.hpp"
#include "comm/consensus.hpp"

namespace lockstep::app {

/// Returns version, build id and size of the running program, which distinguishes builds of one version. Does not read
/// the contents of the file.
std::string program_fingerprint();

std::vector<comm::FingerprintItem> fingerprint_of(const Plan& plan);

}  // namespace lockstep::app
