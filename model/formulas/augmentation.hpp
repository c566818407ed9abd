/// \file
/// The formulas of augmentation.hpp: the draws of a sample, the source of its pixels, and the affine map per channel
/// that combines colour and normalisation. Reference, CPU and GPU share this code. Discrete draws (offsets, rectangles,
/// flips) use only integers, so rounding cannot make devices differ.
///
/// A sample draws groups of words, philox_words(group, 0, kAugmentationStream, 0) under its key:
///
///   group 0: word 0  offset from the top: (word * offsets) >> 32, offsets = how many fit
///            word 1  offset from the left, likewise
///            word 2  flipped along width, height, depth where its highest, second, third bit is set
///            word 3  brightness: the word as a signed number * 2^-31, in [-1, 1), times `brightness`
///   group 1: word 0  contrast: word * 2^-32, from contrast_low to contrast_high
///            word 1  share of the area, where minimum_area < 1: word * 2^-32, from minimum_area to 1
///            word 2  aspect ratio: width / height = (4/3)^a with a = signed word * 2^-31
///            word 3  turn: (word * orders) >> 32, orders = how many orders of the directions keep the shape
///   group 2: word 0  offset from the front of a volume, as from the top
///
/// A word is drawn even if no augmentation uses it: options do not change each other's draws.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/augmentation.hpp"
#include "model/formulas/host_device.hpp"
#include "model/formulas/normalization.hpp"
#include "model/randomness.hpp"

namespace lockstep::model::formulas {

/// A permutation of the directions: direction i of the crop (0 depth, 1 height, 2 width) becomes direction of[i] of the
/// output.
struct AxisOrder {
  std::int8_t of[3];
};
/// The identity comes first.
inline constexpr AxisOrder kAxisOrders[] = {{{0, 1, 2}}, {{0, 2, 1}}, {{1, 0, 2}},
                                            {{1, 2, 0}}, {{2, 0, 1}}, {{2, 1, 0}}};

/// The numbers of an augmentation, computed once per call on the host. Extents are at most kLongestSide.
inline constexpr std::int64_t kLongestSide = 32768;
struct AugmentationNumbers {
  std::int32_t in_depth, in_height, in_width, out_depth, out_height, out_width, channels;
  std::int32_t pad, pad_depth;
  std::uint32_t flip_mask;      ///< bits of the directions that may be flipped
  std::uint32_t orders;         ///< number of elements of `order` from which a sample draws
  AxisOrder order[6];           ///< permutations that keep the shape of the output
  std::uint64_t minimum_share;  ///< smallest share of the area, * 2^32
  bool scales;                  ///< true if minimum_area < 1: a rectangle is scaled to `out`
  float brightness, contrast_low, contrast_span;
  bool per_image;
  float scale[kMaxAugmentedChannels], shift[kMaxAugmentedChannels];
};

/// Bits of flip_mask.
inline constexpr std::uint32_t kFlipWidth = 0x80000000u, kFlipHeight = 0x40000000u, kFlipDepth = 0x20000000u;

inline AugmentationNumbers augmentation_numbers(const Augmentation& spec) {
  AugmentationNumbers numbers{};
  numbers.in_depth = static_cast<std::int32_t>(spec.in.depth);
  numbers.in_height = static_cast<std::int32_t>(spec.in.height);
  numbers.in_width = static_cast<std::int32_t>(spec.in.width);
  numbers.out_depth = static_cast<std::int32_t>(spec.out.depth);
  numbers.out_height = static_cast<std::int32_t>(spec.out.height);
  numbers.out_width = static_cast<std::int32_t>(spec.out.width);
  numbers.channels = static_cast<std::int32_t>(spec.out.channels);
  numbers.pad = static_cast<std::int32_t>(spec.pad);
  numbers.pad_depth = spec.in.depth > 1 ? numbers.pad : 0;
  numbers.flip_mask =
      (spec.flip ? kFlipWidth : 0) | (spec.flip_height ? kFlipHeight : 0) | (spec.flip_depth ? kFlipDepth : 0);
  const std::array<std::int64_t, 3> extents = spec.out.extents();
  for (const AxisOrder& order : kAxisOrders) {
    bool keeps = true;
    for (std::size_t i = 0; i < 3; ++i) keeps = keeps && extents[static_cast<std::size_t>(order.of[i])] == extents[i];
    if (keeps && (spec.turns || numbers.orders == 0)) numbers.order[numbers.orders++] = order;
  }
  numbers.minimum_share = static_cast<std::uint64_t>(static_cast<double>(spec.minimum_area) * 0x1p32 + 0.5);
  numbers.scales = spec.minimum_area < 1;
  numbers.brightness = spec.brightness;
  numbers.contrast_low = spec.contrast_low;
  numbers.contrast_span = spec.contrast_high - spec.contrast_low;
  numbers.per_image = spec.per_image;
  for (std::size_t c = 0; c < kMaxAugmentedChannels; ++c) {
    numbers.scale[c] = spec.scale[c];
    numbers.shift[c] = spec.shift[c];
  }
  return numbers;
}

/// The augmentation of one sample.
struct SampleAugmentation {
  std::int32_t front, top, left;  ///< corner of the crop in the stored image; pixels outside the image are zero
  std::int32_t height, width;     ///< extents of the crop; equal to those of `out` unless scaled
  bool scaled;
  std::uint32_t flips;  ///< kFlipWidth, kFlipHeight and kFlipDepth
  AxisOrder order;
  float brightness;  ///< summand
  float contrast;    ///< factor
};

/// For evaluation: the central crop. An odd plane, row or column is cut off (or added) at the back, bottom or right.
LOCKSTEP_HOST_DEVICE SampleAugmentation central_crop(const AugmentationNumbers& numbers) {
  return {(numbers.in_depth - numbers.out_depth) / 2,
          (numbers.in_height - numbers.out_height) / 2,
          (numbers.in_width - numbers.out_width) / 2,
          numbers.out_height,
          numbers.out_width,
          false,
          0,
          {{0, 1, 2}},
          0.0f,
          1.0f};
}

/// Draws uniformly from [0, offsets).
LOCKSTEP_HOST_DEVICE std::int32_t draw_offset(std::uint32_t word, std::int32_t offsets) {
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(word) * static_cast<std::uint32_t>(offsets) >> 32);
}

