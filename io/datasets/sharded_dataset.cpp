#include "io/datasets/sharded_dataset.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/datasets/shard_set.hpp"
#include "io/files/checksum.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/plural.hpp"
#include "io/shards/shard_manifest.hpp"
#include "io/shards/target_values.hpp"

namespace lockstep::io {
namespace {

/// Labels up to this size are held in memory: one read less per sample.
constexpr std::uint64_t kResidentLabelBytes = std::uint64_t{16} << 20;

/// Position of the first element that is NaN or infinite. By the exponent's bits: one compare and or per element, which
/// vectorises, in spite of any floating-point flags.
template <class Float, class Bits>
std::optional<std::size_t> first_not_finite(std::span<const std::byte> data, Bits exponent) {
  const std::size_t count = data.size() / sizeof(Float);
  Bits found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Bits bits = 0;
    std::memcpy(&bits, data.data() + i * sizeof(Float), sizeof(Float));
    found |= static_cast<Bits>((bits & exponent) == exponent);
  }
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    Float value = 0;
    std::memcpy(&value, data.data() + i * sizeof(Float), sizeof(Float));
    if (!std::isfinite(value)) return i;
  }
}

std::optional<std::size_t> first_not_finite(FileType type, std::span<const std::byte> data) {
  if (type == FileType::float32) return first_not_finite<float>(data, std::uint32_t{0x7F800000});
  if (type == FileType::float64) return first_not_finite<double>(data, std::uint64_t{0x7FF0000000000000});
  return std::nullopt;
}

void to_float32(FileType type, std::span<const std::byte> raw, std::byte* out) {
  with_elements(type, raw, [&](auto elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto value = static_cast<float>(elements[i]);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  });
}

}  // namespace

struct ShardedDataset::Files {
  DatasetInfo info;
  std::optional<TargetValues> known_targets;  ///< as the manifest says it
  std::shared_ptr<ShardSet> owned;
  ShardSet& set;
  /// Of a shard, as stored; empty: not read yet.
  struct ShardLabels {
    std::mutex loading;
    std::vector<std::byte> stored;
  };
  mutable std::deque<ShardLabels> labels;
  bool holds_labels = false;  ///< in memory, for good
  Field stored_y;             ///< info.y, but for one-hot labels, which are delivered as numbers
  bool one_hot = false, channels_first = false;

  bool has_y() const noexcept { return !info.y.name.empty(); }

  explicit Files(const DatasetOptions& options)
      : owned(is_packed(options.path) ? open_packed(options)
                                      : std::make_shared<ShardSet>(options.path, options.x, options.y, options.deadline,
                                                                   options.unlabelled)),
        set(*owned),
        labels(set.size()) {
    if (!is_packed(options.path)) describe_without_manifest(options.path);
    stored_y = info.y;
    if (has_y() && !info.labels_are_classes) understand_targets(options.one_hot);
    arrange(options.layout);
    refuse_masks();
    load_labels();
  }

  void arrange(Layout layout) {
    std::vector<std::int64_t>& shape = info.x.sample_shape;
    if (shape.size() != 3 || layout == Layout::channels_last) return;
    const std::int64_t first = shape[0];
    const bool looks_so = (first == 1 || first == 3 || first == 4) && shape[1] > 4 && shape[2] > 4;
    if (!looks_so && layout == Layout::automatic) return;
    channels_first = true;
    const std::vector<std::int64_t> stored = shape;
    std::rotate(shape.begin(), shape.begin() + 1, shape.end());
    if (layout == Layout::channels_first) return;
    set.warnings().push_back(
        fmt::format("{}: samples of [{}] are taken as channels first, {} x {} pixels of {} "
                    "(--layout says otherwise)",
                    path_of(0), fmt::join(stored, ", "), shape[0], shape[1],
                    shape[2] == 1 ? "1 channel" : fmt::format("{} channels", shape[2])));
  }

  /// A picture as the answer to a picture.
  void refuse_masks() const {
    if (info.x.sample_shape.size() < 2 || info.y.sample_shape.size() < 2) return;
    throw FileError(fmt::format("{}: per-pixel labels are not supported yet: a sample of [{}] has labels of [{}]",
                                path_of(0), fmt::join(info.x.sample_shape, ", "),
                                fmt::join(info.y.sample_shape, ", ")));
  }

