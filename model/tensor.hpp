/// \file
/// A typed view of memory that it does not own. Network code passes tensors; only backends look inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/slice.hpp"

namespace lockstep::model {

enum class ElementType : std::uint8_t { float32, float64, uint8, int32, bfloat16, uint64 };

std::size_t size_of(ElementType type) noexcept;  ///< bytes
const char* name_of(ElementType type) noexcept;  ///< "float32" …

template <class T>
struct ElementTypeOf;
template <>
struct ElementTypeOf<float> {
  static constexpr ElementType value = ElementType::float32;
};
template <>
struct ElementTypeOf<double> {
  static constexpr ElementType value = ElementType::float64;
};
template <>
struct ElementTypeOf<std::uint8_t> {
  static constexpr ElementType value = ElementType::uint8;
};
template <>
struct ElementTypeOf<std::int32_t> {
  static constexpr ElementType value = ElementType::int32;
};

template <>
struct ElementTypeOf<std::uint64_t> {
  static constexpr ElementType value = ElementType::uint64;
};

/// Row-major matrix view: `rows` samples (or positions of samples) of `columns` elements. The structure of the columns,
/// say an image [height, width, channels], is passed separately to the operations that need it.
struct Tensor {
  void* data = nullptr;
  ElementType type = ElementType::float32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  std::int64_t count() const noexcept { return rows * columns; }  ///< elements
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(count()) * size_of(type); }
  /// False for an optional operand that is not given.
  bool present() const noexcept { return data != nullptr; }

  /// View of a range of elements as one row; absent for an absent tensor.
  Tensor slice(const Slice& elements) const noexcept;
  /// Rows [first, first + count).
  Tensor row_range(std::int64_t first, std::int64_t count) const noexcept;
  /// The same elements in rows of another length.
  Tensor reshaped(std::int64_t new_rows, std::int64_t new_columns) const noexcept;

  /// Empty for an absent tensor. Throws std::invalid_argument if T is not the tensor's type.
  template <class T>
  std::span<T> elements() const {
    if (!present()) return {};
    if (ElementTypeOf<T>::value != type) throw std::invalid_argument(std::string("tensor holds ") + name_of(type));
    return {static_cast<T*>(data), static_cast<std::size_t>(count())};
  }
};

/// View of host memory that is only read.
template <class T>
Tensor host_tensor(const T* data, std::int64_t rows, std::int64_t columns) {
  return {const_cast<T*>(data), ElementTypeOf<T>::value, rows, columns};
}

}  // namespace lockstep::model
