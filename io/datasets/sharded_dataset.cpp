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

#include "io/datasets/delivered_numbers.hpp"
#include "io/datasets/shard_contents.hpp"
#include "io/datasets/shard_set.hpp"
#include "io/files/checksum.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/unknown_name.hpp"

namespace lockstep::io {
namespace {

/// Labels up to this size stay in memory, which saves one read per sample.
constexpr std::uint64_t kResidentLabelBytes = std::uint64_t{16} << 20;

}  // namespace

std::string layout_objection(std::string_view letters) {
  constexpr const char* kForm =
      "is no order of extents such as nchw, nhwc, ncdhw, ncl or nc (n the samples, c the channels, first or last, and "
      "d, h, w or l in this order)";
  const std::string_view given = letters;
  if (!letters.starts_with('n')) return kForm;
  letters.remove_prefix(1);
  if (letters.starts_with('c')) {
    letters.remove_prefix(1);
  } else if (letters.ends_with('c')) {
    letters.remove_suffix(1);
  }
  for (const std::string_view places : {"", "l", "w", "hw", "dhw"}) {
    if (letters == places) return given == "n" ? kForm : "";
  }
  return kForm;
}

struct ShardedDataset::Files : ShardContents {
  /// Labels of a shard, as stored; empty: not read yet.
  struct ShardLabels {
    std::mutex loading;
    std::vector<std::byte> stored;
  };
  mutable std::deque<ShardLabels> labels;
  bool holds_labels = false;        ///< labels stay in memory
  bool delivers_missing = false;    ///< missing numbers are delivered as NaN
  std::optional<ShardSet> weights;  ///< the same files, with the weights as x
  IoDeadline* deadline;

  explicit Files(const DatasetOptions& options)
      : ShardContents(options),
        labels(set.size()),
        delivers_missing(options.gaps.deliver_missing),
        deadline(options.deadline) {
    load_labels();
    if (!options.weight.empty()) open_weights(options);
  }

