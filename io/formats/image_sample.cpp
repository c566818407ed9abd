#include "io/formats/image_sample.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "io/files/file_error.hpp"
#include "io/formats/image_scale.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kLookedAt = 16, kLookedAtWhereGrey = 64;  ///< number of images

template <class Pixel>
bool is_grey(const std::vector<Pixel>& pixels) {
  for (std::size_t at = 0; at < pixels.size(); at += 3) {
    if (pixels[at] != pixels[at + 1] || pixels[at] != pixels[at + 2]) return false;
  }
  return true;
}
bool is_grey(const Image& image) { return image.is_deep() ? is_grey(image.deep) : is_grey(image.pixels); }

/// Converts in place, with the weights of ITU-R BT.601; grey pixels keep their value.
template <class Pixel>
void to_grey(std::vector<Pixel>& pixels) {
  for (std::size_t i = 0; i < pixels.size() / 3; ++i) {
    const std::uint32_t sum = 299 * pixels[3 * i] + 587 * pixels[3 * i + 1] + 114 * pixels[3 * i + 2];
    pixels[i] = static_cast<Pixel>((sum + 500) / 1000);
  }
  pixels.resize(pixels.size() / 3);
}

}  // namespace

ImageSamples::ImageSamples(std::vector<ListedImage> images, const ImageFolderOptions& options)
    : images_(std::move(images)), options_(options) {
  bool grey = true;
  std::size_t looked_at = 0, turned = 0;
  const auto look = [&](std::size_t most) {
    const std::size_t count = std::min(most, images_.size());
    looked_at = turned = 0;
    for (; looked_at < count; ++looked_at) {
      const Image image = read_image(images_[looked_at * images_.size() / count].file);
      if (looked_at == 0) take_first(image);
      grey = grey && is_grey(image);
      turned += image.turned ? 1 : 0;
    }
  };
  look(kLookedAt);
  if (grey && images_.size() > kLookedAt) look(kLookedAtWhereGrey);
  if (options_.channels == 0) {
    options_.channels = grey ? 1 : 3;
    must_be_grey_ = grey;
  }
  if (turned > 0) {
    remarks_.push_back(
        fmt::format("images are turned upright, as the orientation (EXIF) in them says: {} of {} that "
                    "were looked at",
                    turned, looked_at));
  }
  if (deep_) {
    remarks_.emplace_back("images have more than 8 bits a channel: their numbers are kept as they are, in uint16");
  }
}

void ImageSamples::take_first(const Image& image) {
  deep_ = image.is_deep();
  if (options_.height > 0) return;
  options_.height = image.height;
  options_.width = image.width;
  options_.scale = false;
}

Field ImageSamples::field() const {
  return {"x", deep_ ? FileType::uint16 : FileType::uint8, {options_.height, options_.width, options_.channels}};
}

template <class Pixel>
void ImageSamples::deliver(std::vector<Pixel>& pixels, std::span<std::byte> out) const {
  if (options_.channels == 1) to_grey(pixels);
  std::memcpy(out.data(), pixels.data(), out.size());
}

void ImageSamples::decode(const std::filesystem::path& file, std::span<std::byte> out) const {
  Image image = read_image(file);
  if (must_be_grey_ && !is_grey(image)) {
    throw FileError(
        fmt::format("{}: is in colour, unlike the images that were looked at first: give --channels 3, or --channels 1 "
                    "to make all grey",
                    file.string()));
  }
  if (image.is_deep() != deep_) {
    throw FileError(fmt::format("{}: has {} 8 bits a channel, unlike {}: convert them to one depth", file.string(),
                                image.is_deep() ? "more than" : "only", images_[0].file.string()));
  }
  const bool fits = image.height == options_.height && image.width == options_.width;
  if (!fits && !options_.scale) {
    throw FileError(fmt::format("{}: is {} x {} pixels, others are {} x {}; --size N makes them equal", file.string(),
                                image.height, image.width, options_.height, options_.width));
  }
  if (!fits) {
    const ImageRegion whole{.height = static_cast<double>(image.height), .width = static_cast<double>(image.width)};
    const ImageRegion region = options_.crop ? centre_region(image, options_.height, options_.width) : whole;
    image = scale(image, region, options_.height, options_.width);
  }
  if (deep_) {
    deliver(image.deep, out);
  } else {
    deliver(image.pixels, out);
  }
}

void ImageSamples::read(std::span<const std::int64_t> indices, int threads, std::span<std::byte> out) const {
  const std::size_t bytes = field().bytes();
  std::vector<std::exception_ptr> errors(indices.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < indices.size(); i = next++) {
      try {
        decode(images_[static_cast<std::size_t>(indices[i])].file, out.subspan(i * bytes, bytes));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    const auto wanted = std::min(static_cast<std::size_t>(std::max(1, threads)), indices.size());
    for (std::size_t t = 1; t < wanted; ++t) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace lockstep::io
