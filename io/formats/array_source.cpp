#include "io/formats/array_source.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"
#include "io/shards/target_values.hpp"

namespace lockstep::io {
namespace {

template <std::size_t kSize>
void swap_bytes(std::span<std::byte> data) {
  for (auto at = data.begin(); at != data.end(); at += kSize) std::reverse(at, at + kSize);
}

void to_native_order(std::span<std::byte> data, std::size_t element) {
  switch (element) {
    case 2:
      return swap_bytes<2>(data);
    case 4:
      return swap_bytes<4>(data);
    case 8:
      return swap_bytes<8>(data);
    default:
      return;
  }
}

bool is_float(FileType type) noexcept { return type == FileType::float32 || type == FileType::float64; }

void read_rows(ArrayFile& file, std::span<std::byte> rows) {
  file.bytes.read(rows);
  if (file.big_endian != (std::endian::native == std::endian::big)) to_native_order(rows, size_of(file.type));
}

/// Decides by one rule for labels of one element, of any type and shape, and for masks. Reads the file to its end if
/// they are floats.
bool are_classes(ArrayFile file, const ArrayFile& samples, const ArrayLabels& labels) {
  check_shape(file);
  const std::span<const std::int64_t> shape = std::span(file.shape).subspan(1);
  const bool single = std::ranges::all_of(shape, [](std::int64_t n) { return n == 1; });
  const bool masks = labels.meaning == LabelMeaning::masks ||
                     (samples.shape.size() > 1 && are_shaped_as_masks(std::span(samples.shape).subspan(1), shape));
  if (labels.ignored && (single || !masks)) {
    throw FileError(fmt::format("{}: --ignore-label is for masks, and each sample has {} here",
                                file.bytes.path().string(), single ? "one label" : "numbers to predict"));
  }
  if ((!single && !masks) || labels.meaning == LabelMeaning::numbers) return false;
  if (!is_float(file.type)) return true;
  std::int64_t each = 1, all = 1;
  for (const std::int64_t extent : shape) each *= extent;
  all = file.shape[0] * each;
  constexpr std::int64_t kAtOnce = 65'536;
  WholeNumbers numbers(labels.ignored);
  std::vector<std::byte> rows;
  for (std::int64_t done = 0; done < all && numbers.are_whole(); done += kAtOnce) {
    rows.resize(static_cast<std::size_t>(std::min(kAtOnce, all - done)) * size_of(file.type));
    read_rows(file, rows);
    numbers.add(file.type, rows);
  }
  return labels.meaning == LabelMeaning::automatic ? numbers.are_classes() : numbers.are_whole();
}

class ArraySource final : public SampleSource {
 public:
  ArraySource(std::string format, std::vector<ArrayFile> files, bool labels_are_classes,
              std::optional<std::int64_t> ignored)
      : format_(std::move(format)),
        files_(std::move(files)),
        labels_are_classes_(labels_are_classes),
        ignored_(ignored) {
    constexpr const char* kNames[] = {"x", "y"};
    for (std::size_t f = 0; f < files_.size(); ++f) {
      check_shape(files_[f]);
      fields_.push_back({kNames[f], files_[f].type, {files_[f].shape.begin() + 1, files_[f].shape.end()}});
    }
    floats_are_classes_ = labels_are_classes_ && is_float(fields_[1].type);
    if (floats_are_classes_) fields_[1].type = FileType::int32;
    if (files_.size() == 2 && files_[0].shape[0] != files_[1].shape[0]) {
      throw FileError(fmt::format("{} has {} samples but {} has {} labels; they do not belong together",
                                  files_[0].bytes.path().string(), files_[0].shape[0], files_[1].bytes.path().string(),
                                  files_[1].shape[0]));
    }
  }

  std::vector<Field> fields() const override { return fields_; }
  std::int64_t count() const override { return files_[0].shape[0]; }
  std::string description() const override {
    std::vector<std::filesystem::path> paths;
    for (const ArrayFile& file : files_) paths.push_back(file.bytes.path());
    return describe_files(format_, paths);
  }
  bool labels_are_classes() const override { return labels_are_classes_; }
  std::optional<std::int64_t> ignored_label() const override { return ignored_; }
  std::vector<std::string> remarks() const override {
    if (!floats_are_classes_) return {};
    return {
        fmt::format("{} holds whole numbers as floats: taken as labels of classes (--regression takes them as "
                    "numbers to predict)",
                    files_[1].bytes.path().string())};
  }

  void read(std::int64_t samples, std::span<const std::span<std::byte>> buffers) override {
    if (samples < 0 || done_ + samples > count() || buffers.size() != files_.size()) {
      throw std::invalid_argument("more samples or other fields asked for than the source has");
    }
    done_ += samples;
    for (std::size_t f = 0; f < files_.size(); ++f) {
      if (buffers[f].size() != static_cast<std::size_t>(samples) * fields_[f].bytes()) {
        throw std::invalid_argument(fmt::format("the buffer of field {} has the wrong size", fields_[f].name));
      }
      std::span<std::byte> rows = buffers[f];
      if (f == 1 && floats_are_classes_) {
        labels_.resize(buffers[f].size() / sizeof(std::int32_t) * size_of(files_[f].type));
        rows = labels_;
      }
      read_rows(files_[f], rows);
      if (f == 1 && floats_are_classes_) {
        with_elements(files_[f].type, rows, [&](auto elements) {
          for (std::size_t i = 0; i < elements.size(); ++i) {
            const auto label = static_cast<std::int32_t>(elements[i]);
            std::memcpy(&buffers[f][i * sizeof label], &label, sizeof label);
          }
        });
      }
      if (done_ == count()) files_[f].bytes.expect_end();
    }
  }

 private:
  std::string format_;
  std::vector<ArrayFile> files_;
  std::vector<Field> fields_;
  bool labels_are_classes_ = false, floats_are_classes_ = false;
  std::optional<std::int64_t> ignored_;
  std::vector<std::byte> labels_;  ///< labels as in the file
  std::int64_t done_ = 0;
};

}  // namespace

void check_shape(const ArrayFile& file) {
  const std::string name = file.bytes.path().string();
  if (file.shape.empty()) throw FileError(fmt::format("{}: holds a single number, not an array of samples", name));
  if (file.shape[0] == 0) throw FileError(fmt::format("{}: holds no samples", name));
  __extension__ using Wide = __int128;
  Wide bytes = static_cast<Wide>(size_of(file.type));
  for (const std::int64_t extent : file.shape) {
    if (extent <= 0) throw FileError(fmt::format("{}: its header has an impossible extent {}", name, extent));
    bytes *= extent;
    if (bytes > (Wide{1} << 62)) throw FileError(fmt::format("{}: its header promises impossibly many bytes", name));
  }
  file.bytes.expect_room(static_cast<std::uint64_t>(bytes));
}

std::unique_ptr<SampleSource> make_array_source(std::string format, ArrayFile (*open)(const std::filesystem::path&),
                                                const std::filesystem::path& x, const std::filesystem::path& y,
                                                const ArrayLabels& labels) {
  std::vector<ArrayFile> files;
  if (!y.empty()) files.push_back(open(y));
  files.insert(files.begin(), open(x));
  const bool classes = !y.empty() && are_classes(open(y), files[0], labels);
  return std::make_unique<ArraySource>(std::move(format), std::move(files), classes, labels.ignored);
}

}  // namespace lockstep::io
