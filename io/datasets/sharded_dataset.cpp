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

namespace lockstep::io {
namespace {

/// Labels up to this size stay in memory: one read less per sample.
constexpr std::uint64_t kResidentLabelBytes = std::uint64_t{16} << 20;

/// Position of the first element that is NaN or infinite, found by the exponent's bits: one compare and one or per
/// element, which vectorises under any floating-point flags.
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

/// Position of the first NaN, infinity, or float64 beyond the range of float32.
std::optional<std::size_t> first_unusable(FileType type, std::span<const std::byte> data) {
  if (type == FileType::float32) return first_not_finite<float>(data, std::uint32_t{0x7F800000});
  if (type != FileType::float64) return std::nullopt;
  const auto unusable = [&](std::size_t i) {
    double value = 0;
    std::memcpy(&value, data.data() + i * sizeof value, sizeof value);
    return !(std::abs(value) <= std::numeric_limits<float>::max());
  };
  const std::size_t count = data.size() / sizeof(double);
  unsigned found = 0;
  for (std::size_t i = 0; i < count; ++i) found |= static_cast<unsigned>(unusable(i));
  if (found == 0) return std::nullopt;
  for (std::size_t i = 0;; ++i) {
    if (unusable(i)) return i;
  }
}

template <class Number>
void to_type(FileType type, std::span<const std::byte> raw, std::byte* out) {
  with_elements(type, raw, [&](auto elements) {
    for (std::size_t i = 0; i < elements.size(); ++i) {
      const auto value = static_cast<Number>(elements[i]);
      std::memcpy(out + i * sizeof value, &value, sizeof value);
    }
  });
}
/// Converts elements of `type` to `wanted`, float32 or float64.
void convert(FileType type, std::span<const std::byte> raw, FileType wanted, std::byte* out) {
  if (wanted == FileType::float64) return to_type<double>(type, raw, out);
  to_type<float>(type, raw, out);
}

/// True if float32 cannot hold all numbers of the type.
bool is_wide(FileType type) {
  return type == FileType::float64 || type == FileType::int64 || type == FileType::uint64 || type == FileType::int32 ||
         type == FileType::uint32;
}

}  // namespace

struct ShardedDataset::Files {
  DatasetInfo info;
  std::optional<TargetValues> known_targets;  ///< from the manifest
  std::vector<std::string> id_checksums;  ///< from the manifest: checksums of the names of each shard's samples, hex
  std::shared_ptr<ShardSet> owned;
  ShardSet& set;
  bool delivers_missing = false;  ///< missing numbers are delivered as NaN
  bool wide_targets = false;
  /// Labels of a shard, as stored; empty: not read yet.
  struct ShardLabels {
    std::mutex loading;
    std::vector<std::byte> stored;
  };
  mutable std::deque<ShardLabels> labels;
  bool holds_labels = false;  ///< labels stay in memory
  Field stored_y;             ///< like info.y, except for one-hot labels, which are delivered as numbers
  bool one_hot = false, channels_first = false;
  std::optional<ShardSet> weights;  ///< the same files, with the weights as x

  bool has_y() const noexcept { return !info.y.name.empty(); }

  IoDeadline* deadline;

  explicit Files(const DatasetOptions& options)
      : owned(is_packed(options.path) ? open_packed(options)
                                      : std::make_shared<ShardSet>(options.path, options.x, options.y, options.deadline,
                                                                   options.unlabelled, options.gaps)),
        set(*owned),
        delivers_missing(options.gaps.deliver_missing),
        wide_targets(options.wide_targets),
        labels(set.size()),
        deadline(options.deadline) {
    if (!is_packed(options.path)) describe_without_manifest(options);
    stored_y = info.y;
    if (has_y() && !info.labels_are_classes) understand_targets(options.labels);
    arrange(options.layout);
    refuse_masks();
    load_labels();
    if (!options.weight.empty()) open_weights(options);
  }

