/// \file
/// Checks of operands. A caller that breaks a rule gets std::invalid_argument, which names the operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include <fmt/format.h>

#include "model/tensor.hpp"

namespace lockstep::model {

inline void require(bool condition, const char* operation, const char* rule) {
  if (!condition) throw std::invalid_argument(fmt::format("{}: {}", operation, rule));
}

inline bool is(const Tensor& tensor, ElementType type, std::int64_t rows, std::int64_t columns) {
  return tensor.type == type && tensor.rows == rows && tensor.columns == columns &&
         (tensor.present() || tensor.count() == 0);
}

/// True if the tensor is absent or has this type and shape.
inline bool absent_or(const Tensor& tensor, ElementType type, std::int64_t rows, std::int64_t columns) {
  return !tensor.present() || is(tensor, type, rows, columns);
}

/// True if the tensors share no byte.
inline bool apart(const Tensor& a, const Tensor& b) {
  const auto end = [](const Tensor& tensor) { return static_cast<const std::byte*>(tensor.data) + tensor.bytes(); };
  if (!a.present() || !b.present() || a.count() == 0 || b.count() == 0) return true;
  const std::less_equal<const std::byte*> not_after;
  return not_after(end(a), static_cast<const std::byte*>(b.data)) ||
         not_after(end(b), static_cast<const std::byte*>(a.data));
}

/// True if the tensors begin at the same address or share no byte: for operations that may work in place.
inline bool same_or_apart(const Tensor& a, const Tensor& b) { return a.data == b.data || apart(a, b); }

}  // namespace lockstep::model