/// floor(sqrt(value)), bit by bit: 32 rounds, once per sample.
LOCKSTEP_HOST_DEVICE std::uint64_t square_root(std::uint64_t value) {
  std::uint64_t root = 0;
  for (int bit = 31; bit >= 0; --bit) {
    const std::uint64_t tried = root | std::uint64_t{1} << bit;
    root = tried * tried <= value ? tried : root;
  }
  return root;
}

/// (4/3)^(a / 2) * 2^30 for a = signed word * 2^-31: the series of exp(t), t = a ln(4/3) / 2, up to t^5. |t| < 0.144,
/// so the error is below 2e-8.
LOCKSTEP_HOST_DEVICE std::int64_t root_of_aspect(std::uint32_t word) {
  constexpr std::int64_t kOne = std::int64_t{1} << 30;
  constexpr std::int64_t kHalfLogarithm = 154448137;  // ln(4/3) / 2 * 2^30
  const std::int64_t t = static_cast<std::int64_t>(static_cast<std::int32_t>(word)) * kHalfLogarithm >> 31;
  std::int64_t sum = kOne + t / 5;
  sum = kOne + (t * sum >> 30) / 4;
  sum = kOne + (t * sum >> 30) / 3;
  sum = kOne + (t * sum >> 30) / 2;
  return kOne + (t * sum >> 30);
}

/// Returns side * factor, rounded to whole pixels from 1 to `most`. side is scaled by 2^16, factor by 2^30.
LOCKSTEP_HOST_DEVICE std::int32_t rectangle_side(std::uint64_t side, std::int64_t factor, std::int32_t most) {
  const std::uint64_t product = side * static_cast<std::uint64_t>(factor);
  const std::uint64_t pixels = (product + (std::uint64_t{1} << 45)) >> 46;
  const auto limit = static_cast<std::uint64_t>(most);
  return static_cast<std::int32_t>(pixels < 1 ? 1 : pixels > limit ? limit : pixels);
}