  /// Opens the same files once more, for the data set of weights.
  void open_weights(const DatasetOptions& options) {
    for (const ShardInfo& shard : set.shards()) {
      const IoDeadline::Operation looking(options.deadline, IoDeadline::Kind::reading, shard.file);
      if (is_packed(options.path)) require_checksummed_structure(shard.file);
      if (Hdf5File(shard.file, Hdf5File::Access::read).has(options.weight)) continue;
      throw FileError(fmt::format("{}: has no data set {} with the weights of its samples: --sample-weight names it",
                                  shard.file.string(), options.weight));
    }
    weights.emplace(options.path, options.weight, "", options.deadline);
    const StoredField& stored = weights->file(0).fields()[0];
    if (stored.field.elements() != 1) {
      throw FileError(fmt::format("{}: {} holds {} numbers for each sample: a weight is one", path_of(0),
                                  options.weight, stored.field.elements()));
    }
    const auto fits = [](const ShardInfo& a, const ShardInfo& b) { return a.file == b.file && a.count == b.count; };
    if (std::ranges::equal(weights->shards(), set.shards(), fits)) return;
    throw FileError(fmt::format("{}: {} holds {} weights, and there are {} samples", options.path.string(),
                                options.weight, weights->rows(), info.samples));
  }

  void read_weights(std::size_t shard, std::int64_t first, std::int64_t rows, std::span<float> out) const {
    const Field& stored = weights->file(shard).fields()[0].field;
    std::vector<std::byte> raw(stored.bytes() * static_cast<std::size_t>(rows));
    weights->read(shard, 0, first, rows, raw);
    with_elements(stored.type, raw, [&](auto elements) {
      for (std::size_t i = 0; i < elements.size(); ++i) {
        out[i] = static_cast<float>(elements[i]);
        if (std::isfinite(out[i]) && out[i] >= 0) continue;
        throw FileError(fmt::format("{}: sample {} has the weight {}: a weight is a number of 0 or more",
                                    path_of(shard), first + static_cast<std::int64_t>(i), elements[i]));
      }
    });
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

  /// Refuses pictures as labels of pictures.
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
    info.holds_weights = manifest.fields.size() > 2;
    info.labels_are_classes = manifest.labels == Labels::classes;
    info.classes = manifest.classes;
    info.class_names = manifest.class_names;
    info.value_min = manifest.value_min;
    info.value_max = manifest.value_max;
    info.mean = manifest.mean;
    info.standard_deviation = manifest.standard_deviation;
    info.has_statistics = true;
    info.source = manifest.source;
    info.table = manifest.table;
    info.id = manifest.id;
    if (info.id) {
      for (const ManifestShard& shard : manifest.shards) id_checksums.push_back(shard.checksum_id);
    }
    known_targets = manifest.target_values;
    if (options.shared) return options.shared->set();
    return std::make_shared<ShardSet>(options.path, manifest, options.deadline);
  }

  void describe_without_manifest(const DatasetOptions& options) {
    const ShardFile& first = set.file(0);
    info.samples = set.rows();
    info.x = first.fields()[0].field;
    if (first.fields().size() > 1) info.y = first.fields()[1].field;
    info.source = options.path.filename().string();
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
      info.labels_are_classes = has_y() && info.y.elements() == 1 && are_classes(options.labels);
      if (info.x.type == FileType::uint8) info.value_max = 255;
      if (info.x.type == FileType::uint16) info.value_max = 65535;
      if (info.labels_are_classes) count_classes(options.labels);
      if (!set.text_classes().empty()) info.class_names = set.text_classes();
    }
  }

  /// One rule for labels of one element, of any type and shape.
  bool are_classes(LabelMeaning wanted) {
    if (!set.text_classes().empty()) return true;
    if (wanted == LabelMeaning::numbers) return false;
    if (info.y.type != FileType::float32 && info.y.type != FileType::float64) return true;
    WholeNumbers numbers;
    for (std::size_t shard = 0; shard < set.size() && numbers.are_whole(); ++shard) {
      set.stream(shard, 1, [&](std::int64_t, std::span<const std::byte> block) { numbers.add(info.y.type, block); });
    }
    if (wanted == LabelMeaning::classes ? !numbers.are_whole() : !numbers.are_classes()) return false;
    set.warnings().push_back(
        fmt::format("{}: {} holds whole numbers as floats: taken as labels of classes (--loss mean-squared-error, or "
                    "--regression of pack, takes them as numbers to predict)",
                    path_of(0), set.file(0).fields()[1].dataset));
    return true;
  }

