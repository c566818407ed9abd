#include "io/formats/array_source.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

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

/// Throws FileError for an integer that is no class number, before anything is packed.
void require_class_numbers(ArrayFile& file) {
  constexpr std::int64_t kAtOnce = 65'536;
  std::vector<std::byte> rows;
  for (std::int64_t done = 0; done < file.shape[0]; done += kAtOnce) {
    rows.resize(static_cast<std::size_t>(std::min(kAtOnce, file.shape[0] - done)) * size_of(file.type));
    read_rows(file, rows);
    with_elements(file.type, rows, [&](auto labels) {
      if constexpr (std::is_integral_v<typename decltype(labels)::value_type>) {
        for (std::size_t i = 0; i < labels.size(); ++i) {
          if (std::in_range<std::int32_t>(labels[i]) && std::cmp_greater_equal(labels[i], 0)) continue;
          throw FileError(
              fmt::format("{}: sample {} has label {}, which is no class number (--regression predicts such "
                          "numbers)",
                          file.bytes.path().string(), done + static_cast<std::int64_t>(i), labels[i]));
        }
      }
    });
  }
}

/// Decides if labels of one element (of any type and shape) or masks are classes, by the same rule. Reads labels, but
/// not masks of integers, to the end of the file.
bool are_classes(ArrayFile file, std::span<const ArrayFile> inputs, const ArrayLabels& labels) {
  check_shape(file);
  const std::span<const std::int64_t> shape = std::span(file.shape).subspan(1);
  const bool single = std::ranges::all_of(shape, [](std::int64_t n) { return n == 1; });
  const bool masks = labels.meaning == LabelMeaning::masks || std::ranges::any_of(inputs, [&](const ArrayFile& x) {
                       return x.shape.size() > 1 && are_shaped_as_masks(std::span(x.shape).subspan(1), shape);
                     });
  if (labels.ignored && (single || !masks)) {
    throw FileError(fmt::format("{}: --ignore-label is for masks, and each sample has {} here",
                                file.bytes.path().string(), single ? "one label" : "numbers to predict"));
  }
  if ((!single && !masks) || labels.meaning == LabelMeaning::numbers) return false;
  if (!is_float(file.type)) {
    if (single) require_class_numbers(file);
    return true;
  }
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
  /// `files` and `names`: in the order of SampleSource::roles(). Without roles: x, and optionally y.
  ArraySource(std::string description, std::vector<ArrayFile> files, const std::vector<std::string>& names,
              std::vector<FieldRole> roles, bool labels_are_classes, std::optional<std::int64_t> ignored)
      : description_(std::move(description)),
        files_(std::move(files)),
        roles_(std::move(roles)),
        labels_are_classes_(labels_are_classes),
        ignored_(ignored) {
    for (std::size_t f = 0; f < files_.size(); ++f) {
      check_shape(files_[f]);
      fields_.push_back({names[f], files_[f].type, {files_[f].shape.begin() + 1, files_[f].shape.end()}});
    }
    floats_are_classes_ = labels_are_classes_ && is_float(fields_[1].type);
    if (floats_are_classes_) fields_[1].type = FileType::int32;
    for (std::size_t f = 1; f < files_.size(); ++f) {
      if (files_[f].shape[0] == files_[0].shape[0]) continue;
      const bool labels = f == 1 && roles_.empty();
      throw FileError(fmt::format("{} has {} samples but {} has {}{}; they do not belong together",
                                  files_[0].bytes.path().string(), files_[0].shape[0], files_[f].bytes.path().string(),
                                  files_[f].shape[0], labels ? " labels" : ""));
    }
  }

  std::vector<Field> fields() const override { return fields_; }
  std::vector<FieldRole> roles() const override { return roles_; }
  std::int64_t count() const override { return files_[0].shape[0]; }
  std::string description() const override { return description_; }
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
  std::string description_;
  std::vector<ArrayFile> files_;
  std::vector<FieldRole> roles_;
  std::vector<Field> fields_;
  bool labels_are_classes_ = false, floats_are_classes_ = false;
  std::optional<std::int64_t> ignored_;
  std::vector<std::byte> labels_;  ///< labels as in the file
  std::int64_t done_ = 0;
};

}  // namespace

void read_rows(ArrayFile& file, std::span<std::byte> rows) {
  file.bytes.read(rows);
  if (file.big_endian != (std::endian::native == std::endian::big)) to_native_order(rows, size_of(file.type));
}

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

std::unique_ptr<SampleSource> make_array_source(std::string description, const std::vector<NamedArray>& inputs,
                                                const std::vector<NamedArray>& targets, const ArrayLabels& labels) {
  std::vector<ArrayFile> samples, files;
  for (const NamedArray& input : inputs) samples.push_back(input.open());
  const bool classes = targets.size() == 1 && are_classes(targets[0].open(), samples, labels);
  const bool several = inputs.size() > 1 || targets.size() > 1;
  std::vector<std::string> names;
  std::vector<FieldRole> roles;
  const auto take = [&](FieldRole role, std::size_t i) {
    const std::vector<NamedArray>& arrays = role == FieldRole::input ? inputs : targets;
    files.push_back(role == FieldRole::input ? std::move(samples[i]) : arrays[i].open());
    names.push_back(several ? arrays[i].name : role == FieldRole::input ? "x" : "y");
    if (several) roles.push_back(role);
  };
  take(FieldRole::input, 0);
  if (!targets.empty()) take(FieldRole::target, 0);
  for (std::size_t i = 1; i < inputs.size(); ++i) take(FieldRole::input, i);
  for (std::size_t i = 1; i < targets.size(); ++i) take(FieldRole::target, i);
  return std::make_unique<ArraySource>(std::move(description), std::move(files), names, std::move(roles), classes,
                                       classes ? labels.ignored : std::nullopt);
}

std::unique_ptr<SampleSource> make_array_source(std::string format, ArrayFile (*open)(const std::filesystem::path&),
                                                const std::filesystem::path& x, const std::filesystem::path& y,
                                                const ArrayLabels& labels) {
  const auto array = [open](const std::filesystem::path& path) {
    return NamedArray{.name = "", .open = [open, path] { return open(path); }};
  };
  std::vector<NamedArray> targets;
  std::vector<std::filesystem::path> paths{x};
  if (!y.empty()) {
    targets.push_back(array(y));
    paths.push_back(y);
  }
  return make_array_source(describe_files(format, paths), {array(x)}, targets, labels);
}

}  // namespace lockstep::io
