/// \file
/// Scales images to one size.
#pragma once

#include "io/formats/image_file.hpp"

namespace lockstep::io {

/// A part of an image, in pixels; corners may have fractions.
struct ImageRegion {
  double top = 0, left = 0, height = 0, width = 0;
};

/// The region of an image that fills height x width if the shorter side is scaled to fit and the rest is cut off
/// evenly.
ImageRegion centre_region(const Image& image, std::int64_t height, std::int64_t width) noexcept;

/// Scales `region` of `image` to height x width pixels. Cubic interpolation (Keys 1981, a = -1/2) with a kernel that
/// grows with the reduction, so that every pixel of the region counts (no aliasing); rows first, then columns, in
/// float, rounded once. An image of this size stays unchanged.
Image scale(const Image& image, const ImageRegion& region, std::int64_t height, std::int64_t width);

}  // namespace lockstep::io
