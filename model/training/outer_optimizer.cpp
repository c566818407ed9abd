#include "model/training/outer_optimizer.hpp"

#include <stdexcept>

namespace lockstep::model {

std::string_view name_of(OuterOptimizerKind kind) noexcept {
  switch (kind) {
    case OuterOptimizerKind::average:
      return "average";
    case OuterOptimizerKind::momentum:
      return "momentum";
    case OuterOptimizerKind::slowmo:
      return "slowmo";
    case OuterOptimizerKind::nesterov:
      break;
  }
  return "nesterov";
}

bool has_velocity(const OuterOptimizerOptions& options) noexcept { return options.kind != OuterOptimizerKind::average; }

void outer_update(const OuterOptimizerOptions& options, std::span<float> anchor, std::span<float> velocity,
                  std::span<const float> difference, double inner_rate) {
  if (difference.size() != anchor.size() || velocity.size() != (has_velocity(options) ? anchor.size() : 0)) {
    throw std::invalid_argument("anchor, velocity and difference of different lengths");
  }
  const auto rate = static_cast<float>(options.rate), momentum = static_cast<float>(options.momentum);
  switch (options.kind) {
    case OuterOptimizerKind::average:
      for (std::size_t i = 0; i < anchor.size(); ++i) anchor[i] -= difference[i];
      return;
    case OuterOptimizerKind::momentum:
      for (std::size_t i = 0; i < anchor.size(); ++i) {
        velocity[i] = momentum * velocity[i] + difference[i];
        anchor[i] -= rate * velocity[i];
      }
      return;
    case OuterOptimizerKind::slowmo: {
      // At a rate of zero the weights have not moved.
      const auto inverse = static_cast<float>(inner_rate > 0 ? 1 / inner_rate : 0);
      const auto step = static_cast<float>(options.rate * inner_rate);
      for (std::size_t i = 0; i < anchor.size(); ++i) {
        velocity[i] = momentum * velocity[i] + inverse * difference[i];
        anchor[i] -= step * velocity[i];
      }
      return;
    }
    case OuterOptimizerKind::nesterov:
      for (std::size_t i = 0; i < anchor.size(); ++i) {
        velocity[i] = momentum * velocity[i] + difference[i];
        anchor[i] -= rate * (difference[i] + momentum * velocity[i]);
      }
      return;
  }
}

}  // namespace lockstep::model
