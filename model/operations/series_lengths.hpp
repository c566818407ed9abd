/// \file
/// Lengths of padded series: a second input of operations that ignore the padding.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

/// True if the operation has a second input, the lengths. Throws std::invalid_argument if they are not lengths of
/// series of `steps` steps.
inline bool reads_lengths(std::span<const ValueType> inputs, std::int64_t steps) {
  if (inputs.size() < 2) return false;
  if (inputs[1].shape != Shape{1})
    throw std::invalid_argument("reads a second value, which is no length of each sample");
  if (inputs[1].vocabulary != steps + 1) {
    throw std::invalid_argument(
        fmt::format("reads {} steps, and lengths of up to {}: lengths belong to layers that read as many steps as the "
                    "data have, before strides and pools",
                    steps, inputs[1].vocabulary - 1));
  }
  return true;
}

/// Pools the steps of a series [steps, columns] up to its length.
class SeriesPool {
 public:
  SeriesPool() = default;
  SeriesPool(PaddedSeries::Pool pool, const Shape& in) : series_{.steps = in.extents()[0], .pool = pool} {}
  bool is_used() const noexcept { return series_.steps > 0; }

  /// The node's inputs are a series and its lengths.
  void forward(const NodePass& node) const {
    node.pass.sequences().pool_series_forward(series_, node.in(), node.in(1), node.out());
  }
  void backward(const NodePass& node) const {
    const bool reads_x = series_.pool == PaddedSeries::Pool::max;
    node.pass.sequences().pool_series_backward(series_, reads_x ? node.in() : Tensor{}, node.in(1), node.d_out(),
                                               node.d_in());
  }

 private:
  PaddedSeries series_ = {};
};

}  // namespace lockstep::model
