/// \file
/// Shape of one sample of a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "model/augmentation.hpp"

namespace lockstep::model {

/// Extents of one sample, channels last: {12} a row of a table, {100, 4} a sequence, {32, 32, 3} an image. The batch is
/// not an extent.
class Shape {
 public:
  static constexpr std::size_t kMaxExtents = 5;
  static constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

  Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  /// Throws std::invalid_argument unless there are 1 to kMaxExtents positive extents and at most kMaxElements elements.
  explicit Shape(std::span<const std::int64_t> extents);
  explicit Shape(const ImageShape& image) : Shape({image.height, image.width, image.channels}) {}

  std::span<const std::int64_t> extents() const noexcept { return {extents_.data(), count_}; }
  std::size_t count() const noexcept { return count_; }  ///< extents
  std::int64_t elements() const noexcept;
  std::int64_t last() const noexcept { return extents_[count_ - 1]; }
  /// Rows of `last()` elements.
  std::int64_t places() const noexcept { return elements() / last(); }
  /// The same shape with another last extent.
  Shape with_last(std::int64_t extent) const;
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxExtents> extents_{};
  std::size_t count_ = 0;
};

/// "32x32x3"
std::string to_string(const Shape& shape);
/// Returns the shape as an image that `reader` reads. Throws std::invalid_argument, naming the shape, if it is not one.
ImageShape image_of(const Shape& shape, std::string_view reader);

}  // namespace lockstep::model
