/// \file
/// A dropout layer: elements are dropped here (Dropout in randomness.hpp).
#pragma once

#include "model/pass.hpp"

namespace lockstep::model {

class DropoutLayer {
 public:
  /// rule.rate in [0, 1), or std::invalid_argument.
  explicit DropoutLayer(const Dropout& rule);

  bool is_used() const noexcept { return rule_.rate > 0; }
  /// In passes whose samples have keys: training.
  bool acts(const Pass& pass) const noexcept { return is_used() && pass.keys.present(); }
  /// Forward, and backward on the gradient. y may be x.
  void apply(const Pass& pass, const Tensor& x, const Tensor& y) const;
  /// For operations that drop within.
  Dropout rule(const Pass& pass) const noexcept;

 private:
  Dropout rule_;
};

}  // namespace lockstep::model
