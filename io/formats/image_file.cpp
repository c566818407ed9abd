#include "io/formats/image_file.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {
namespace {

struct ImageFormat {
  std::string_view name;
  std::string_view magic;
  std::size_t magic_at;
  ImageDecoder (*decoder)() noexcept;  ///< nullptr: no decoder
  std::string_view library;
};

constexpr std::size_t kHeadBytes = 16;
constexpr std::array<ImageFormat, 14> kFormats = {{
    {"JPEG", "\xFF\xD8\xFF", 0, jpeg_decoder, "libjpeg and libpng (Debian, Ubuntu: libjpeg-dev libpng-dev)"},
    {"PNG", "\x89PNG\r\n\x1A\n", 0, png_decoder, "libjpeg and libpng (Debian, Ubuntu: libjpeg-dev libpng-dev)"},
    {"WebP", "WEBP", 8, webp_decoder, "libwebp (Debian, Ubuntu: libwebp-dev)"},
    {"TIFF", std::string_view("II*\0", 4), 0, nullptr, ""},
    {"TIFF", std::string_view("MM\0*", 4), 0, nullptr, ""},
    {"GIF", "GIF8", 0, nullptr, ""},
    {"BMP", "BM", 0, nullptr, ""},
    {"HEIF", "ftyphei", 4, nullptr, ""},
    {"HEIF", "ftypmif1", 4, nullptr, ""},
    {"AVIF", "ftypavif", 4, nullptr, ""},
    {"JPEG XL", "\xFF\x0A", 0, nullptr, ""},
    {"JPEG 2000", std::string_view("\0\0\0\x0CjP  ", 8), 0, nullptr, ""},
    {"DDS", "DDS ", 0, nullptr, ""},
    {"Photoshop", "8BPS", 0, nullptr, ""},
}};

struct NameEnding {
  std::string_view ending, format;
};
constexpr std::array<NameEnding, 25> kEndings = {{
    {".jpg", "JPEG"},   {".jpeg", "JPEG"},  {".jpe", "JPEG"},      {".jfif", "JPEG"},     {".png", "PNG"},
    {".webp", "WebP"},  {".tif", "TIFF"},   {".tiff", "TIFF"},     {".gif", "GIF"},       {".bmp", "BMP"},
    {".dib", "BMP"},    {".heic", "HEIF"},  {".heif", "HEIF"},     {".avif", "AVIF"},     {".jxl", "JPEG XL"},
    {".pgm", "Netpbm"}, {".ppm", "Netpbm"}, {".pbm", "Netpbm"},    {".pnm", "Netpbm"},    {".tga", "TGA"},
    {".ico", "icon"},   {".svg", "SVG"},    {".jp2", "JPEG 2000"}, {".psd", "Photoshop"}, {".dcm", "DICOM"},
}};

bool holds(std::span<const std::uint8_t> bytes, const ImageFormat& format) {
  return bytes.size() >= format.magic_at + format.magic.size() &&
         std::memcmp(bytes.data() + format.magic_at, format.magic.data(), format.magic.size()) == 0;
}

const ImageFormat* format_of(std::span<const std::uint8_t> bytes) {
  const auto found =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const ImageFormat& format) { return holds(bytes, format); });
  return found == kFormats.end() ? nullptr : &*found;
}

std::vector<std::uint8_t> read_bytes(const std::filesystem::path& file) {
  ByteReader reader(file);
  std::vector<std::uint8_t> bytes(std::filesystem::file_size(file));
  reader.read(std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Reads numbers of an EXIF block in its byte order; 0 beyond its end.
struct ExifBlock {
  std::span<const std::uint8_t> bytes;
  bool big_endian = false;

  std::uint32_t number(std::size_t at, std::size_t size) const noexcept {
    std::uint32_t value = 0;
    if (at > bytes.size() || size > bytes.size() - at) return 0;
    for (std::size_t i = 0; i < size; ++i) value = value << 8 | bytes[at + (big_endian ? i : size - 1 - i)];
    return value;
  }
};

template <class Pixel>
std::vector<Pixel> turned(const std::vector<Pixel>& in, std::int64_t height, std::int64_t width, int orientation) {
  if (in.empty()) return {};
  const bool lying = orientation >= 5;
  const std::int64_t rows = lying ? width : height, columns = lying ? height : width;
  std::vector<Pixel> out(in.size());
  auto to = out.begin();
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      std::int64_t y = lying ? column : row, x = lying ? row : column;
      if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) y = height - 1 - y;
      if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) x = width - 1 - x;
      to = std::copy_n(in.begin() + 3 * (y * width + x), 3, to);
    }
  }
  return out;
}

}  // namespace