  TargetValues look_at_targets() const {
    TargetPattern pattern(info.y.elements());
    for (std::size_t shard = 0; shard < set.size() && pattern.is_binary(); ++shard) {
      set.stream(shard, 1, [&](std::int64_t, std::span<const std::byte> block) { pattern.add(info.y.type, block); });
    }
    return pattern.values();
  }

  /// Recognises rows of zeros with a single 1 as classes, and rows of zeros and ones as labels.
  void understand_targets(LabelMeaning wanted) {
    if (info.y.sample_shape.size() > 1) return;
    const TargetValues values = known_targets ? *known_targets : look_at_targets();
    info.targets_are_binary = values != TargetValues::any;
    if (values == TargetValues::any || wanted == LabelMeaning::numbers || info.y.sample_shape.empty()) return;
    const std::int64_t columns = info.y.elements();
    one_hot = values == TargetValues::one_hot;
    if (one_hot) {
      info.y = {info.y.name, FileType::int32, {}};
      info.labels_are_classes = true;
      info.targets_are_binary = false;
      info.classes = columns;
      if (info.table) info.class_names = info.table->labels;
    }
    if (known_targets || columns < 2) return;
    const std::string where = fmt::format("{}: {}", path_of(0), set.file(0).fields()[1].dataset);
    set.warnings().push_back(
        one_hot ? fmt::format("{} holds one 1 in each row: taken as labels of {}", where, count_of(columns, "class"))
                : fmt::format("{} holds rows of 0 and 1: taken as {} labels, any of which a sample may have (--loss "
                              "mean-squared-error takes them as numbers)",
                              where, columns));
  }

