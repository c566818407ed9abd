#include "model/layers/dropout_layer.hpp"

#include <stdexcept>

#include <fmt/format.h>

namespace lockstep::model {

DropoutLayer::DropoutLayer(const Dropout& rule) : rule_(rule) {
  if (!(rule.rate >= 0 && rule.rate < 1)) {
    throw std::invalid_argument(fmt::format("a dropout of {}: must be at least 0 and below 1", rule.rate));
  }
}

void DropoutLayer::apply(const Pass& pass, const Tensor& x, const Tensor& y, std::int64_t first_position) const {
  Dropout rule = rule_;
  rule.first_position = first_position;
  pass.sequences().dropout(x, pass.keys, rule, y);
}

Dropout DropoutLayer::rule(const Pass& pass) const noexcept {
  Dropout rule = rule_;
  if (!acts(pass)) rule.rate = 0;
  return rule;
}

}  // namespace lockstep::model
