/// \file
/// Formats the training part of a plan as text.
#pragma once

#include <string>

#include "app/plan/plan.hpp"

namespace lockstep::app {

/// Returns optimiser, learning rate, loss, input, and decisions by the network's defaults, one line each.
std::string format_training(const Plan& plan);

}  // namespace lockstep::app