  void count_classes(LabelMeaning wanted) {
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t shard = 0; shard < set.size(); ++shard) {
      set.stream(shard, 1, [&](std::int64_t first, std::span<const std::byte> block) {
        with_elements(info.y.type, block, [&](auto elements) {
          for (std::size_t i = 0; i < elements.size(); ++i) {
            const std::int64_t label = is_whole(elements[i]) ? static_cast<std::int64_t>(elements[i]) : -1;
            if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
              throw FileError(
                  fmt::format("{}: sample {} has label {}, which is no class number (--loss "
                              "mean-squared-error, or --regression of pack, predicts such numbers)",
                              path_of(shard), first + static_cast<std::int64_t>(i), label_text(elements[i])));
            }
            smallest = std::min(smallest, label);
            info.classes = std::max(info.classes, label + 1);
            if (!plausible_classes(info.classes, info.samples)) {
              throw FileError(fmt::format(
                  "{}: sample {} has label {}, which {} not explain: it is damaged, "
                  "or {} holds no class numbers (--loss mean-squared-error, or --regression of pack, takes them "
                  "as numbers to predict)",
                  path_of(shard), first + static_cast<std::int64_t>(i), label,
                  info.samples == 1 ? "1 sample does" : fmt::format("{} samples do", info.samples),
                  set.file(shard).fields()[1].dataset));
            }
          }
        });
      });
    }
    if (smallest == 0 || info.classes == 0 || wanted != LabelMeaning::automatic || !set.text_classes().empty()) return;
    set.warnings().push_back(fmt::format(
        "{}: labels begin at {}: the classes below have no samples, and outputs of the network all the same",
        path_of(0), smallest));
  }

  /// Loads all labels at once if all files are open.
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

  /// `value`: the number, if it is float64; not finite for float32.
  [[noreturn]] void unusable(std::size_t shard, std::int64_t row, std::string_view field, double value) const {
    if (std::isfinite(value)) {
      throw FileError(
          fmt::format("{}: sample {} holds {:.6g} in {}, which is beyond the range of float32, in which "
                      "networks compute: scale the data",
                      path_of(shard), row, value, field));
    }
    throw FileError(fmt::format("{}: sample {} holds NaN or infinity in {}; clean the data and pack it again",
                                path_of(shard), row, field));
  }
  void require_usable(std::size_t shard, std::int64_t first, const Field& field, FileType type,
                      std::span<const std::byte> numbers) const {
    if (delivers_missing) return;
    const auto bad = first_unusable(type, numbers);
    if (!bad) return;
    double value = std::numeric_limits<double>::quiet_NaN();
    if (type == FileType::float64) std::memcpy(&value, &numbers[*bad * sizeof value], sizeof value);
    unusable(shard, first + static_cast<std::int64_t>(*bad) / field.elements(), field.name, value);
  }
  /// uint8, float32, or float64 if float32 may not hold the numbers; the range in the manifest decides.
  FileType x_type() const noexcept {
    constexpr double kMaxExact = 1 << 24;  // largest range in which float32 holds all whole numbers
    const FileType stored = info.x.type;
    if (stored == FileType::uint8) return stored;
    const bool exact = stored != FileType::float64 && info.has_statistics && -kMaxExact <= info.value_min &&
                       info.value_max <= kMaxExact;
    return is_wide(stored) && !exact ? FileType::float64 : FileType::float32;
  }
  FileType y_type() const noexcept {
    if (info.labels_are_classes) return FileType::int32;
    return wide_targets && is_wide(info.y.type) ? FileType::float64 : FileType::float32;
  }

  /// Calls work(shard, first in the shard, position in `samples`, count) once for each run of consecutive samples in a
  /// file, which takes one read.
  template <class Work>
  void each_run(std::span<const std::int64_t> samples, const Work& work) const {
    for (std::size_t at = 0; at < samples.size();) {
      const std::size_t shard = set.shard_of(samples[at]);
      const std::int64_t begin = set.shards()[shard].first, end = begin + set.shards()[shard].count;
      std::size_t run = 1;
      while (at + run < samples.size() && samples[at + run] == samples[at] + static_cast<std::int64_t>(run) &&
             samples[at + run] < end) {
        ++run;
      }
      work(shard, samples[at] - begin, at, run);
      at += run;
    }
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
      convert(info.x.type, scratch, type, floats.data());
      to_channels_last(floats, size_of(type), out);
    } else {
      scratch.resize(info.x.bytes() * static_cast<std::size_t>(rows));
      set.read(shard, 0, first, rows, scratch);
      convert(info.x.type, scratch, type, out.data());
    }
    require_usable(shard, first, info.x, type, out);
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

  /// Reads through the library: names are read only once, by the code that writes them down.
  void read_ids(std::size_t shard, std::int64_t first, std::int64_t rows, std::span<std::byte> out) const {
    const std::filesystem::path& path = set.path(shard);
    const IoDeadline::Operation reading(deadline, IoDeadline::Kind::reading, path);
    const Hdf5File file(path, Hdf5File::Access::read);
    file.require_plain(kIdName);
    const std::vector<std::int64_t> shape = file.layout(kIdName).shape;
    if (shape != std::vector<std::int64_t>{set.shards()[shard].count, info.id->bytes}) {
      throw FileError(
          fmt::format("{}: its names of samples are not as the manifest says; copy or pack it again", path.string()));
    }
    file.read_rows(kIdName, FileType::uint8, first, rows, out);
  }

  std::uint64_t verify_ids(int part, int parts) const {
    if (!info.id) return 0;
    std::uint64_t read = 0;
    for (auto shard = static_cast<std::size_t>(part); shard < set.size(); shard += static_cast<std::size_t>(parts)) {
      const std::int64_t count = set.shards()[shard].count;
      std::vector<std::byte> ids(static_cast<std::size_t>(count * info.id->bytes));
      read_ids(shard, 0, count, ids);
      read += ids.size();
      if (to_hex(checksum(ids)) == id_checksums[shard]) continue;
      throw FileError(fmt::format("{}: {} is damaged: its checksum is {}, it was packed with {}; copy or pack it again",
                                  path_of(shard), kIdName, to_hex(checksum(ids)), id_checksums[shard]));
    }
    return read;
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
      if (info.y.type == FileType::float64) require_usable(shard, first, info.y, info.y.type, raw);
      convert(info.y.type, raw, y_type(), out.data());
      require_usable(shard, first, info.y, y_type(), out);
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
        const std::int64_t label = is_whole(elements[i]) ? static_cast<std::int64_t>(elements[i]) : -1;
        if (label < 0 || label >= info.classes) {
          throw FileError(fmt::format("{}: sample {} has label {}, outside [0, {})", path_of(shard),
                                      first + static_cast<std::int64_t>(i), label_text(elements[i]), info.classes));
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
  if (data.table) all += to_json(*data.table) + "\n";
  all += files_->set.identity();
  return fmt::format("{}, {}", head, to_hex(checksum(std::as_bytes(std::span(all)))));
}

FileType ShardedDataset::x_type() const noexcept { return files_->x_type(); }
FileType ShardedDataset::y_type() const noexcept { return files_->y_type(); }
std::size_t ShardedDataset::x_bytes() const noexcept {
  return static_cast<std::size_t>(info().x.elements()) * size_of(x_type());
}
std::size_t ShardedDataset::y_bytes() const noexcept {
  return files_->has_y() ? static_cast<std::size_t>(info().y.elements()) * size_of(y_type()) : 0;
}

void ShardedDataset::read(std::span<const std::int64_t> samples, std::int64_t, std::span<std::byte> x,
                          std::span<std::byte> y) const {
  const bool reads_x = !x.empty();
  if ((reads_x && x.size() != samples.size() * x_bytes()) || y.size() != samples.size() * y_bytes()) {
    throw std::invalid_argument("the buffers of ShardedDataset::read have the wrong size");
  }
  std::vector<std::byte> scratch;
  files_->each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t at, std::size_t run) {
    const auto rows = static_cast<std::int64_t>(run);
    if (reads_x) {
      files_->read_x(shard, first, rows, x_type(), x.subspan(at * x_bytes(), run * x_bytes()), scratch);
    }
    if (files_->has_y()) files_->read_y(shard, first, rows, y.subspan(at * y_bytes(), run * y_bytes()), scratch);
  });
}

