/// \file
/// Local steps: combines the weights that several islands have trained independently.
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

/// True if it keeps a velocity from round to round.
bool has_velocity(const OuterOptimizerOptions& options) noexcept;

/// The step at the end of a round. `anchor` a: the weights at the round's start, equal on every island; overwritten
/// with the new ones. `difference` d: the mean over the islands of anchor - own weights. `velocity` v: empty if none is
/// kept. All of one length.
///   average   a <- a - d                         (local SGD: Stich, ICLR 2019)
///   momentum  v <- m v + d,  a <- a - rate v
///   slowmo    v <- m v + d / g,  a <- a - rate g v   (Wang et al., ICLR 2020; g: the inner learning rate)
///   nesterov  v <- m v + d,  a <- a - rate (d + m v)   (DiLoCo: Douillard et al. 2023)
/// `inner_rate`: the mean over the inner optimiser's steps of the round. Throws std::invalid_argument where lengths
/// differ.
void outer_update(const OuterOptimizerOptions& options, std::span<float> anchor, std::span<float> velocity,
                  std::span<const float> difference, double inner_rate = 1);

}  // namespace lockstep::model