/// For training: draws the augmentation of the sample with this key.
LOCKSTEP_HOST_DEVICE SampleAugmentation draw_augmentation(const AugmentationNumbers& numbers, std::uint64_t key) {
  const auto key_low = static_cast<std::uint32_t>(key), key_high = static_cast<std::uint32_t>(key >> 32);
  const PhiloxWords first = philox_words(0, 0, kAugmentationStream, 0, key_low, key_high);
  const PhiloxWords second = philox_words(1, 0, kAugmentationStream, 0, key_low, key_high);
  SampleAugmentation sample{};
  if (numbers.in_depth > 1) {
    const PhiloxWords third = philox_words(2, 0, kAugmentationStream, 0, key_low, key_high);
    const std::int32_t offsets = numbers.in_depth + 2 * numbers.pad_depth - numbers.out_depth + 1;
    sample.front = draw_offset(third.word[0], offsets) - numbers.pad_depth;
  }
  if (numbers.scales) {
    const std::uint64_t span = (std::uint64_t{1} << 32) - numbers.minimum_share;
    const std::uint64_t share = numbers.minimum_share + (second.word[1] * span >> 32);
    const std::uint64_t pixels =
        static_cast<std::uint64_t>(numbers.in_height) * static_cast<std::uint64_t>(numbers.in_width);
    const std::uint64_t side = square_root(pixels * share);
    // The inverse ratio has the negated exponent, 2^32 - word. Only the word 2^31 has no negative.
    sample.width = rectangle_side(side, root_of_aspect(second.word[2]), numbers.in_width);
    sample.height = rectangle_side(side, root_of_aspect(0u - second.word[2]), numbers.in_height);
    sample.top = draw_offset(first.word[0], numbers.in_height - sample.height + 1);
    sample.left = draw_offset(first.word[1], numbers.in_width - sample.width + 1);
  } else {
    sample.width = numbers.out_width;
    sample.height = numbers.out_height;
    sample.top = draw_offset(first.word[0], numbers.in_height + 2 * numbers.pad - sample.height + 1) - numbers.pad;
    sample.left = draw_offset(first.word[1], numbers.in_width + 2 * numbers.pad - sample.width + 1) - numbers.pad;
  }
  sample.scaled = numbers.scales;
  sample.flips = first.word[2] & numbers.flip_mask;
  sample.order = numbers.order[draw_offset(second.word[3], static_cast<std::int32_t>(numbers.orders))];
  sample.brightness = static_cast<float>(static_cast<std::int32_t>(first.word[3])) * 0x1p-31f * numbers.brightness;
  sample.contrast = numbers.contrast_low + static_cast<float>(second.word[0]) * 0x1p-32f * numbers.contrast_span;
  return sample;
}

/// A pixel of a crop or of the output.
struct CropPixel {
  std::int32_t plane, row, column;
};

/// Returns the pixel of the crop that a pixel of the output shows.
LOCKSTEP_HOST_DEVICE CropPixel shown_pixel(const AugmentationNumbers& numbers, const SampleAugmentation& sample,
                                           const CropPixel& out) {
  const auto along = [&out](std::int8_t direction) {
    return direction == 0 ? out.plane : direction == 1 ? out.row : out.column;
  };
  const std::int32_t plane = along(sample.order.of[0]), row = along(sample.order.of[1]),
                     column = along(sample.order.of[2]);
  return {(sample.flips & kFlipDepth) != 0 ? numbers.out_depth - 1 - plane : plane,
          (sample.flips & kFlipHeight) != 0 ? numbers.out_height - 1 - row : row,
          (sample.flips & kFlipWidth) != 0 ? numbers.out_width - 1 - column : column};
}

/// Source of a scaled row or column: two neighbours in the rectangle and the share of the second.
struct Tap {
  std::int32_t first, second;
  float share;
};

