#include "model/pass.hpp"

#include <cassert>

namespace lockstep::model {

Tensor slice_of(const Tensor& arena, const Parameter& parameter) {
  const auto count = static_cast<std::int64_t>(parameter.count);
  const std::int64_t columns = parameter.shape.back();
  return {static_cast<std::byte*>(arena.data) + parameter.offset * size_of(arena.type), arena.type, count / columns,
          columns};
}

Tensor Pass::weight(std::size_t parameter) const { return slice_of(memory.parameters, table[parameter]); }
Tensor Pass::gradient(std::size_t parameter) const { return slice_of(memory.gradients, table[parameter]); }

Tensor reshaped(const Tensor& tensor, std::int64_t rows, std::int64_t columns) {
  assert(rows * columns == tensor.count());
  return {tensor.data, tensor.type, rows, columns};
}

Tensor rows_of(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  return {
      static_cast<std::byte*>(tensor.data) + static_cast<std::size_t>(first * tensor.columns) * size_of(tensor.type),
      tensor.type, count, tensor.columns};
}

}  // namespace lockstep::model