  /// Opens the same files again for the weights.
  void open_weights(const DatasetOptions& options) {
    for (const ShardInfo& shard : set.shards()) {
      const IoDeadline::Operation looking(options.deadline, IoDeadline::Kind::reading, shard.file);
      if (is_packed(options.path)) require_checksummed_structure(shard.file);
      if (Hdf5File(shard.file, Hdf5File::Access::read).has(options.weight)) continue;
      throw UnknownName(fmt::format("{}: has no data set {} with the weights of its samples: --sample-weight names it",
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

  /// Loads all labels at once if all files are open.
  void load_labels() {
    holds_labels = has_y() && targets.empty() &&
                   stored_y.bytes() * static_cast<std::uint64_t>(info.samples) <= kResidentLabelBytes;
    if (!holds_labels || !set.all_open()) return;
    for (std::size_t s = 0; s < set.size(); ++s) labels_of(s);
  }

  std::span<const std::byte> labels_of(std::size_t shard) const {
    ShardLabels& own = labels[shard];
    const std::lock_guard lock(own.loading);
    if (own.stored.empty() && set.shards()[shard].count > 0) {
      std::vector<std::byte> read(stored_y.bytes() * static_cast<std::size_t>(set.shards()[shard].count));
      set.file(shard).read_rows(y_field, 0, set.shards()[shard].count, read);
      own.stored = std::move(read);
    }
    return own.stored;
  }

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

  /// For each number of the samples from `first` on, in all shards, true if it is missing.
  std::vector<bool> missing_numbers(std::size_t field, std::int64_t first, std::int64_t samples) const {
    std::vector<bool> flags;
    for (const std::int64_t end = first + samples; first < end;) {
      const std::size_t shard = set.shard_of(first);
      const ShardInfo& rows = set.shards()[shard];
      const std::int64_t run = std::min(end, rows.first + rows.count) - first;
      const std::vector<bool> more = set.file(shard).missing_numbers(field, first - rows.first, run);
      flags.insert(flags.end(), more.begin(), more.end());
      first += run;
    }
    return flags;
  }

  void read_x(std::size_t shard, std::int64_t first, std::int64_t rows, FileType type, std::span<std::byte> out,
              std::vector<std::byte>& scratch) const {
    if (inputs.size() == 1) return read_column(inputs[0], shard, first, rows, type, out, scratch);
    read_side_by_side(inputs, shard, first, rows, type, out, scratch);
  }

  void read_side_by_side(std::span<const Column> columns, std::size_t shard, std::int64_t first, std::int64_t rows,
                         FileType type, std::span<std::byte> out, std::vector<std::byte>& scratch) const {
    const std::size_t row_bytes = out.size() / static_cast<std::size_t>(rows);
    std::vector<std::byte> numbers;
    for (const Column& column : columns) {
      const std::size_t bytes = static_cast<std::size_t>(column.stored.elements()) * size_of(type);
      const std::size_t begin = static_cast<std::size_t>(column.first) * size_of(type);
      if (rows == 1) {
        read_column(column, shard, first, rows, type, out.subspan(begin, bytes), scratch);
        continue;
      }
      numbers.resize(bytes * static_cast<std::size_t>(rows));
      read_column(column, shard, first, rows, type, numbers, scratch);
      std::byte* to = out.data() + begin;
      for (std::size_t at = 0; at < numbers.size(); at += bytes, to += row_bytes) {
        std::memcpy(to, numbers.data() + at, bytes);
      }
    }
  }

  /// Reads the targets of a field: at each position the channels of the first target, then those of the next.
  void read_channels(std::size_t shard, std::int64_t first, std::int64_t rows, std::span<std::byte> out,
                     std::vector<std::byte>& scratch) const {
    const std::size_t number = size_of(y_type()), position = static_cast<std::size_t>(info.target_count()) * number;
    std::vector<std::byte> numbers;
    for (std::size_t i = 0; i < targets.size(); ++i) {
      const std::size_t bytes = static_cast<std::size_t>(info.targets[i].field.elements()) * number;
      numbers.resize(static_cast<std::size_t>(targets[i].stored.elements() * rows) * number);
      read_column(targets[i], shard, first, rows, y_type(), numbers, scratch);
      std::byte* to = out.data() + static_cast<std::size_t>(targets[i].first) * number;
      for (std::size_t at = 0; at < numbers.size(); at += bytes, to += position) {
        std::memcpy(to, numbers.data() + at, bytes);
      }
    }
  }

  void read_column(const Column& column, std::size_t shard, std::int64_t first, std::int64_t rows, FileType type,
                   std::span<std::byte> out, std::vector<std::byte>& scratch) const {
    const Field& stored = column.stored;
    if (type == stored.type && !column.channels_first) {
      set.read(shard, column.field, first, rows, out);
    } else {
      scratch.resize(stored.bytes() * static_cast<std::size_t>(rows));
      set.read(shard, column.field, first, rows, scratch);
      if (type == stored.type) {
        to_channels_last(stored, scratch, size_of(type), out);
      } else if (column.channels_first) {
        std::vector<std::byte> floats(out.size());
        convert(stored.type, scratch, type, floats.data());
        to_channels_last(stored, floats, size_of(type), out);
      } else {
        convert(stored.type, scratch, type, out.data());
      }
    }
    require_usable(shard, first, stored, type, out);
  }

  /// A field as read_fields() delivers it.
  struct Place {
    const Column* column;
    FileType type;
    bool is_only_target = false;  ///< y, in the type that read_y() delivers
  };
  /// The first input, the first target, the other inputs, the other targets.
  std::vector<Place> places() const {
    std::vector<Place> all{{&inputs[0], inputs[0].type}};
    if (has_y() && targets.empty()) {
      all.push_back({&only_target, y_type(), true});
    } else if (!targets.empty()) {
      all.push_back({&targets[0], targets[0].type});
    }
    for (std::size_t i = 1; i < inputs.size(); ++i) all.push_back({&inputs[i], inputs[i].type});
    for (std::size_t i = 1; i < targets.size(); ++i) all.push_back({&targets[i], targets[i].type});
    return all;
  }

  /// Reads through the library. Names are read seldom, so speed does not matter.
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
    if (!targets.empty()) {
      if (!info.field.empty()) return read_channels(shard, first, rows, out, scratch);
      return read_side_by_side(targets, shard, first, rows, y_type(), out, scratch);
    }
    const std::size_t row_bytes = stored_y.bytes();
    std::span<const std::byte> raw;
    if (!holds_labels) {
      scratch.resize(row_bytes * static_cast<std::size_t>(rows));
      set.read(shard, y_field, first, rows, scratch);
      raw = scratch;
    } else {
      raw = labels_of(shard).subspan(static_cast<std::size_t>(first) * row_bytes,
                                     static_cast<std::size_t>(rows) * row_bytes);
    }
    if (!info.labels_are_classes) {
      if (info.y.type == FileType::float64) require_usable(shard, first, info.y, info.y.type, raw);
      if (only_target.channels_first) {
        std::vector<std::byte> numbers(out.size());
        convert(info.y.type, raw, y_type(), numbers.data());
        to_channels_last(info.y, numbers, size_of(y_type()), out);
      } else {
        convert(info.y.type, raw, y_type(), out.data());
      }
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
        const std::int64_t label = is_ignored(elements[i]) ? kIgnored
                                   : is_whole(elements[i]) ? static_cast<std::int64_t>(elements[i])
                                                           : info.classes;
        if (label < kIgnored || label >= info.classes) {
          throw FileError(fmt::format("{}: {} has label {}, outside [0, {})", path_of(shard), label_place(first, i),
                                      label_text(elements[i]), info.classes));
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
  std::size_t bytes = files_->has_y() && files_->targets.empty() ? files_->stored_y.bytes() : 0;
  for (const auto& input : files_->inputs) bytes += input.stored.bytes();
  for (const auto& target : files_->targets) bytes += target.stored.bytes();
  return bytes;
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
  if (!data.field.empty()) all += fmt::format("field ({})\n", fmt::join(data.field, ", "));
  if (data.table) all += to_json(*data.table) + "\n";
  for (const auto& [kind, ranges] : {std::pair{"input", &data.inputs}, std::pair{"target", &data.targets}}) {
    for (const FieldRange& range : *ranges) {
      all += fmt::format("{} {} {} ({})\n", kind, range.field.name, name_of(range.field.type),
                         fmt::join(range.field.sample_shape, ", "));
    }
  }
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

std::vector<Field> ShardedDataset::stored_fields() const {
  std::vector<Field> fields;
  for (const Files::Place& place : files_->places()) {
    const Files::Column& column = *place.column;
    fields.push_back(column.stored);
    fields.back().type = place.type;
  }
  return fields;
}

void ShardedDataset::read_fields(std::span<const std::int64_t> samples,
                                 std::span<const std::span<std::byte>> buffers) const {
  const std::vector<Files::Place> places = files_->places();
  if (buffers.size() < places.size()) throw std::invalid_argument("fewer buffers than fields");
  std::vector<std::byte> scratch;
  files_->each_run(samples, [&](std::size_t shard, std::int64_t first, std::size_t at, std::size_t run) {
    const auto rows = static_cast<std::int64_t>(run);
    for (std::size_t f = 0; f < places.size(); ++f) {
      const Files::Column& column = *places[f].column;
      const std::size_t bytes = static_cast<std::size_t>(column.stored.elements()) * size_of(places[f].type);
      const std::span<std::byte> out = buffers[f].subspan(at * bytes, run * bytes);
      if (places[f].is_only_target) {
        files_->read_y(shard, first, rows, out, scratch);
      } else {
        files_->read_column(column, shard, first, rows, places[f].type, out, scratch);
      }
    }
  });
}

ShardedDataset::MissingRows ShardedDataset::missing(std::int64_t first, std::int64_t samples) const {
  const auto rows = static_cast<std::size_t>(samples);
  MissingRows missing{.x = std::vector<bool>(rows), .y = std::vector<bool>(rows)};
  const auto add = [&](std::size_t field, std::vector<bool>& flags) {
    const std::vector<bool> numbers = files_->missing_numbers(field, first, samples);
    const std::size_t each = numbers.size() / rows;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i]) flags[i / each] = true;
    }
  };
  if (samples == 0) return missing;
  for (const auto& input : files_->inputs) add(input.field, missing.x);
  if (files_->has_y() && files_->targets.empty()) add(files_->y_field, missing.y);
  for (const auto& target : files_->targets) add(target.field, missing.y);
  return missing;
}

std::vector<bool> ShardedDataset::missing_labels(std::int64_t first, std::int64_t samples) const {
  return files_->missing_numbers(files_->y_field, first, samples);
}

bool ShardedDataset::labels_can_be_missing() const {
  for (std::size_t shard = 0; shard < files_->set.size(); ++shard) {
    const StoredField& y = files_->set.file(shard).fields()[files_->y_field];
    if (y.meaning.can_be_missing() || y.field.type == FileType::float32 || y.field.type == FileType::float64)
      return true;
  }
  return false;
}

void ShardedDataset::will_need(std::int64_t first, std::int64_t count, std::int64_t) const noexcept {
  for (const auto& input : files_->inputs) files_->set.will_need(std::span(&input.field, 1), first, count);
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
