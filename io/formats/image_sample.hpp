/// \file
/// Images as samples: brought to one size, one number of channels and one depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/formats/image_file.hpp"
#include "io/formats/image_listing.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

class ImageSamples {
 public:
  /// Looks at some of the images, evenly over all: where the options leave it open they decide on size and channels,
  /// and they decide whether the samples have 8 bits a channel or more. Throws FileError.
  ImageSamples(std::vector<ListedImage> images, const ImageFolderOptions& options);

  const std::vector<ListedImage>& images() const noexcept { return images_; }
  /// x: uint8, or uint16 where images have more than 8 bits a channel; [height, width, channels].
  Field field() const;
  /// What the user should know about how the images are understood.
  const std::vector<std::string>& remarks() const noexcept { return remarks_; }

  /// The images of these indices, by so many threads, one after the other: field().bytes() each. Throws what the first
  /// that failed, in this order, threw: FileError.
  void read(std::span<const std::int64_t> indices, int threads, std::span<std::byte> out) const;

 private:
  void take_first(const Image& image);
  void decode(const std::filesystem::path& file, std::span<std::byte> out) const;
  template <class Pixel>
  void deliver(std::vector<Pixel>& pixels, std::span<std::byte> out) const;

  std::vector<ListedImage> images_;
  ImageFolderOptions options_;
  std::vector<std::string> remarks_;
  bool must_be_grey_ = false, deep_ = false;
};

}  // namespace lockstep::io
