/// \file
/// One JPEG or PNG file as pixels. jpeg_png.cpp where the libraries were found, otherwise without_jpeg_png.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::io {

/// RGB, three bytes a pixel, row by row.
struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;
};

/// Told apart by content, not by name. Throws FileError naming the file: neither of them, damaged, cut off (images that
/// other programs complete with grey are refused), impossibly large.
Image read_image(const std::filesystem::path& file);

}  // namespace lockstep::io
