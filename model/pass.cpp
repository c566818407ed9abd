#include "model/pass.hpp"

#include <cassert>

namespace lockstep::model {

namespace {

Tensor matrix(const Tensor& arena, const Parameter& parameter, std::int64_t rows, std::int64_t columns) {
  if (!arena.present()) return {};
  const auto count = static_cast<std::size_t>(rows * columns);
  assert(count <= parameter.end() - parameter.offset);
  return arena.slice({parameter.offset, count}).reshaped(rows, columns);
}

/// Product of all extents but the last; 1 for vectors.
std::int64_t rows_of(const Parameter& parameter) {
  return static_cast<std::int64_t>(parameter.count) / parameter.shape.back();
}

}  // namespace

Tensor Pass::weight(std::size_t parameter) const { return weight(parameter, rows_of(table[parameter])); }
Tensor Pass::gradient(std::size_t parameter) const { return gradient(parameter, rows_of(table[parameter])); }
Tensor Pass::weight(std::size_t parameter, std::int64_t rows) const {
  return matrix(memory.parameters, table[parameter], rows, table[parameter].shape.back());
}
Tensor Pass::gradient(std::size_t parameter, std::int64_t rows) const {
  if (table[parameter].frozen) return {};
  return matrix(memory.gradients, table[parameter], rows, table[parameter].shape.back());
}
Tensor Pass::vector(std::size_t parameter, std::int64_t columns) const {
  return matrix(memory.parameters, table[parameter], 1, columns);
}
Tensor Pass::vector_gradient(std::size_t parameter, std::int64_t columns) const {
  return table[parameter].frozen ? Tensor{} : matrix(memory.gradients, table[parameter], 1, columns);
}

}  // namespace lockstep::model
