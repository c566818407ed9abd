/// \file
/// Images as samples: converts them to one size, one number of channels and one depth.
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
  /// Inspects some of the images, evenly spread. They decide if samples have more than 8 bits per channel, and the size
  /// and channels that the options leave open. Throws FileError.
  ImageSamples(std::vector<ListedImage> images, const ImageFolderOptions& options);

  const std::vector<ListedImage>& images() const noexcept { return images_; }
  /// x: uint8, or uint16 if images have more than 8 bits per channel; [height, width, channels].
  Field field() const;
  /// Remarks for users about the interpretation of the images.
  const std::vector<std::string>& remarks() const noexcept { return remarks_; }

  /// Reads the images of these indices in order with this number of threads: field().bytes() each. Throws the FileError
  /// of the first one, in this order, that failed.
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
