/// \file
/// Augments masks, which hold a label for each pixel of an image or a volume. A mask uses the same draws as its image
/// (augmentation.hpp), takes the nearest pixel where images are interpolated, and ignores colour. It always runs on the
/// host, because the weights of a step depend on the augmented labels.
#pragma once

#include <cstdint>
#include <span>

#include "model/augmentation.hpp"

namespace lockstep::model {

/// masks [samples, in.pixels()]; keys: the images' keys, one per sample, or empty for evaluation. out [samples,
/// out.pixels()]; pixels outside the image become kNoClass. Throws std::invalid_argument if the sizes do not match.
void augment_masks(std::span<const std::int32_t> masks, std::span<const std::uint64_t> keys, const Augmentation& spec,
                   std::span<std::int32_t> out);

}  // namespace lockstep::model
