#include "model/pass.hpp"

namespace lockstep::model {

namespace {

/// [all extents but the last, last], or [1, count] for vectors.
Tensor matrix(const Tensor& arena, const Parameter& parameter) {
  const Tensor slice = arena.slice(parameter.slice());
  const std::int64_t columns = parameter.shape.back();
  return slice.reshaped(slice.count() / columns, columns);
}

}  // namespace

Tensor Pass::weight(std::size_t parameter) const { return matrix(memory.parameters, table[parameter]); }
Tensor Pass::gradient(std::size_t parameter) const { return matrix(memory.gradients, table[parameter]); }

}  // namespace lockstep::model
