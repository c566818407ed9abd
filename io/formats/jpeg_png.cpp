// The only home of libjpeg and libpng.
#include <fmt/format.h>
#include <setjmp.h>
#include <stdio.h>

// jpeglib.h needs FILE and size_t beforehand.
#include <jpeglib.h>
// jerror.h needs jpeglib.h.
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>

#include <jerror.h>
#include <png.h>

#include "io/files/file_error.hpp"
#include "io/formats/byte_reader.hpp"
#include "io/formats/image_file.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

/// Of each side; more is a damaged header.
constexpr std::uint32_t kMostPixels = 1U << 16;
/// Three bytes each: 3 GiB.
constexpr std::uint64_t kMostArea = std::uint64_t{1} << 30;

/// Small images are read whatever their bytes are.
constexpr std::uint64_t kSmallArea = std::uint64_t{1} << 22;
/// Pixels that one byte of a JPEG file can stand for: each block of 8 x 8 takes a bit at least.
constexpr std::uint64_t kMostPixelsPerByte = 512;
/// Bytes that deflate unpacks one byte to.
constexpr std::uint64_t kMostUnpackedBytes = 1032;

/// What libjpeg calls when it gives up, and where it goes from there.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg knows this part alone
  jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> text;
};

[[noreturn]] void give_up(j_common_ptr codec) {
  auto* errors = reinterpret_cast<JpegErrors*>(codec->err);
  codec->err->format_message(codec, errors->text.data());
  longjmp(errors->jump, 1);
}

/// Level -1: the data is damaged and something was made up in its place. Bytes too many between two markers harm
/// nothing and occur in well-known sets of images.
void on_message(j_common_ptr codec, int level) {
  const bool harmless = codec->err->msg_code == JWRN_EXTRANEOUS_DATA || codec->err->msg_code == JWRN_ADOBE_XFORM ||
                        codec->err->msg_code == JWRN_JFIF_MAJOR;
  if (level < 0 && !harmless) give_up(codec);
}

/// Adobe's programs store cyan, magenta, yellow and black inverted, and so does everybody else who stores them.
void to_rgb(std::span<const std::uint8_t> inverted_cmyk, std::span<std::uint8_t> rgb) {
  for (std::size_t p = 0; p < rgb.size() / 3; ++p) {
    const unsigned black = inverted_cmyk[4 * p + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[3 * p + c] = static_cast<std::uint8_t>((inverted_cmyk[4 * p + c] * black + 127) / 255);
    }
  }
}

/// Between setjmp and longjmp nothing with a destructor is made: `image`, `row` and the codec belong to the caller.
/// False: errors.text says why.
bool decode_jpeg(std::span<const std::uint8_t> bytes, jpeg_decompress_struct& codec, JpegErrors& errors, Image& image,
                 std::vector<std::uint8_t>& row) {
  if (setjmp(errors.jump) != 0) return false;
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, bytes.data(), bytes.size());
  jpeg_read_header(&codec, TRUE);
  const bool four_inks = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
  if (codec.image_width > kMostPixels || codec.image_height > kMostPixels ||
      std::uint64_t{codec.image_width} * codec.image_height > kMostArea) {
    codec.err->msg_code = JERR_IMAGE_TOO_BIG;
    codec.err->msg_parm.i[0] = static_cast<int>(kMostPixels);
    give_up(reinterpret_cast<j_common_ptr>(&codec));
  }
  const std::uint64_t area = std::uint64_t{codec.image_width} * codec.image_height;
  if (area > kSmallArea && area / kMostPixelsPerByte > bytes.size()) {
    codec.err->msg_code = JERR_INPUT_EOF;
    give_up(reinterpret_cast<j_common_ptr>(&codec));
  }
  jpeg_start_decompress(&codec);
  const std::size_t row_bytes = std::size_t{codec.output_width} * 3;
  image.height = codec.output_height;
  image.width = codec.output_width;
  image.pixels.resize(row_bytes * codec.output_height);
  row.resize(std::size_t{codec.output_width} * 4);
  while (codec.output_scanline < codec.output_height) {
    std::uint8_t* out = image.pixels.data() + row_bytes * codec.output_scanline;
    std::uint8_t* scanline = four_inks ? row.data() : out;
    jpeg_read_scanlines(&codec, &scanline, 1);
    if (four_inks) to_rgb(row, {out, row_bytes});
  }
  jpeg_finish_decompress(&codec);
  return true;
}

