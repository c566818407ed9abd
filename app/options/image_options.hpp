/// \file
/// Options for images: the shape of an image, and --augment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/augmentation.hpp"

namespace lockstep::app {

/// Parses "224x224x3" or "28x28" (one channel). Throws UsageError with the reason.
model::ImageShape parse_image_shape(const std::string& text);
std::string to_text(const model::ImageShape& shape);

/// Random changes of images, before the size of the images is known. See model/augmentation.hpp.
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

/// Parses "none" or a comma-separated list of pad=N, crop=N, crop=HxW, crop=DxHxW, area=SHARE, flip, flip=DIRECTIONS
/// (letters d, h, w), symmetries, brightness=V, contrast=LOW:HIGH, each at most once. Throws UsageError that names the
/// item and the reason.
AugmentOptions parse_augmentation(const std::string& text);
/// Returns the text that parse_augmentation() reads back.
std::string to_text(const AugmentOptions& options);
/// Returns the augmentation for images or volumes of this size, with the default normalisation. Throws UsageError if an
/// item does not fit the size.
model::Augmentation augmentation_of(const AugmentOptions& options, const model::ImageShape& in);

}  // namespace lockstep::app