  std::shared_ptr<ShardSet> open_packed(const DatasetOptions& options) {
    const ShardManifest manifest = [&] {
      if (options.shared) return options.shared->manifest();
      const IoDeadline::Operation reading(options.deadline, IoDeadline::Kind::reading, options.path);
      return read_manifest(options.path);
    }();
    if (manifest.tokens) {
      throw FileError(fmt::format("{}: is a corpus of tokens, not a set of samples; language models read it",
                                  options.path.string()));
    }
    if (options.x != "x" || options.y != "y") {
      throw FileError(fmt::format("{}: was made by lockstep pack, its datasets are x and y; leave --x and --y away",
                                  options.path.string()));
    }
    info.samples = manifest.samples;
    info.x = manifest.fields[0];
    if (manifest.fields.size() > 1) info.y = manifest.fields[1];
    info.labels_are_classes = manifest.labels == Labels::classes;
    info.classes = manifest.classes;
    info.class_names = manifest.class_names;
    info.value_min = manifest.value_min;
    info.value_max = manifest.value_max;
    info.mean = manifest.mean;
    info.standard_deviation = manifest.standard_deviation;
    info.has_statistics = true;
    info.source = manifest.source;
    known_targets = manifest.target_values;
    if (options.shared) return options.shared->set();
    return std::make_shared<ShardSet>(options.path, manifest, options.deadline);
  }

  void describe_without_manifest(const std::filesystem::path& path) {
    const ShardFile& first = set.file(0);
    info.samples = set.rows();
    info.x = first.fields()[0].field;
    if (first.fields().size() > 1) info.y = first.fields()[1].field;
    info.source = path.filename().string();
    if (const auto& attributes = first.attributes()) {  // shards without their manifest
      info.labels_are_classes = attributes->labels == Labels::classes;
      info.classes = attributes->classes;
      info.class_names = attributes->class_names;
      info.value_min = attributes->value_min;
      info.value_max = attributes->value_max;
      if (info.classes < 0 || !plausible_classes(info.classes, info.samples)) {
        throw FileError(
            fmt::format("{}: calls itself a lockstep shard of {} classes, and there are {} samples; pack "
                        "again",
                        path_of(0), info.classes, info.samples));
      }
    } else {
      info.labels_are_classes =
          has_y() && info.y.elements() == 1 && info.y.type != FileType::float32 && info.y.type != FileType::float64;
      if (info.x.type == FileType::uint8) info.value_max = 255;
      if (info.x.type == FileType::uint16) info.value_max = 65535;
      if (info.labels_are_classes) count_classes();
      if (!set.text_classes().empty()) info.class_names = set.text_classes();
    }
  }

  TargetValues look_at_targets() const {
    TargetPattern pattern(info.y.elements());
    for (std::size_t shard = 0; shard < set.size() && pattern.is_binary(); ++shard) {
      set.stream(shard, 1, [&](std::int64_t, std::span<const std::byte> block) { pattern.add(info.y.type, block); });
    }
    return pattern.values();
  }

  /// Rows of zeros with a single 1 are classes, rows of zeros and ones are labels.
  void understand_targets(OneHot wanted) {
    if (info.y.sample_shape.size() > 1) return;
    const TargetValues values = known_targets ? *known_targets : look_at_targets();
    info.targets_are_binary = values != TargetValues::any;
    if (values == TargetValues::any || wanted == OneHot::numbers || info.y.sample_shape.empty()) return;
    const std::int64_t columns = info.y.elements();
    one_hot = values == TargetValues::one_hot;
    if (one_hot) {
      info.y = {info.y.name, FileType::int32, {}};
      info.labels_are_classes = true;
      info.targets_are_binary = false;
      info.classes = columns;
    }
    if (known_targets || columns < 2) return;
    const std::string where = fmt::format("{}: {}", path_of(0), set.file(0).fields()[1].dataset);
    set.warnings().push_back(
        one_hot ? fmt::format("{} holds one 1 in each row: taken as labels of {}", where, count_of(columns, "class"))
                : fmt::format("{} holds rows of 0 and 1: taken as {} labels, any of which a sample may have (--loss "
                              "mean-squared-error takes them as numbers)",
                              where, columns));
  }