/// Returns the source of position `index` if `out` positions are spread over `in` pixels, with half-pixel centres,
/// clamped at the edges. The position is ((2 index + 1) in - out) / (2 out).
LOCKSTEP_HOST_DEVICE Tap tap_of(std::int32_t index, std::int32_t in, std::int32_t out) {
  const std::int64_t position = (2 * static_cast<std::int64_t>(index) + 1) * in - out;
  const auto numerator = static_cast<std::uint32_t>(position < 0 ? 0 : position);
  const std::uint32_t denominator = 2 * static_cast<std::uint32_t>(out);
  const auto first = static_cast<std::int32_t>(numerator / denominator);
  return {first, first + 1 < in ? first + 1 : first,
          static_cast<float>(numerator % denominator) / static_cast<float>(denominator)};
}

/// Interpolates between four pixels: rows by `row`, columns by `column`.
LOCKSTEP_HOST_DEVICE float blend(float top_left, float top_right, float bottom_left, float bottom_right, const Tap& row,
                                 const Tap& column) {
  const float top = top_left * (1 - column.share) + top_right * column.share;
  const float bottom = bottom_left * (1 - column.share) + bottom_right * column.share;
  return top * (1 - row.share) + bottom * row.share;
}

// ---- Colour and normalisation ----
//
// Brightness b, contrast f and normalisation are affine in each channel: y = gain x + offset. One pass over the crop's
// pixels x (as cropped or scaled, before brightness) gives sum and sum of squares of each channel, and these give gain
// and offset. Without contrast and per_image no sums are needed.

/// True if the map of this sample needs sums of the channels.
LOCKSTEP_HOST_DEVICE bool needs_sums(const AugmentationNumbers& numbers, const SampleAugmentation& sample) {
  return numbers.per_image || sample.contrast != 1;
}

/// Moments of the whole crop, for normalisation per image.
struct CropMoments {
  double mean;     ///< mean of the crop before brightness
  double inverse;  ///< 1 / max(deviation after contrast, 1 / sqrt(elements))
};

/// Computes the moments from the sum and sum of squares of each channel over `pixels` values. contrast: as drawn.
LOCKSTEP_HOST_DEVICE CropMoments crop_moments(const double* sums, const double* squares, std::int32_t channels,
                                              double pixels, double contrast) {
  double mean = 0;
  for (std::int32_t c = 0; c < channels; ++c) mean += sums[c] / pixels;
  mean /= channels;
  double variance = 0;
  for (std::int32_t c = 0; c < channels; ++c) {
    const Moments channel = moments_of(sums[c], squares[c], pixels);
    const double beside = channel.mean - mean;
    variance += contrast * contrast * channel.variance + beside * beside;
  }
  const double deviation = sqrt(variance / channels);
  const double least = 1 / sqrt(pixels * channels);
  return {mean, 1 / (deviation < least ? least : deviation)};
}

/// The map y = gain x + offset.
struct Affine {
  float gain, offset;
};

/// Returns the map of channel c. channel_mean: sum / pixels; ignored unless needs_sums(). crop: ignored unless
/// per_image.
LOCKSTEP_HOST_DEVICE Affine channel_map(const AugmentationNumbers& numbers, const SampleAugmentation& sample,
                                        const CropMoments& crop, double channel_mean, std::int32_t c) {
  const double contrast = sample.contrast;
  // (x + b - (mean + b)) f + mean + b = f x + (1 - f) mean + b
  const double offset = contrast == 1 ? 0 : (1 - contrast) * channel_mean;
  if (numbers.per_image) {  // the mean after brightness is crop.mean + b
    return {static_cast<float>(contrast * crop.inverse), static_cast<float>((offset - crop.mean) * crop.inverse)};
  }
  const auto last = static_cast<std::int32_t>(kMaxAugmentedChannels) - 1;
  const std::int32_t i = c < last ? c : last;
  const double scale = numbers.scale[i];
  return {static_cast<float>(contrast * scale),
          static_cast<float>((offset + static_cast<double>(sample.brightness)) * scale +
                             static_cast<double>(numbers.shift[i]))};
}

}  // namespace lockstep::model::formulas
