#include "model/tensor.hpp"

#include <cassert>

namespace lockstep::model {

std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return 4;
    case ElementType::float64:
    case ElementType::uint64:
      return 8;
    case ElementType::uint8:
      return 1;
    case ElementType::int32:
      return 4;
    case ElementType::bfloat16:
      return 2;
  }
  return 0;
}

const char* name_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::uint8:
      return "uint8";
    case ElementType::int32:
      return "int32";
    case ElementType::bfloat16:
      return "bfloat16";
    case ElementType::uint64:
      return "uint64";
  }
  return "unknown";
}

Tensor Tensor::slice(const Slice& elements) const noexcept {
  if (!present()) return {};
  return {static_cast<std::byte*>(data) + elements.offset * size_of(type), type, 1,
          static_cast<std::int64_t>(elements.count)};
}

Tensor Tensor::row_range(std::int64_t first, std::int64_t count) const noexcept {
  return {static_cast<std::byte*>(data) + static_cast<std::size_t>(first * columns) * size_of(type), type, count,
          columns};
}

Tensor Tensor::reshaped(std::int64_t new_rows, std::int64_t new_columns) const noexcept {
  assert(new_rows * new_columns == count());
  return {data, type, new_rows, new_columns};
}

}  // namespace lockstep::model
