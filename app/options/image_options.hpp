/// \file
/// Options for images: their shape, and --augment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/augmentation.hpp"

namespace lockstep::app {

/// Parses "224x224x3" or "28x28" (one channel). Throws UsageError that says what is wrong with the text.
model::ImageShape parse_image_shape(const std::string& text);
std::string to_text(const model::ImageShape& shape);

/// Random changes of images of unknown size (model/augmentation.hpp explains them).
struct AugmentOptions {
  struct Crop {
    std::int64_t height = 0, width = 0;
    std::optional<std::int64_t> depth = {};  ///< volumes; without it their crop is a cube
    bool operator==(const Crop&) const = default;
  };
  std::int64_t pad = 0;
  std::optional<Crop> crop = {};
  float minimum_area = 1;
  bool flip = false, flip_height = false, flip_depth = false;
  bool symmetries = false;  ///< all flips and turns that keep the shape
  float brightness = 0;
  float contrast_low = 1, contrast_high = 1;
  bool operator==(const AugmentOptions&) const = default;
};

/// "none" or a comma-separated list of pad=N, crop=N, crop=HxW, crop=DxHxW, area=SHARE, flip, flip=DIRECTIONS (letters
/// d, h, w), symmetries, brightness=V, contrast=LOW:HIGH, each at most once. Throws UsageError that names the item and
/// the mistake.
AugmentOptions parse_augmentation(const std::string& text);
/// Text that parse_augmentation() reads back.
std::string to_text(const AugmentOptions& options);
/// The augmentation for images or volumes of this size, with the default normalisation. Throws UsageError if an item
/// does not fit them.
model::Augmentation augmentation_of(const AugmentOptions& options, const model::ImageShape& in);

}  // namespace lockstep::app
