/// \file
/// A layer that drops elements (Dropout in randomness.hpp).
#pragma once

#include <cstdint>

#include "model/pass.hpp"

namespace lockstep::model {

class DropoutLayer {
 public:
  /// Throws std::invalid_argument unless rule.rate is in [0, 1).
  explicit DropoutLayer(const Dropout& rule);

  bool is_used() const noexcept { return rule_.rate > 0; }
  /// True in passes whose samples have keys: training.
  bool acts(const Pass& pass) const noexcept { return is_used() && pass.keys.present(); }
  /// Forward, and backward on the gradient. y may be x. `first_position`: the first position of x's rows, if x has only
  /// some positions.
  void apply(const Pass& pass, const Tensor& x, const Tensor& y, std::int64_t first_position = 0) const;
  /// The rule for operations with a dropout inside.
  Dropout rule(const Pass& pass) const noexcept;

 private:
  Dropout rule_;
};

}  // namespace lockstep::model