  void count_classes() {
    for (std::size_t shard = 0; shard < set.size(); ++shard) {
      set.stream(shard, 1, [&](std::int64_t first, std::span<const std::byte> block) {
        with_elements(info.y.type, block, [&](auto elements) {
          for (std::size_t i = 0; i < elements.size(); ++i) {
            const auto label = static_cast<std::int64_t>(elements[i]);
            if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
              throw FileError(fmt::format("{}: sample {} has label {}, which is no class number", path_of(shard),
                                          first + static_cast<std::int64_t>(i), label));
            }
            info.classes = std::max(info.classes, label + 1);
            if (!plausible_classes(info.classes, info.samples)) {
              throw FileError(
                  fmt::format("{}: sample {} has label {}, which {} not explain: it is damaged, "
                              "or {} holds no class numbers (numbers to predict are floats)",
                              path_of(shard), first + static_cast<std::int64_t>(i), label,
                              info.samples == 1 ? "1 sample does" : fmt::format("{} samples do", info.samples),
                              set.file(shard).fields()[1].dataset));
            }
          }
        });
      });
    }
  }

  /// Where all files are open anyway, at once.
  void load_labels() {
    holds_labels = has_y() && stored_y.bytes() * static_cast<std::uint64_t>(info.samples) <= kResidentLabelBytes;
    if (!holds_labels || !set.all_open()) return;
    for (std::size_t s = 0; s < set.size(); ++s) labels_of(s);
  }

  std::span<const std::byte> labels_of(std::size_t shard) const {
    ShardLabels& own = labels[shard];
    const std::lock_guard lock(own.loading);
    if (own.stored.empty() && set.shards()[shard].count > 0) {
      std::vector<std::byte> read(stored_y.bytes() * static_cast<std::size_t>(set.shards()[shard].count));
      set.file(shard).read_rows(1, 0, set.shards()[shard].count, read);
      own.stored = std::move(read);
    }
    return own.stored;
  }

  std::string path_of(std::size_t shard) const { return set.path(shard).string(); }

  [[noreturn]] void not_finite(std::size_t shard, std::int64_t row, std::string_view field) const {
    throw FileError(fmt::format("{}: sample {} holds NaN or infinity in {}; clean the data and pack it again",
                                path_of(shard), row, field));
  }

  void read_x(std::size_t shard, std::int64_t first, std::int64_t rows, FileType type, std::span<std::byte> out,
              std::vector<std::byte>& scratch) const {
    if (type == info.x.type && !channels_first) {
      set.read(shard, 0, first, rows, out);
    } else if (type == info.x.type) {
      scratch.resize(info.x.bytes() * static_cast<std::size_t>(rows));
      set.read(shard, 0, first, rows, scratch);
      to_channels_last(scratch, size_of(type), out);
    } else if (channels_first) {
      scratch.resize(info.x.bytes() * static_cast<std::size_t>(rows));
      set.read(shard, 0, first, rows, scratch);
      std::vector<std::byte> floats(out.size());
      to_float32(info.x.type, scratch, floats.data());
      to_channels_last(floats, sizeof(float), out);
    } else {
      scratch.resize(info.x.bytes() * static_cast<std::size_t>(rows));
      set.read(shard, 0, first, rows, scratch);
      to_float32(info.x.type, scratch, out.data());
    }
    if (const auto bad = first_not_finite(type, out)) {
      not_finite(shard, first + static_cast<std::int64_t>(*bad) / info.x.elements(), "x");
    }
  }

  void to_channels_last(std::span<const std::byte> samples, std::size_t element, std::span<std::byte> out) const {
    const auto channels = static_cast<std::size_t>(info.x.sample_shape[2]);
    const auto pixels = static_cast<std::size_t>(info.x.elements()) / channels;
    for (std::size_t at = 0; at < samples.size(); at += pixels * channels * element) {
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
          std::memcpy(&out[at + (pixel * channels + c) * element], &samples[at + (c * pixels + pixel) * element],
                      element);
        }
      }
    }
  }

  void read_y(std::size_t shard, std::int64_t first, std::int64_t rows, std::span<std::byte> out,
              std::vector<std::byte>& scratch) const {
    const std::size_t row_bytes = stored_y.bytes();
    std::span<const std::byte> raw;
    if (!holds_labels) {
      scratch.resize(row_bytes * static_cast<std::size_t>(rows));
      set.read(shard, 1, first, rows, scratch);
      raw = scratch;
    } else {
      raw = labels_of(shard).subspan(static_cast<std::size_t>(first) * row_bytes,
                                     static_cast<std::size_t>(rows) * row_bytes);
    }
    if (!info.labels_are_classes) {
      to_float32(info.y.type, raw, out.data());
      if (const auto bad = first_not_finite(FileType::float32, out)) {
        not_finite(shard, first + static_cast<std::int64_t>(*bad) / info.y.elements(), "y");
      }
      return;
    }
    if (one_hot) {
      with_elements(stored_y.type, raw, [&](auto elements) {
        for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
          const auto begin = elements.begin() + static_cast<std::ptrdiff_t>(row) * info.classes;
          const auto value = static_cast<std::int32_t>(std::find(begin, begin + info.classes, 1) - begin);
          std::memcpy(out.data() + row * sizeof value, &value, sizeof value);
        }
      });
      return;
    }
    with_elements(info.y.type, raw, [&](auto elements) {
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const auto label = static_cast<std::int64_t>(elements[i]);
        if (label < 0 || label >= info.classes) {
          throw FileError(fmt::format("{}: sample {} has label {}, outside [0, {})", path_of(shard),
                                      first + static_cast<std::int64_t>(i), label, info.classes));
        }
        const auto value = static_cast<std::int32_t>(label);
        std::memcpy(out.data() + i * sizeof value, &value, sizeof value);
      }
    });
  }
};

