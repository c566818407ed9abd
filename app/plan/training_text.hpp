/// \file
/// How a plan trains, in words.
#pragma once

#include <string>

#include "app/plan/plan.hpp"

namespace lockstep::app {

/// Optimiser, learning rate, loss, input, and what the network's defaults decided: a line each.
std::string format_training(const Plan& plan);

}  // namespace lockstep::app