Image read_image(const std::filesystem::path& file) {
  const std::vector<std::uint8_t> bytes = read_bytes(file);
  const ImageFormat* format = format_of(bytes);
  if (format == nullptr) {
    throw FileError(fmt::format("{}: is no image of a known format, whatever its name says", file.string()));
  }
  if (format->decoder == nullptr) {
    throw FileError(fmt::format("{}: is a {} image, which this program does not read: convert it to PNG", file.string(),
                                format->name));
  }
  const ImageDecoder decode = format->decoder();
  if (decode == nullptr) {
    throw FileError(
        fmt::format("{}: is a {} image, and this program was built without {}: install the development "
                    "files and build it again, or convert it",
                    file.string(), format->name, format->library));
  }
  return decode(file, bytes);
}

std::string image_format(const std::filesystem::path& file) {
  std::array<char, kHeadBytes> head{};
  std::ifstream stream(file, std::ios::binary);
  stream.read(head.data(), head.size());
  const auto read = static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount()));
  const ImageFormat* format = format_of({reinterpret_cast<const std::uint8_t*>(head.data()), read});
  return format == nullptr ? "" : std::string(format->name);
}

std::optional<std::string_view> image_format_of_name(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  for (const NameEnding& known : kEndings) {
    if (extension == known.ending) return known.format;
  }
  return std::nullopt;
}

bool can_decode(std::string_view format) noexcept {
  return std::any_of(kFormats.begin(), kFormats.end(), [&](const ImageFormat& known) {
    return known.name == format && known.decoder != nullptr && known.decoder() != nullptr;
  });
}

bool can_decode_images() noexcept { return can_decode("JPEG"); }

void require_believable_area(const std::filesystem::path& file, std::uint64_t height, std::uint64_t width,
                             std::uint64_t file_bytes) {
  /// Limit for each side; more means a damaged header.
  constexpr std::uint64_t kMaxPixels = 1U << 16;
  /// Area that is accepted for any file size: 201 MB of memory. A single-coloured image has few bytes.
  constexpr std::uint64_t kSmallArea = std::uint64_t{1} << 26;
  /// Larger images need at least one byte per this many pixels: photographs have one per ten.
  constexpr std::uint64_t kMaxPixelsPerByte = 64;
  if (height == 0 || width == 0 || height > kMaxPixels || width > kMaxPixels) {
    throw FileError(fmt::format("{}: is damaged: an image of {} x {} pixels", file.string(), height, width));
  }
  if (height * width <= std::max(kSmallArea, kMaxPixelsPerByte * file_bytes)) return;
  throw FileError(
      fmt::format("{}: is damaged: its header promises {} x {} pixels, which {} bytes cannot hold; copy it again, or "
                  "remove it",
                  file.string(), height, width, file_bytes));
}

int exif_orientation(std::span<const std::uint8_t> bytes) noexcept {
  constexpr std::uint32_t kOrientation = 0x0112, kShort = 3;
  constexpr std::size_t kEntryBytes = 12;
  if (bytes.size() < 8) return 1;
  const ExifBlock block{.bytes = bytes, .big_endian = bytes[0] == 'M'};
  if (bytes[0] != bytes[1] || (bytes[0] != 'I' && bytes[0] != 'M') || block.number(2, 2) != 42) return 1;
  const std::size_t directory = block.number(4, 4);
  const std::uint32_t entries = block.number(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > bytes.size()) return 1;
    if (block.number(entry, 2) != kOrientation || block.number(entry + 2, 2) != kShort) continue;
    const std::uint32_t value = block.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  image.pixels = turned(image.pixels, image.height, image.width, orientation);
  image.deep = turned(image.deep, image.height, image.width, orientation);
  if (orientation >= 5) std::swap(image.height, image.width);
  image.turned = true;
  return image;
}

}  // namespace lockstep::io