ShardedDataset::ShardedDataset(const DatasetOptions& options) : files_(std::make_unique<Files>(options)) {}
ShardedDataset::~ShardedDataset() = default;

const DatasetInfo& ShardedDataset::info() const noexcept { return files_->info; }
const std::vector<ShardInfo>& ShardedDataset::shards() const noexcept { return files_->set.shards(); }
const std::vector<std::string>& ShardedDataset::warnings() const noexcept { return files_->set.warnings(); }
std::int64_t ShardedDataset::block_multiple() const noexcept { return files_->set.block_multiple(); }

std::size_t ShardedDataset::cache_bytes() const noexcept { return files_->set.cache_bytes(); }
std::size_t ShardedDataset::stored_bytes() const noexcept {
  return info().x.bytes() + (files_->has_y() ? files_->stored_y.bytes() : 0);
}
std::vector<std::int64_t> ShardedDataset::shard_counts() const {
  std::vector<std::int64_t> counts;
  for (const ShardInfo& shard : shards()) counts.push_back(shard.count);
  return counts;
}

std::string ShardedDataset::fingerprint() const {
  const DatasetInfo& data = info();
  const std::string head =
      fmt::format("{} samples, x {} ({}), y {} ({}), {} classes", data.samples, name_of(data.x.type),
                  fmt::join(data.x.sample_shape, ", "), files_->has_y() ? name_of(data.y.type) : "none",
                  fmt::join(data.y.sample_shape, ", "), data.classes);
  std::string all = fmt::format("{}, range {} {}, mean {} {}, names {}\n", head, data.value_min, data.value_max,
                                data.mean, data.standard_deviation, fmt::join(data.class_names, "|"));
  all += files_->set.identity();
  return fmt::format("{}, {}", head, to_hex(checksum(std::as_bytes(std::span(all)))));
}

FileType ShardedDataset::x_type() const noexcept {
  const FileType stored = info().x.type;
  return stored == FileType::uint8 || stored == FileType::float64 ? stored : FileType::float32;
}
std::size_t ShardedDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info().x.elements()) * size_of(x_type());
}
std::size_t ShardedDataset::y_bytes() const noexcept {
  return files_->has_y() ? static_cast<std::size_t>(info().y.elements()) * sizeof(float) : 0;
}

/// use(shard, first row in it, rows, place in `samples`) for samples that follow each other in a file: one read each.
template <class Use>
void ShardedDataset::each_run(std::span<const std::int64_t> samples, const Use& use) const {
  for (std::size_t at = 0; at < samples.size();) {
    const std::size_t shard = files_->set.shard_of(samples[at]);
    const std::int64_t begin = shards()[shard].first;
    const std::int64_t end = begin + shards()[shard].count;
    std::size_t run = 1;
    while (at + run < samples.size() && samples[at + run] == samples[at] + static_cast<std::int64_t>(run) &&
           samples[at + run] < end) {
      ++run;
    }
    use(shard, samples[at] - begin, run, at);
    at += run;
  }
}

void ShardedDataset::read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
                          std::span<std::byte> y) const {
  if (x.size() != samples.size() * x_bytes() || y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffers of ShardedDataset::read have the wrong size");
  }
  std::vector<std::byte> scratch;
  each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t run, std::size_t at) {
    const auto rows = static_cast<std::int64_t>(run);
    files_->read_x(shard, first, rows, x_type(), x.subspan(at * x_bytes(), run * x_bytes()), scratch);
    if (files_->has_y()) files_->read_y(shard, first, rows, y.subspan(at * y_bytes(), run * y_bytes()), scratch);
  });
}

void ShardedDataset::read_y(std::span<const std::int64_t> samples, std::span<std::byte> y) const {
  if (y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffer of ShardedDataset::read_y has the wrong size");
  }
  if (!files_->has_y()) return;
  std::vector<std::byte> scratch;
  each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t run, std::size_t at) {
    files_->read_y(shard, first, static_cast<std::int64_t>(run), y.subspan(at * y_bytes(), run * y_bytes()), scratch);
  });
}

void ShardedDataset::will_need(std::int64_t first, std::int64_t count) const noexcept {
  files_->set.will_need(first, count);
}

std::uint64_t ShardedDataset::verify(int part, int parts) const { return files_->set.verify(part, parts, {}); }
void ShardedDataset::check_unchanged(int part, int parts) { files_->set.check_unchanged(part, parts); }

}  // namespace lockstep::io
