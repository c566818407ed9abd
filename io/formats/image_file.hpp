/// \file
/// Reads an image file as pixels. image_file.cpp knows the formats. jpeg_png.cpp and webp.cpp decode them if their
/// libraries were found; otherwise without_jpeg_png.cpp and without_webp.cpp take their place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// RGB, row by row: `pixels`, or `deep` if the file has more than 8 bits per channel; the other one is empty.
struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels = {};
  std::vector<std::uint16_t> deep = {};  ///< numbers of the file: 0 to 4095 for 12 bits
  bool turned = false;                   ///< its orientation (EXIF) has been applied

  bool is_deep() const noexcept { return !deep.empty(); }
  std::int64_t elements() const noexcept { return height * width * 3; }
};

/// Recognises the format by content, not by name. Colours are the numbers of the file: no gamma is applied, opacity is
/// dropped. The image is upright, by the orientation in the file. Throws FileError that names the file: unknown format,
/// a format that this program was built without, damaged, cut off (other programs complete such images with grey), more
/// pixels than the bytes can hold.
Image read_image(const std::filesystem::path& file);

/// Format by the file's first bytes: "JPEG", "PNG", "GIF" ...; "": not a known image.
std::string image_format(const std::filesystem::path& file);
/// Format by the ending of the name, such as ".JPG"; nullopt: not an image's name.
std::optional<std::string_view> image_format_of_name(const std::filesystem::path& file);
/// True if this program can decode the format.
bool can_decode(std::string_view format) noexcept;

// For decoders.

using ImageDecoder = Image (*)(const std::filesystem::path& file, std::span<const std::uint8_t> bytes);
/// nullptr: built without the library.
ImageDecoder jpeg_decoder() noexcept;
ImageDecoder png_decoder() noexcept;
ImageDecoder webp_decoder() noexcept;

/// Throws FileError if the file has too few bytes for this number of pixels. Call it before memory is allocated.
void require_believable_area(const std::filesystem::path& file, std::uint64_t height, std::uint64_t width,
                             std::uint64_t file_bytes);
/// Orientation in an EXIF block (a TIFF header and its first directory): 1 to 8; 1 if it has none.
int exif_orientation(std::span<const std::uint8_t> block) noexcept;
/// The image as it should be seen: orientation 6 is turned clockwise by 90 degrees, and so on (EXIF 2.3, 4.6.4).
Image upright(Image image, int orientation);

}  // namespace lockstep::io
