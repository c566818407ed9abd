/// \file
/// Augmentation of masks, labels for each pixel of an image or a volume: the same draws as the image's
/// (augmentation.hpp), the nearest pixel where images are interpolated, and no colour. It runs on the host for all
/// kinds of devices, since the weights of a step depend on the labels that a network sees.
#pragma once

#include <cstdint>
#include <span>

#include "model/augmentation.hpp"

namespace lockstep::model {

/// masks [samples, in.pixels()]; keys: those of the images, one for each sample, or none, as in evaluation;
/// out [samples, out.pixels()]. A pixel outside of the image has kNoClass. Throws std::invalid_argument for
/// sizes that do not fit together.
void augment_masks(std::span<const std::int32_t> masks, std::span<const std::uint64_t> keys, const Augmentation& spec,
                   std::span<std::int32_t> out);

}  // namespace lockstep::model
