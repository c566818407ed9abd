// The only file that uses libwebp.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <webp/decode.h>

#include "io/files/file_error.hpp"
#include "io/formats/image_file.hpp"

namespace lockstep::io {
namespace {

/// Orientation in the chunk EXIF of the RIFF container: name, length (little-endian), data, a padding byte if the
/// length is odd.
int orientation_of(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kContainerBytes = 12, kChunkHead = 8;
  constexpr std::string_view kPrefix("Exif\0\0", 6);  // some programs write the prefix of JPEG here, too
  for (std::size_t at = kContainerBytes; at + kChunkHead <= bytes.size();) {
    const std::uint8_t* head = bytes.data() + at;
    const std::size_t length =
        head[4] | std::size_t{head[5]} << 8 | std::size_t{head[6]} << 16 | std::size_t{head[7]} << 24;
    const std::size_t left = bytes.size() - at - kChunkHead;
    std::span<const std::uint8_t> data = bytes.subspan(at + kChunkHead, std::min(length, left));
    if (std::memcmp(head, "EXIF", 4) == 0) {
      const bool prefixed =
          data.size() > kPrefix.size() && std::memcmp(data.data(), kPrefix.data(), kPrefix.size()) == 0;
      return exif_orientation(prefixed ? data.subspan(kPrefix.size()) : data);
    }
    at += kChunkHead + length + length % 2;
  }
  return 1;
}

Image read_webp(const std::filesystem::path& file, std::span<const std::uint8_t> bytes) {
  const auto damaged = [&] {
    return FileError(
        fmt::format("{}: is damaged: libwebp cannot decode it; copy it again, or remove it", file.string()));
  };
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes.data(), bytes.size(), &features) != VP8_STATUS_OK) throw damaged();
  if (features.has_animation != 0) {
    throw FileError(fmt::format("{}: holds several images, one after the other: make a file of each", file.string()));
  }
  Image image{.height = features.height, .width = features.width};
  require_believable_area(file, static_cast<std::uint64_t>(image.height), static_cast<std::uint64_t>(image.width),
                          bytes.size());
  image.pixels.resize(static_cast<std::size_t>(image.elements()));
  if (WebPDecodeRGBInto(bytes.data(), bytes.size(), image.pixels.data(), image.pixels.size(), 3 * features.width) ==
      nullptr) {
    throw damaged();
  }
  return upright(std::move(image), orientation_of(bytes));
}

}  // namespace

ImageDecoder webp_decoder() noexcept { return read_webp; }

}  // namespace lockstep::io
