// One sub-folder per class, image files in it: the layout of ImageNet and of most people's own pictures.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "io/formats/image_file.hpp"
#include "io/formats/image_scale.hpp"
#include "io/shards/sample_source.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

constexpr std::size_t kMostBytesAhead = std::size_t{64} << 20;
constexpr std::size_t kImagesPerThread = 8;  ///< decoded at once: so that threads seldom wait for the slowest

bool is_image_name(const std::filesystem::path& file) {
  std::string extension = file.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

bool is_grey(const Image& image) {
  for (std::size_t at = 0; at < image.pixels.size(); at += 3) {
    if (image.pixels[at] != image.pixels[at + 1] || image.pixels[at] != image.pixels[at + 2]) return false;
  }
  return true;
}

/// The weights are those of ITU-R BT.601; of a grey pixel nothing changes.
std::vector<std::uint8_t> to_grey(const std::vector<std::uint8_t>& pixels) {
  std::vector<std::uint8_t> grey(pixels.size() / 3);
  for (std::size_t i = 0; i < grey.size(); ++i) {
    const std::uint32_t sum = 299 * pixels[3 * i] + 587 * pixels[3 * i + 1] + 114 * pixels[3 * i + 2];
    grey[i] = static_cast<std::uint8_t>((sum + 500) / 1000);
  }
  return grey;
}

struct Entry {
  std::filesystem::path file;
  std::uint16_t label = 0;
};

class ImageFolderSource final : public SampleSource {
 public:
  ImageFolderSource(std::filesystem::path folder, const ImageFolderOptions& options)
      : folder_(std::move(folder)), options_(options) {
    if (!can_decode_images()) static_cast<void>(read_image(folder_));  // says what is missing
    list();
    if (options_.height == 0) {
      const Image first = read_image(entries_[0].file);
      options_.height = first.height;
      options_.width = first.width;
      same_size_ = true;
    }
    if (options_.channels == 0) {
      options_.channels = looks_grey() ? 1 : 3;
      must_be_grey_ = options_.channels == 1;
    }
    threads_ = static_cast<std::size_t>(
        options_.threads > 0 ? options_.threads : std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  }

  std::vector<Field> fields() const override {
    return {{"x", FileType::uint8, {options_.height, options_.width, options_.channels}},
            {"y", class_names_.size() <= 256 ? FileType::uint8 : FileType::uint16, {}}};
  }
  std::int64_t count() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::string description() const override { return describe_files("images", {folder_}); }
  bool labels_are_classes() const override { return true; }
  std::vector<std::string> class_names() const override { return class_names_; }
  std::optional<SampleId> sample_id() const override {
    std::size_t longest = 1;
    for (const Entry& entry : entries_) longest = std::max(longest, name_of(entry).size());
    return SampleId{.name = "file", .bytes = static_cast<std::int64_t>(longest)};
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    const std::size_t label_bytes = size_of(fields()[1].type);
    const auto wanted = static_cast<std::size_t>(samples);
    if (samples < 0 || wanted > entries_.size() - done_ || buffers.size() != 3 ||
        buffers[0].size() != wanted * image_bytes() || buffers[1].size() != wanted * label_bytes) {
      throw std::invalid_argument("more images asked for than the folder has, or buffers of the wrong size");
    }
    for (std::size_t i = 0; i < wanted; ++i, ++done_) {
      if (done_ >= ahead_first_ + ahead_.size()) decode_ahead();
      std::memcpy(buffers[0].data() + i * image_bytes(), ahead_[done_ - ahead_first_].data(), image_bytes());
      std::memcpy(buffers[1].data() + i * label_bytes, &entries_[done_].label, label_bytes);
      const std::string name = name_of(entries_[done_]);
      const std::span<std::byte> id = buffers[2].subspan(i * (buffers[2].size() / wanted), buffers[2].size() / wanted);
      std::memset(id.data(), 0, id.size());
      std::memcpy(id.data(), name.data(), std::min(id.size(), name.size()));
    }
  }
  void skip(std::int64_t samples) override { done_ += static_cast<std::size_t>(samples); }

 private:
  /// Its path below the folder.
  std::string name_of(const Entry& entry) const { return readable(entry.file.lexically_relative(folder_).string()); }
  std::size_t image_bytes() const noexcept {
    return static_cast<std::size_t>(options_.height * options_.width * options_.channels);
  }

  /// Of some images, evenly over the folder.
  bool looks_grey() const {
    constexpr std::size_t kLookedAt = 64;
    const std::size_t count = std::min(kLookedAt, entries_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (!is_grey(read_image(entries_[i * entries_.size() / count].file))) return false;
    }
    return true;
  }

  void list() {
    std::vector<std::filesystem::path> classes;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) classes.push_back(entry.path());
    }
    std::sort(classes.begin(), classes.end());
    if (classes.size() > 65536) throw FileError(fmt::format("{}: has more than 65536 sub-folders", folder_.string()));
    for (const std::filesystem::path& path : classes) {
      const std::size_t first = entries_.size();
      for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (!entry.is_regular_file() || !is_image_name(entry.path())) continue;
        entries_.push_back({entry.path(), static_cast<std::uint16_t>(class_names_.size())});
      }
      std::sort(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.end(),
                [](const Entry& a, const Entry& b) { return a.file < b.file; });
      class_names_.push_back(path.filename().string());
      if (first_not_utf8(class_names_.back())) {
        throw FileError(
            fmt::format("{}: the name of this folder, {}, is no UTF-8, as the names of classes are; rename "
                        "it (convmv -f LATIN1 -t UTF-8, or from what it is in)",
                        path.string(), readable(class_names_.back())));
      }
    }
    if (entries_.empty()) {
      throw FileError(
          fmt::format("{}: holds no images; expected a sub-folder for each class with .jpg, .jpeg or .png "
                      "files in it",
                      folder_.string()));
    }
  }

  std::vector<std::uint8_t> decode(const std::filesystem::path& file) const {
    std::vector<std::uint8_t> pixels = decode_colours(file);
    return options_.channels == 1 ? to_grey(pixels) : pixels;
  }

  std::vector<std::uint8_t> decode_colours(const std::filesystem::path& file) const {
    Image image = read_image(file);
    if (must_be_grey_ && !is_grey(image)) {
      throw FileError(
          fmt::format("{}: is in colour, unlike the images that were looked at first: give --channels 3, or "
                      "--channels 1 to make all grey",
                      file.string()));
    }
    if (image.height == options_.height && image.width == options_.width) return std::move(image.pixels);
    if (same_size_) {
      throw FileError(fmt::format("{}: is {} x {} pixels, {} is {} x {}; --size N makes them equal", file.string(),
                                  image.height, image.width, entries_[0].file.string(), options_.height,
                                  options_.width));
    }
    const ImageRegion whole{.height = static_cast<double>(image.height), .width = static_cast<double>(image.width)};
    const ImageRegion region = options_.crop ? centre_region(image, options_.height, options_.width) : whole;
    return scale(image, region, options_.height, options_.width).pixels;
  }

  /// The next images by all threads. Throws what the first that failed, in the order of the files, threw.
  void decode_ahead() {
    const std::size_t most = std::max<std::size_t>(1, kMostBytesAhead / image_bytes());
    const std::size_t count = std::min({threads_ * kImagesPerThread, most, entries_.size() - done_});
    ahead_first_ = done_;
    ahead_.assign(count, {});
    std::vector<std::exception_ptr> errors(count);
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++) {
        try {
          ahead_[i] = decode(entries_[ahead_first_ + i].file);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> others;
      for (std::size_t t = 1; t < std::min(threads_, count); ++t) others.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& error : errors) {
      if (!error) continue;
      ahead_.clear();
      std::rethrow_exception(error);
    }
  }

  std::filesystem::path folder_;
  ImageFolderOptions options_;
  std::vector<Entry> entries_;
  std::vector<std::string> class_names_;
  bool same_size_ = false, must_be_grey_ = false;
  std::size_t threads_ = 1;
  std::size_t done_ = 0;
  std::vector<std::vector<std::uint8_t>> ahead_;  ///< decoded images from ahead_first_ on
  std::size_t ahead_first_ = 0;
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
  return std::make_unique<ImageFolderSource>(folder, options);
}

}  // namespace lockstep::io