Image read_jpeg(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  jpeg_decompress_struct codec{};
  JpegErrors errors{};
  codec.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = give_up;
  errors.manager.emit_message = on_message;
  Image image;
  std::vector<std::uint8_t> row;
  const bool done = decode_jpeg(bytes, codec, errors, image, row);
  jpeg_destroy_decompress(&codec);
  if (!done) {
    throw FileError(fmt::format("{}: is damaged: {}; copy it again, or remove it", file.string(), errors.text.data()));
  }
  return image;
}

/// From the header, which libpng has read and found in order.
std::uint64_t png_bits_per_pixel(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kDepth = 24, kColour = 25;
  constexpr std::array<std::uint64_t, 7> kChannels = {1, 0, 3, 1, 2, 0, 4};
  return bytes[kDepth] * kChannels.at(bytes[kColour]);
}

/// Colour and opacity; the opacity is left out, as most programs that prepare images for training do.
Image read_png(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  png_image codec{};
  codec.version = PNG_IMAGE_VERSION;
  const auto damaged = [&] {
    const std::string text = codec.message;
    png_image_free(&codec);
    return FileError(fmt::format("{}: is damaged: {}; copy it again, or remove it", file.string(), text));
  };
  if (png_image_begin_read_from_memory(&codec, bytes.data(), bytes.size()) == 0) throw damaged();
  if (codec.width > kMostPixels || codec.height > kMostPixels ||
      std::uint64_t{codec.width} * codec.height > kMostArea) {
    png_image_free(&codec);
    throw FileError(
        fmt::format("{}: is damaged: an image of {} x {} pixels", file.string(), codec.width, codec.height));
  }
  const std::uint64_t packed_area = std::uint64_t{codec.width} * codec.height;
  if (packed_area > kSmallArea && packed_area * png_bits_per_pixel(bytes) / 8 / kMostUnpackedBytes > bytes.size()) {
    png_image_free(&codec);
    throw FileError(
        fmt::format("{}: is damaged: its header promises {} x {} pixels, which {} bytes cannot hold; copy it "
                    "again, or remove it",
                    file.string(), codec.height, codec.width, bytes.size()));
  }
  codec.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  codec.format = PNG_FORMAT_RGBA;
  const std::size_t area = std::size_t{codec.width} * codec.height;
  std::vector<std::uint8_t> pixels(4 * area);
  if (png_image_finish_read(&codec, nullptr, pixels.data(), 0, nullptr) == 0) throw damaged();
  Image image{.height = codec.height, .width = codec.width, .pixels = std::vector<std::uint8_t>(3 * area)};
  for (std::size_t p = 0; p < area; ++p) std::memcpy(&image.pixels[3 * p], &pixels[4 * p], 3);
  return image;
}

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file) {
  ByteReader reader(file);
  std::vector<std::uint8_t> bytes(std::filesystem::file_size(file));
  reader.read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

bool begins_with(std::span<const std::uint8_t> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

}  // namespace

Image read_image(const std::filesystem::path& file) {
  const std::vector<std::uint8_t> bytes = read_bytes(file);
  if (begins_with(bytes, "\xFF\xD8\xFF")) return read_jpeg(file, bytes);
  if (begins_with(bytes, "\x89PNG\r\n\x1A\n")) return read_png(file, bytes);
  throw FileError(fmt::format("{}: is neither a JPEG nor a PNG file, whatever its name says", file.string()));
}

bool can_decode_images() noexcept { return true; }

}  // namespace lockstep::io
