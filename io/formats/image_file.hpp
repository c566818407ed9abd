/// \file
/// One image file as pixels. image_file.cpp knows the formats; jpeg_png.cpp and webp.cpp decode them where their
/// libraries were found, without_jpeg_png.cpp and without_webp.cpp stand for them elsewhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::io {

/// RGB, row by row: `pixels`, or `deep` where the file has more than 8 bits a channel; the other one is empty.
struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels = {};
  std::vector<std::uint16_t> deep = {};  ///< numbers as the file has them: of 12 bits, 0 to 4095
  bool turned = false;                   ///< its orientation (EXIF) has been applied

  bool is_deep() const noexcept { return !deep.empty(); }
  std::int64_t elements() const noexcept { return height * width * 3; }
};

/// Told apart by content, not by name. Colours are the numbers of the file: no gamma is applied, opacity is left out.
/// Upright, as the orientation in the file says. Throws FileError naming the file: no known format, one that this
/// program was built without, damaged, cut off (images that other programs complete with grey are refused), more
/// pixels than its bytes can mean.
Image read_image(const std::filesystem::path& file);

/// What a file is by its first bytes: "JPEG", "PNG", "GIF" ...; "": no image that we know.
std::string image_format(const std::filesystem::path& file);
/// Whether names that end so are those of images: ".JPG"; with the name of the format.
std::optional<std::string_view> image_format_of_name(const std::filesystem::path& file);
/// Whether this program can decode a format.
bool can_decode(std::string_view format) noexcept;

// For decoders.

using ImageDecoder = Image (*)(const std::filesystem::path& file, std::span<const std::uint8_t> bytes);
/// nullptr: built without the library.
ImageDecoder jpeg_decoder() noexcept;
ImageDecoder png_decoder() noexcept;
ImageDecoder webp_decoder() noexcept;

/// Before memory is taken for it. Throws FileError where the file has too few bytes for so many pixels.
void require_believable_area(const std::filesystem::path& file, std::uint64_t height, std::uint64_t width,
                             std::uint64_t file_bytes);
/// The orientation that an EXIF block (a TIFF header and its first directory) tells: 1 to 8; 1 where it tells none.
int exif_orientation(std::span<const std::uint8_t> block) noexcept;
/// The image as it is meant to be seen: orientation 6 is turned by a quarter clockwise, and so on (EXIF 2.3, 4.6.4).
Image upright(Image image, int orientation);

}  // namespace lockstep::io
