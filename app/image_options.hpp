/// \file
/// Images in the words of the command line: their shape, and what --augment says.
#pragma once

#include <string>

#include "model/augmentation.hpp"

namespace lockstep::app {

/// "224x224x3" or "28x28" (one channel). Throws UsageError.
model::ImageShape parse_image_shape(const std::string& text);

/// "none" or a comma-separated list of pad=N, crop=N, crop=HxW, area=SHARE, flip, brightness=V, contrast=LOW:HIGH, each
/// at most once; `in` is the image as stored. Normalisation is left as it is by default. Throws UsageError naming the
/// item and what is wrong with it.
model::Augmentation parse_augmentation(const std::string& text, const model::ImageShape& in);

}  // namespace lockstep::app
