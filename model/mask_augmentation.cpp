#include "model/mask_augmentation.hpp"

#include <stdexcept>

#include "model/backend.hpp"
#include "model/formulas/augmentation.hpp"

namespace lockstep::model {

namespace {

using formulas::AugmentationNumbers;
using formulas::SampleAugmentation;

/// Source index of an output row or column; the nearest one if the image is scaled.
std::int32_t nearest(std::int32_t index, std::int32_t extent, std::int32_t out, bool scaled) {
  if (!scaled) return index;
  const formulas::Tap tap = formulas::tap_of(index, extent, out);
  return tap.share < 0.5f ? tap.first : tap.second;
}

void augment_mask(const std::int32_t* mask, const AugmentationNumbers& numbers, const SampleAugmentation& sample,
                  std::int32_t* out) {
  for (std::int32_t plane = 0; plane < numbers.out_depth; ++plane) {
    for (std::int32_t row = 0; row < numbers.out_height; ++row) {
      for (std::int32_t column = 0; column < numbers.out_width; ++column) {
        const formulas::CropPixel shown = formulas::shown_pixel(numbers, sample, {plane, row, column});
        const std::int32_t z = sample.front + shown.plane,
                           y = sample.top + nearest(shown.row, sample.height, numbers.out_height, sample.scaled),
                           x = sample.left + nearest(shown.column, sample.width, numbers.out_width, sample.scaled);
        const bool inside =
            z >= 0 && z < numbers.in_depth && y >= 0 && y < numbers.in_height && x >= 0 && x < numbers.in_width;
        const std::int64_t line = static_cast<std::int64_t>(z) * numbers.in_height + y;
        *out++ = inside ? mask[line * numbers.in_width + x] : kNoClass;
      }
    }
  }
}

}  // namespace

void augment_masks(std::span<const std::int32_t> masks, std::span<const std::uint64_t> keys, const Augmentation& spec,
                   std::span<std::int32_t> out) {
  const auto in_pixels = static_cast<std::size_t>(spec.in.pixels()),
             out_pixels = static_cast<std::size_t>(spec.out.pixels());
  const std::size_t samples = masks.size() / in_pixels;
  if (masks.size() != samples * in_pixels || out.size() != samples * out_pixels ||
      (!keys.empty() && keys.size() != samples)) {
    throw std::invalid_argument("masks to augment have the extents of their images, and a key for each or none");
  }
  const AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  for (std::size_t i = 0; i < samples; ++i) {
    const SampleAugmentation sample =
        keys.empty() ? formulas::central_crop(numbers) : formulas::draw_augmentation(numbers, keys[i]);
    augment_mask(&masks[i * in_pixels], numbers, sample, &out[i * out_pixels]);
  }
}

}  // namespace lockstep::model
