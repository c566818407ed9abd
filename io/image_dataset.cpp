#include "io/image_dataset.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/datasets/hdf5_listing.hpp"
#include "io/datasets/shard_set.hpp"
#include "io/files/checksum.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/file_error.hpp"
#include "io/formats/image_file.hpp"
#include "io/formats/image_listing.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

ImageFolderOptions options_for(const std::filesystem::path& folder, const Field& learnt) {
  std::vector<std::int64_t> shape = learnt.sample_shape;
  if (shape.size() == 2) shape.push_back(1);
  const bool numbers = learnt.type == FileType::uint8 || learnt.type == FileType::uint16;
  if (!numbers || shape.size() != 3 || (shape[2] != 1 && shape[2] != 3)) {
    throw FileError(fmt::format(
        "{}: holds images, and the network was trained on samples of {} [{}]: pack the images as its data were packed",
        folder.string(), name_of(learnt.type), fmt::join(learnt.sample_shape, ", ")));
  }
  // One thread per rank, because ranks have their own cores.
  return {.height = shape[0], .width = shape[1], .crop = shape[0] == shape[1], .channels = shape[2]};
}

}  // namespace

bool is_image_folder(const std::filesystem::path& folder) {
  std::error_code unknown;
  if (!std::filesystem::is_directory(folder, unknown) || is_packed(folder)) return false;
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (has_hdf5_name(entry.path())) return false;
  }
  for (auto at = std::filesystem::recursive_directory_iterator(
           folder, std::filesystem::directory_options::skip_permission_denied);
       at != std::filesystem::end(at) && !found; ++at) {
    found = at->is_regular_file(unknown) && image_format_of_name(at->path()).has_value();
  }
  return found;
}

ImageDataset::ImageDataset(const std::filesystem::path& folder, const Field& learnt) : folder_(folder) {
  const ImageFolderOptions options = options_for(folder, learnt);
  ImageListing listing = list_images(folder, ImageClasses::none);
  warnings_ = std::move(listing.remarks);
  samples_ = std::make_unique<ImageSamples>(std::move(listing.images), options);
  std::ranges::copy(samples_->remarks(), std::back_inserter(warnings_));
  if (samples_->field().type != learnt.type) {
    throw FileError(fmt::format("{}: its images are {}, and the network was trained on {}: convert them to that depth",
                                folder.string(), name_of(samples_->field().type), name_of(learnt.type)));
  }
  info_.samples = std::ssize(samples_->images());
  info_.x = {"x", learnt.type, learnt.sample_shape};
  info_.labels_are_classes = false;
  if (learnt.type == FileType::uint8) info_.value_max = 255;
  info_.source = describe_files("images", {folder});
  std::size_t longest = 1;
  for (const ListedImage& image : samples_->images()) longest = std::max(longest, path_below(image).size());
  info_.id = SampleId{.name = "file", .bytes = static_cast<std::int64_t>(longest)};
}

std::string ImageDataset::path_below(const ListedImage& image) const {
  return readable(image.file.lexically_relative(folder_).string());
}

void ImageDataset::read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const {
  const auto bytes = static_cast<std::size_t>(info_.id->bytes);
  std::fill(ids.begin(), ids.end(), std::byte{0});
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::string name = path_below(samples_->images()[static_cast<std::size_t>(samples[i])]);
    std::memcpy(&ids[i * bytes], name.data(), std::min(bytes, name.size()));
  }
}

std::string ImageDataset::fingerprint() const {
  std::string names;
  for (const ListedImage& image : samples_->images()) {
    std::error_code unknown;
    names += fmt::format("{} {}\n", image.file.lexically_relative(folder_).string(),
                         std::filesystem::file_size(image.file, unknown));
  }
  return fmt::format("{} images, {}", info_.samples, to_hex(checksum(std::as_bytes(std::span(names)))));
}

FileType ImageDataset::x_type() const noexcept {
  return info_.x.type == FileType::uint8 ? FileType::uint8 : FileType::float32;
}

std::size_t ImageDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info_.x.elements()) * size_of(x_type());
}

void ImageDataset::read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
                        std::span<std::byte> y) const {
  if (x.empty() && y.empty()) return;
  if (x.size() != samples.size() * x_bytes() || !y.empty()) {
    throw std::invalid_argument("the buffers of ImageDataset::read have the wrong size");
  }
  if (info_.x.type == x_type()) return samples_->read(samples, 1, x);
  std::vector<std::byte> stored(samples.size() * info_.x.bytes());
  samples_->read(samples, 1, stored);
  with_elements(info_.x.type, stored, [&](auto elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto value = static_cast<float>(elements[i]);
      std::memcpy(&x[i * sizeof value], &value, sizeof value);
    }
  });
}

}  // namespace lockstep::io