bool ShardedDataset::has_weights() const noexcept { return files_->weights.has_value(); }

void ShardedDataset::read_weights(std::span<const std::int64_t> samples, std::span<float> weights) const {
  if (!has_weights() || weights.size() != samples.size()) {
    throw std::invalid_argument("weights that are not there, or not as many as asked for");
  }
  files_->each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t at, std::size_t run) {
    files_->read_weights(shard, first, static_cast<std::int64_t>(run), weights.subspan(at, run));
  });
}

ShardedDataset::MissingRows ShardedDataset::missing(std::int64_t first, std::int64_t samples) const {
  const std::size_t shard = files_->set.shard_of(first);
  const std::int64_t within = first - shards()[shard].first;
  const ShardFile& file = files_->set.file(shard);
  return {.x = file.missing_rows(0, within, samples),
          .y = files_->has_y() ? file.missing_rows(1, within, samples) : std::vector<bool>()};
}

void ShardedDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t) const noexcept {
  files_->set.will_need(first, count);
}

void ShardedDataset::read_ids(std::span<const std::int64_t> samples, std::span<std::byte> ids) const {
  if (!info().id) throw std::logic_error("samples without names");
  const auto bytes = static_cast<std::size_t>(info().id->bytes);
  files_->each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t at, std::size_t run) {
    files_->read_ids(shard, first, static_cast<std::int64_t>(run), ids.subspan(at * bytes, run * bytes));
  });
}

std::uint64_t ShardedDataset::verify(int part, int parts) const {
  return files_->set.verify(part, parts, {}) + (files_->weights ? files_->weights->verify(part, parts, {}) : 0) +
         files_->verify_ids(part, parts);
}
void ShardedDataset::check_unchanged(int part, int parts) { files_->set.check_unchanged(part, parts); }

}  // namespace lockstep::io
