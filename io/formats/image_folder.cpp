// One sub-folder of image files per class: the layout of ImageNet and of most users' own pictures.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "io/formats/image_file.hpp"
#include "io/formats/image_listing.hpp"
#include "io/formats/image_sample.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kMaxBytesAhead = std::size_t{64} << 20;
constexpr std::size_t kImagesPerThread = 8;  ///< decoded at once, so that threads seldom wait for the slowest

class ImageFolderSource final : public SampleSource {
 public:
  ImageFolderSource(const std::filesystem::path& folder, ImageListing listing, const ImageFolderOptions& options)
      : folder_(folder),
        class_names_(std::move(listing.class_names)),
        remarks_(std::move(listing.remarks)),
        samples_(std::move(listing.images), options),
        threads_(options.threads) {
    std::ranges::copy(samples_.remarks(), std::back_inserter(remarks_));
  }

  std::vector<Field> fields() const override {
    return {samples_.field(), {"y", class_names_.size() <= 256 ? FileType::uint8 : FileType::uint16, {}}};
  }
  std::int64_t count() const override { return std::ssize(samples_.images()); }
  std::string description() const override { return describe_files("images", {folder_}); }
  bool labels_are_classes() const override { return true; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::optional<SampleId> sample_id() const override {
    std::size_t longest = 1;
    for (const ListedImage& image : samples_.images()) longest = std::max(longest, name_of(image).size());
    return SampleId{.name = "file", .bytes = static_cast<std::int64_t>(longest)};
  }
  std::vector<std::string> remarks() const override { return remarks_; }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::vector<Field> all = fields();
    const std::size_t image_bytes = all[0].bytes(), label_bytes = all[1].bytes();
    const auto wanted = static_cast<std::size_t>(samples);
    if (samples < 0 || samples > count() - done_ || buffers.size() != 3 || buffers[0].size() != wanted * image_bytes ||
        buffers[1].size() != wanted * label_bytes) {
      throw std::invalid_argument("more images asked for than the folder has, or buffers of the wrong size");
    }
    for (std::size_t i = 0; i < wanted; ++i, ++done_) {
      if (done_ >= ahead_first_ + std::ssize(ahead_) / static_cast<std::int64_t>(image_bytes)) {
        decode_ahead(image_bytes);
      }
      const auto at = static_cast<std::size_t>(done_ - ahead_first_) * image_bytes;
      const ListedImage& image = samples_.images()[static_cast<std::size_t>(done_)];
      std::memcpy(buffers[0].data() + i * image_bytes, &ahead_[at], image_bytes);
      std::memcpy(buffers[1].data() + i * label_bytes, &image.label, label_bytes);
      const std::string name = name_of(image);
      const std::span<std::byte> id = buffers[2].subspan(i * (buffers[2].size() / wanted), buffers[2].size() / wanted);
      std::memset(id.data(), 0, id.size());
      std::memcpy(id.data(), name.data(), std::min(id.size(), name.size()));
    }
  }
  void skip(std::int64_t samples) override { done_ += samples; }

 private:
  /// The image's path below the folder.
  std::string name_of(const ListedImage& image) const {
    return readable(image.file.lexically_relative(folder_).string());
  }

  void decode_ahead(std::size_t image_bytes) {
    const auto most = static_cast<std::int64_t>(std::max<std::size_t>(1, kMaxBytesAhead / image_bytes));
    const auto at_once = static_cast<std::int64_t>(static_cast<std::size_t>(threads_) * kImagesPerThread);
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min({at_once, most, count() - done_})));
    std::iota(indices.begin(), indices.end(), done_);
    ahead_.clear();
    std::vector<std::byte> decoded(indices.size() * image_bytes);
    samples_.read(indices, threads_, decoded);
    ahead_ = std::move(decoded);
    ahead_first_ = done_;
  }

  std::filesystem::path folder_;
  std::vector<std::string> class_names_, remarks_;
  ImageSamples samples_;
  int threads_ = 1;
  std::int64_t done_ = 0;
  std::vector<std::byte> ahead_;  ///< decoded images from ahead_first_ on
  std::int64_t ahead_first_ = 0;
};

}  // namespace

std::unique_ptr<SampleSource> open_image_folder(const std::filesystem::path& folder,
                                                const ImageFolderOptions& options) {
  if (options.height < 0 || options.width < 0 || (options.height == 0) != (options.width == 0)) {
    throw std::invalid_argument(fmt::format("images of {} x {} pixels", options.height, options.width));
  }
  if (!std::filesystem::is_directory(folder)) {
    throw FileError(
        fmt::format("{}: is no folder; images come in a folder with a sub-folder for each class", folder.string()));
  }
  if (!can_decode_images()) {
    throw FileError(fmt::format(
        "{}: this program was built without libjpeg and libpng; install their development packages (Debian, "
        "Ubuntu: libjpeg-dev libpng-dev) and build it again",
        folder.string()));
  }
  return std::make_unique<ImageFolderSource>(folder, list_images(folder, ImageClasses::sub_folders), options);
}

}  // namespace lockstep::io
