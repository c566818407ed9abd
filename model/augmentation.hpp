/// \file
/// Turns stored images and volumes into a network's input: crop, symmetries, colour, normalisation. All kinds of
/// devices share the formulas in formulas/augmentation.hpp.
///
/// In training (with a key per sample), in this order:
///  1. with `minimum_area` < 1, a random rectangle is scaled to `out` bilinearly (half-pixel centres, clamped at the
///     edges). Its share of the area is uniform in [minimum_area, 1], its aspect ratio log-uniform in [3/4, 4/3]; if it
///     does not fit, it is cut to the image. Otherwise the image is padded with `pad` zeros on each side and cropped to
///     `out` at a uniformly random offset; in a volume, planes are padded and cropped, too;
///  2. with `flip`, left and right are swapped with probability 1/2; with flip_height and flip_depth top and bottom,
///     front and back, each with its own draw. With `turns`, directions are permuted by one of the orders that keep the
///     shape of `out`, all equally likely. All flips and turns together give all symmetries of the shape: 8 of a
///     square, 4 of another rectangle, 48 of a cube, 16 or 8 of a box;
///  3. brightness: + uniform in [-brightness, brightness], in units of stored values;
///  4. contrast: (x - mean of its channel in this crop) * factor + mean, factor uniform in [contrast_low,
///     contrast_high];
///  5. normalisation.
/// In evaluation: the central crop of the unpadded image, padded with zeros if the image is smaller (an odd plane, row
/// or column is at the back, bottom or right), then normalisation. With `minimum_area` < 1 the central crop is taken
/// from the stored image as it is.
///
/// Normalisation: per_image: (x - mean) / max(deviation, 1 / sqrt(elements)) over the whole crop
/// (tf.image.per_image_standardization); otherwise x * scale[c] + shift[c].
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::model {

/// Shape of an image [height, width, channels], channels fastest; of a volume [depth, height, width, channels]; or,
/// with a height of 1, of a series [width, channels].
struct ImageShape {
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t depth = 1;
  std::int64_t pixels() const noexcept { return depth * height * width; }
  std::int64_t elements() const noexcept { return pixels() * channels; }
  /// Depth, height and width.
  std::array<std::int64_t, 3> extents() const noexcept { return {depth, height, width}; }
  bool operator==(const ImageShape&) const = default;
};

inline constexpr std::size_t kMaxAugmentedChannels = 4;  ///< with normalisation by channel

struct Augmentation {
  ImageShape in;   ///< as stored
  ImageShape out;  ///< as the network reads it; the channels of `in`
  std::int64_t pad = 0;
  bool flip = false, flip_height = false, flip_depth = false;
  bool turns = false;  ///< permute directions of equal extent (quarter turns, for a square)
  float minimum_area = 1;
  float brightness = 0;
  float contrast_low = 1, contrast_high = 1;
  bool per_image = false;
  /// Per channel; channels beyond use the last value.
  std::array<float, kMaxAugmentedChannels> scale{1, 1, 1, 1}, shift{};
  /// True if augmentation may move pixels.
  bool moves_pixels() const noexcept {
    return flip || flip_height || flip_depth || turns || pad > 0 || minimum_area < 1 || !(in == out);
  }
  /// True if the output may show zeros from outside the stored image.
  bool shows_outside() const noexcept {
    return pad > 0 || out.depth > in.depth || out.height > in.height || out.width > in.width;
  }
  bool operator==(const Augmentation&) const = default;
};

}  // namespace lockstep::model
