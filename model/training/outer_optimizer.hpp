/// \file
/// For local steps: combines the weights that several islands have trained independently.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::model {

enum class OuterOptimizerKind { average, momentum, slowmo, nesterov };
/// "average", "momentum", ...: the names in options and plans.
std::string_view name_of(OuterOptimizerKind kind) noexcept;

struct OuterOptimizerOptions {
  OuterOptimizerKind kind = OuterOptimizerKind::nesterov;
  double rate = 0.7;      ///< outer rate of all kinds but average
  double momentum = 0.9;  ///< momentum of all kinds but average
  bool operator==(const OuterOptimizerOptions&) const = default;
};

/// True if the kind keeps a velocity from round to round.
bool has_velocity(const OuterOptimizerOptions& options) noexcept;

/// Makes the outer step at the end of a round. `anchor` a: weights at the start of the round, equal on every island;
/// overwritten with the new weights. `difference` d: mean over the islands of anchor - own weights. `velocity` v: empty
/// unless has_velocity(). All have one length. Not collective.
///   average   a <- a - d                         (local SGD: Stich, ICLR 2019)
///   momentum  v <- m v + d,  a <- a - rate v
///   slowmo    v <- m v + d / g,  a <- a - rate g v   (Wang et al., ICLR 2020; g: the inner learning rate)
///   nesterov  v <- m v + d,  a <- a - rate (d + m v)   (DiLoCo: Douillard et al. 2023)
/// `inner_rate`: mean learning rate of the round's inner steps. Throws std::invalid_argument if lengths differ.
void outer_update(const OuterOptimizerOptions& options, std::span<float> anchor, std::span<float> velocity,
                  std::span<const float> difference, double inner_rate = 1);

}  // namespace lockstep::model
