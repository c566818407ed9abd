/// \file
/// A dropout layer: elements are dropped here (Dropout in randomness.hpp).
#pragma once

#include <cstdint>

#include "model/pass.hpp"

namespace lockstep::model {

class DropoutLayer {
 public:
  /// rule.rate in [0, 1), or std::invalid_argument.
  explicit DropoutLayer(const Dropout& rule);

  bool is_used() const noexcept { return rule_.rate > 0; }
  /// In passes whose samples have keys: training.
  bool acts(const Pass& pass) const noexcept { return is_used() && pass.keys.present(); }
  /// Forward, and backward on the gradient. y may be x. `first_position`: where x has the rows of some positions alone,
  /// the one that they begin with.
  void apply(const Pass& pass, const Tensor& x, const Tensor& y, std::int64_t first_position = 0) const;
  /// For operations that drop within.
  Dropout rule(const Pass& pass) const noexcept;

 private:
  Dropout rule_;
};

}  // namespace lockstep::model
