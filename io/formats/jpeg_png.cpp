// The only file that uses libjpeg and libpng.
#include <fmt/format.h>
#include <setjmp.h>
#include <stdio.h>

// jpeglib.h needs FILE and size_t before it.
#include <jpeglib.h>
// jerror.h needs jpeglib.h.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <utility>

#include <jerror.h>
#include <png.h>

#include "io/files/file_error.hpp"
#include "io/formats/image_file.hpp"

namespace lockstep::io {
namespace {

/// Error handler of libjpeg, and the position at which execution then continues.
struct JpegErrors {
  jpeg_error_mgr manager;  // must be first: libjpeg knows only this part
  jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> text;
};

[[noreturn]] void give_up(j_common_ptr codec) {
  auto* errors = reinterpret_cast<JpegErrors*>(codec->err);
  codec->err->format_message(codec, errors->text.data());
  longjmp(errors->jump, 1);
}

/// Level -1: the data is damaged and libjpeg has invented a replacement. Surplus bytes between two markers are harmless
/// and occur in well-known sets of images.
void on_message(j_common_ptr codec, int level) {
  const bool harmless = codec->err->msg_code == JWRN_EXTRANEOUS_DATA || codec->err->msg_code == JWRN_ADOBE_XFORM ||
                        codec->err->msg_code == JWRN_JFIF_MAJOR;
  if (level < 0 && !harmless) give_up(codec);
}

/// CMYK in JPEG files is inverted, by a convention of Adobe's programs.
void to_rgb(std::span<const std::uint8_t> inverted_cmyk, std::span<std::uint8_t> rgb) {
  for (std::size_t p = 0; p < rgb.size() / 3; ++p) {
    const unsigned black = inverted_cmyk[4 * p + 3];
    for (std::size_t c = 0; c < 3; ++c) {
      rgb[3 * p + c] = static_cast<std::uint8_t>((inverted_cmyk[4 * p + c] * black + 127) / 255);
    }
  }
}

// Between setjmp and longjmp no object with a destructor is created: `image`, `row` and the codec belong to the caller.
// The functions return false after an error; errors.text has the reason.

constexpr int kExifMarker = JPEG_APP0 + 1;

bool read_jpeg_header(std::span<const std::uint8_t> bytes, jpeg_decompress_struct& codec, JpegErrors& errors) {
  constexpr unsigned kMaxMarkerBytes = 0xFFFF;
  if (setjmp(errors.jump) != 0) return false;
  jpeg_create_decompress(&codec);
  jpeg_mem_src(&codec, bytes.data(), bytes.size());
  jpeg_save_markers(&codec, kExifMarker, kMaxMarkerBytes);
  jpeg_read_header(&codec, TRUE);
  return true;
}

bool decode_jpeg(jpeg_decompress_struct& codec, JpegErrors& errors, Image& image, std::vector<std::uint8_t>& row) {
  if (setjmp(errors.jump) != 0) return false;
  const bool four_inks = codec.jpeg_color_space == JCS_CMYK || codec.jpeg_color_space == JCS_YCCK;
  codec.out_color_space = four_inks ? JCS_CMYK : JCS_RGB;
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

int orientation_of(const jpeg_decompress_struct& codec) {
  constexpr std::string_view kExif("Exif\0\0", 6);
  for (const jpeg_marker_struct* marker = codec.marker_list; marker != nullptr; marker = marker->next) {
    const std::span<const std::uint8_t> data(marker->data, marker->data_length);
    if (marker->marker != kExifMarker || data.size() < kExif.size()) continue;
    if (std::memcmp(data.data(), kExif.data(), kExif.size()) != 0) continue;
    return exif_orientation(data.subspan(kExif.size()));
  }
  return 1;
}

[[noreturn]] void refuse_as_damaged(const std::filesystem::path& file, std::string_view what) {
  throw FileError(fmt::format("{}: is damaged: {}; copy it again, or remove it", file.string(), what));
}

Image read_jpeg(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  struct Codec : jpeg_decompress_struct {
    Codec() : jpeg_decompress_struct{} {}
    ~Codec() { jpeg_destroy_decompress(this); }
  } codec;
  JpegErrors errors{};
  codec.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = give_up;
  errors.manager.emit_message = on_message;
  Image image;
  std::vector<std::uint8_t> row;
  const bool begun = read_jpeg_header(bytes, codec, errors);
  if (begun) require_believable_area(file, codec.image_height, codec.image_width, bytes.size());
  const int orientation = begun ? orientation_of(codec) : 1;  // decoding frees the markers
  if (begun && decode_jpeg(codec, errors, image, row)) return upright(std::move(image), orientation);
  if (errors.manager.msg_code == JERR_BAD_PRECISION) {
    throw FileError(
        fmt::format("{}: is a JPEG image of {} bits a channel, which libjpeg here does not read: convert it to PNG of "
                    "16 bits",
                    file.string(), codec.data_precision));
  }
  refuse_as_damaged(file, errors.text.data());
}

struct PngErrors {
  jmp_buf jump;
  std::array<char, 256> text;
};

[[noreturn]] void give_up_png(png_structp codec, png_const_charp text) {
  auto* errors = static_cast<PngErrors*>(png_get_error_ptr(codec));
  std::strncpy(errors->text.data(), text, errors->text.size() - 1);
  longjmp(errors->jump, 1);
}

/// Damage in ancillary chunks is ignored.
void ignore_png_warning(png_structp, png_const_charp) {}

void read_png_bytes(png_structp codec, png_bytep out, std::size_t count) {
  auto* left = static_cast<std::span<const std::uint8_t>*>(png_get_io_ptr(codec));
  if (count > left->size()) png_error(codec, "it ends too early");
  std::memcpy(out, left->data(), count);
  *left = left->subspan(count);
}

struct PngCodec {
  PngErrors errors{};
  png_structp codec = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors, give_up_png, ignore_png_warning);
  png_infop info = codec != nullptr ? png_create_info_struct(codec) : nullptr;
  PngCodec() = default;
  ~PngCodec() { png_destroy_read_struct(&codec, &info, nullptr); }
  PngCodec(const PngCodec&) = delete;
  PngCodec& operator=(const PngCodec&) = delete;
};

// As above: objects with a destructor belong to the caller.

bool read_png_header(PngCodec& png, std::span<const std::uint8_t>& left) {
  if (setjmp(png.errors.jump) != 0) return false;
  png_set_read_fn(png.codec, &left, read_png_bytes);
  png_read_info(png.codec, png.info);
  return true;
}

/// RGB of 8 or 16 bits. No gamma is set, so libpng applies none.
bool begin_png(PngCodec& png) {
  if (setjmp(png.errors.jump) != 0) return false;
  png_set_expand(png.codec);
  png_set_strip_alpha(png.codec);
  png_set_gray_to_rgb(png.codec);
  if (std::endian::native == std::endian::little) png_set_swap(png.codec);
  png_set_interlace_handling(png.codec);
  png_read_update_info(png.codec, png.info);
  return true;
}

bool decode_png(PngCodec& png, std::span<png_bytep> rows) {
  if (setjmp(png.errors.jump) != 0) return false;
  png_read_image(png.codec, rows.data());
  png_read_end(png.codec, png.info);
  return true;
}

int orientation_of(PngCodec& png) {
  png_bytep block = nullptr;
  png_uint_32 bytes = 0;
  if (png_get_eXIf_1(png.codec, png.info, &bytes, &block) != 0) return exif_orientation({block, bytes});
  return 1;
}

/// Reads colour and opacity, and drops the opacity, as most programs do that prepare images for training.
Image read_png(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  PngCodec png;
  if (png.info == nullptr) throw std::bad_alloc();
  std::span<const std::uint8_t> left = bytes;
  if (!read_png_header(png, left)) refuse_as_damaged(file, png.errors.text.data());
  Image image{.height = png_get_image_height(png.codec, png.info), .width = png_get_image_width(png.codec, png.info)};
  require_believable_area(file, static_cast<std::uint64_t>(image.height), static_cast<std::uint64_t>(image.width),
                          bytes.size());
  if (!begin_png(png)) refuse_as_damaged(file, png.errors.text.data());
  const auto row = static_cast<std::size_t>(image.width) * 3;
  std::vector<png_bytep> rows;
  const auto place_rows = [&](auto& pixels) {
    pixels.resize(static_cast<std::size_t>(image.elements()));
    for (std::size_t at = 0; at < pixels.size(); at += row) rows.push_back(reinterpret_cast<png_bytep>(&pixels[at]));
  };
  if (png_get_bit_depth(png.codec, png.info) == 16) {
    place_rows(image.deep);
  } else {
    place_rows(image.pixels);
  }
  if (!decode_png(png, rows)) refuse_as_damaged(file, png.errors.text.data());
  return upright(std::move(image), orientation_of(png));
}

}  // namespace

ImageDecoder jpeg_decoder() noexcept { return read_jpeg; }
ImageDecoder png_decoder() noexcept { return read_png; }

}  // namespace lockstep::io
