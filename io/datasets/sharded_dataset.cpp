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

/// The type in which a network receives numbers.
FileType delivered_type(const Field& stored, bool has_range, double low, double high) {
  constexpr double kMaxExact = 1 << 24;  // largest range in which float32 holds all whole numbers
  if (stored.type == FileType::uint8) return stored.type;
  const bool exact = stored.type != FileType::float64 && has_range && -kMaxExact <= low && high <= kMaxExact;
  return is_wide(stored.type) && !exact ? FileType::float64 : FileType::float32;
}

std::string listed(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

}  // namespace

std::string layout_objection(std::string_view letters) {
  constexpr const char* kForm =
      "is no order of extents such as nchw, nhwc, ncdhw, ncl or nc (n the samples, c the channels, first or last, and "
      "d, "
      "h, w or l in this order)";
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

struct ShardedDataset::Files {
  /// A field, and its range of the row.
  struct Column {
    std::size_t field = 0;              ///< in the set's files
    Field stored;                       ///< images with channels last
    FileType type = FileType::float32;  ///< in which read_fields() delivers it
    bool channels_first = false;
    std::int64_t first = 0;
  };

  DatasetInfo info;
  std::vector<Column> inputs;                 ///< one or more
  std::vector<Column> targets;                ///< several; none if y is one field
  std::size_t y_field = 1;                    ///< the only target
  Column only_target;                         ///< likewise, as it is delivered
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
  bool one_hot = false;
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
    if (has_y() && !info.labels_are_classes && targets.empty()) understand_targets(options);
    arrange(options.layout);
    lay_side_by_side();
    understand_masks(options);
    only_target.stored = info.y;
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

  const std::string& dataset_of(const Column& input) const { return set.file(0).fields()[input.field].dataset; }
  std::string last_word(const Column& input) const {
    const std::string& path = dataset_of(input);
    return path.substr(path.rfind('/') + 1);
  }
  /// True for the name of a field, its path within the file, the path's last word, and "", the only one.
  bool is_named(const Column& input, const std::string& name) const {
    return name.empty() || name == input.stored.name || name == dataset_of(input) || name == last_word(input);
  }

  void arrange(const Layouts& layouts) {
    for (const FieldLayout& given : layouts.fields) {
      const auto is_of = [&](const Column& input) { return is_named(input, given.field); };
      if (std::ranges::count_if(inputs, is_of) == 1) continue;
      std::vector<std::string> names;
      for (const Column& input : inputs) names.push_back(inputs.size() > 1 ? input.stored.name : last_word(input));
      throw FileError(fmt::format("{}: --layout {}{}{}: the inputs are {}", path_of(0), given.field,
                                  given.field.empty() ? "" : "=", given.letters, listed(names)));
    }
    for (Column& input : inputs) {
      const auto given =
          std::ranges::find_if(layouts.fields, [&](const FieldLayout& one) { return is_named(input, one.field); });
      given == layouts.fields.end() ? arrange(layouts.images, input) : arrange(*given, input);
    }
    if (inputs.size() == 1) info.x.sample_shape = inputs[0].stored.sample_shape;
  }

  void arrange(const FieldLayout& given, Column& input) const {
    std::vector<std::int64_t>& shape = input.stored.sample_shape;
    if (given.letters.size() != shape.size() + 1) {
      throw FileError(fmt::format("{}: --layout {} names {} extents, and the samples of {} have {}: [{}]", path_of(0),
                                  given.letters, given.letters.size() - 1, input.stored.name, shape.size(),
                                  fmt::join(shape, ", ")));
    }
    input.channels_first = given.letters[1] == 'c' && shape.size() > 1;
    if (input.channels_first) std::rotate(shape.begin(), shape.begin() + 1, shape.end());
  }

  void arrange(Layout layout, Column& input) {
    std::vector<std::int64_t>& shape = input.stored.sample_shape;
    if (shape.size() != 3 || layout == Layout::channels_last) return;
    const std::int64_t first = shape[0];
    const bool looks_so = (first == 1 || first == 3 || first == 4) && shape[1] > 4 && shape[2] > 4;
    if (!looks_so && layout == Layout::automatic) return;
    input.channels_first = true;
    const std::vector<std::int64_t> stored = shape;
    std::rotate(shape.begin(), shape.begin() + 1, shape.end());
    if (layout == Layout::channels_first) return;
    set.warnings().push_back(
        fmt::format("{}: samples of [{}] are taken as channels first, {} x {} pixels of {} "
                    "(--layout says otherwise)",
                    path_of(0), fmt::join(stored, ", "), shape[0], shape[1],
                    shape[2] == 1 ? "1 channel" : fmt::format("{} channels", shape[2])));
  }

  /// Gives several inputs their ranges of the row, and its type; likewise several targets.
  void lay_side_by_side() {
    const auto place = [&](std::vector<Column>& columns, std::vector<FieldRange>& ranges, Field& row) {
      std::int64_t numbers = 0;
      FileType type = columns[0].type;
      for (std::size_t i = 0; i < columns.size(); ++i) {
        columns[i].first = ranges[i].first = numbers;
        ranges[i].field = columns[i].stored;
        numbers += columns[i].stored.elements();
        const bool wide = columns[i].type == FileType::float64 || type == FileType::float64;
        if (columns[i].type != type) type = wide ? FileType::float64 : FileType::float32;
      }
      row.type = type;
      row.sample_shape = {numbers};
    };
    if (inputs.size() > 1) place(inputs, info.inputs, info.x);
    if (targets.size() > 1) place(targets, info.targets, info.y);
    if (targets.size() > 1) stored_y = info.y;
  }

  /// True if labels of these extents are shaped as the masks of one of the inputs.
  bool are_shaped_as_masks_of_inputs(std::span<const std::int64_t> shape) const {
    return std::ranges::any_of(
        inputs, [&](const Column& input) { return are_shaped_as_masks(input.stored.sample_shape, shape); });
  }

  /// The fields of shards that a reader asks for, by their names: `given` by the user, or the network's `wanted` ones.
  std::vector<std::size_t> chosen(const DatasetOptions& options, const ShardManifest& manifest, FieldRole role) const {
    const bool is_input = role == FieldRole::input;
    const std::string& text = is_input ? options.x : options.y;
    const std::vector<std::string> there = manifest.names(role);
    const auto has = [&](const std::string& name) { return std::ranges::find(there, name) != there.end(); };
    std::vector<std::string> names = names_in(text == (is_input ? "x" : "y") ? "" : text);
    for (const std::string& name : names) {
      if (has(name) && std::ranges::count(names, name) == 1) continue;
      throw FileError(fmt::format("{}: {}: --{} {}: it was packed with the {} {}", options.path.string(),
                                  has(name) ? "the same field twice" : "no such field", is_input ? "x" : "y", text,
                                  is_input ? "inputs" : "targets", listed(there)));
    }
    const std::vector<std::string>& wanted = is_input ? options.wanted : options.wanted_targets;
    if (names.empty() && !text.empty()) names = std::ranges::all_of(wanted, has) ? wanted : there;
    if (names.empty() && !text.empty()) names = there;
    put_in_order(wanted, names);
    std::vector<std::size_t> fields;
    for (const std::string& name : names) {
      fields.push_back(
          static_cast<std::size_t>(std::ranges::find(manifest.fields, name, &Field::name) - manifest.fields.begin()));
    }
    return fields;
  }

  /// Puts the names into the wanted order, if they are the same.
  static void put_in_order(const std::vector<std::string>& wanted, std::vector<std::string>& names) {
    if (std::ranges::is_permutation(wanted, names)) names = wanted;
  }

  /// Takes the fields of shards with several inputs or targets.
  void take_fields(const DatasetOptions& options, const ShardManifest& manifest) {
    const auto take = [&](FieldRole role, std::vector<Column>& columns, std::vector<FieldRange>& ranges) {
      for (const std::size_t f : chosen(options, manifest, role)) {
        const FieldDetail& detail = manifest.details[f];
        const Field& stored = manifest.fields[f];
        columns.push_back({.field = f, .stored = stored});
        columns.back().type = delivered_type(stored, true, detail.value_min, detail.value_max);
        ranges.push_back({.field = stored,
                          .has_statistics = true,
                          .value_min = detail.value_min,
                          .value_max = detail.value_max,
                          .mean = detail.mean,
                          .standard_deviation = detail.standard_deviation});
      }
    };
    take(FieldRole::input, inputs, info.inputs);
    take(FieldRole::target, targets, info.targets);
    info.x.name = inputs.size() == 1 ? inputs[0].stored.name : "x";
    together(info.inputs);
    if (inputs.size() == 1) {
      info.x = inputs[0].stored;
      info.inputs.clear();
    }
    if (!targets.empty()) info.y = {"y", FileType::float32, {}};
    if (targets.size() == 1) {
      info.y = targets[0].stored;
      y_field = targets[0].field;
    }
    if (targets.size() < 2) targets.clear(), info.targets.clear();
  }

  /// Range and moments of all numbers of the inputs.
  void together(const std::vector<FieldRange>& ranges) {
    double numbers = 0, mean = 0, squares = 0;
    for (const FieldRange& range : ranges) {
      const auto count = static_cast<double>(range.field.elements());
      info.value_min = numbers == 0 ? range.value_min : std::min(info.value_min, range.value_min);
      info.value_max = numbers == 0 ? range.value_max : std::max(info.value_max, range.value_max);
      const double delta = range.mean - mean, all = numbers + count;
      mean += delta * count / all;
      squares += count * range.standard_deviation * range.standard_deviation + delta * delta * numbers * count / all;
      numbers = all;
    }
    info.mean = mean;
    info.standard_deviation = std::sqrt(squares / numbers);
  }

  /// Gives masks the extents of their positions. Refuses numbers for each position, and ignored labels elsewhere.
  void understand_masks(const DatasetOptions& options) {
    std::vector<std::int64_t>& shape = info.y.sample_shape;
    if (!info.labels_are_classes && targets.empty() && are_shaped_as_masks_of_inputs(shape)) {
      throw FileError(
          fmt::format("{}: a sample of [{}] has numbers to predict of [{}]: a network learns a class for "
                      "each position, whole numbers from 0 on, or a row of numbers for each sample",
                      path_of(0), fmt::join(inputs[0].stored.sample_shape, ", "), fmt::join(shape, ", ")));
    }
    if (!info.has_masks()) {
      if (options.ignored_label && has_y()) {
        throw FileError(fmt::format("{}: --ignore-label is for masks, and each sample has {} here", path_of(0),
                                    info.labels_are_classes ? "one class" : "numbers to predict"));
      }
      return;
    }
    shape = without_trailing_ones(std::move(shape));
    const bool leads = shape[0] == 1 && std::ranges::any_of(inputs, [&](const Column& input) {
                         return input.channels_first && shape.size() == input.stored.sample_shape.size();
                       });
    if (leads) shape.erase(shape.begin());
    if (!options.ignored_label) return;
    if (info.ignored_label && info.ignored_label != options.ignored_label) {
      throw FileError(fmt::format("{}: was packed with --ignore-label {}, and {} is given: leave it away", path_of(0),
                                  *info.ignored_label, *options.ignored_label));
    }
    info.ignored_label = options.ignored_label;
  }

  /// "sample 3", or "sample 3 at [4, 5]" for a label of a mask: element `index` of y from sample `first` on.
  std::string label_place(std::int64_t first, std::size_t index) const {
    const std::int64_t each = info.y.elements(), at = static_cast<std::int64_t>(index);
    return fmt::format("sample {}{}", first + at / each, place_text(info.y.sample_shape, at % each));
  }

  template <class Number>
  bool is_ignored(Number label) const noexcept {
    return info.ignored_label && static_cast<double>(label) == static_cast<double>(*info.ignored_label);
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
    const bool several = manifest.has_several_fields();
    const bool without_y = options.y.empty();
    if (!several && (options.x != "x" || (options.y != "y" && !without_y))) {
      throw FileError(fmt::format("{}: was made by lockstep pack, its datasets are x and y; leave --x and --y away",
                                  options.path.string()));
    }
    info.samples = manifest.samples;
    info.x = manifest.fields[0];
    if (!several && manifest.fields.size() > 1 && !without_y) info.y = manifest.fields[1];
    info.holds_weights = !several && manifest.fields.size() > 2;
    if (!without_y) {
      info.labels_are_classes = manifest.labels == Labels::classes;
      info.ignored_label = manifest.ignored_label;
      info.classes = manifest.classes;
      info.class_names = manifest.class_names;
    } else {
      info.labels_are_classes = false;
    }
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
    if (several) {
      take_fields(options, manifest);
    } else {
      inputs = {{.field = 0, .stored = info.x}};
    }
    if (options.shared) return options.shared->set();
    return std::make_shared<ShardSet>(options.path, manifest, options.deadline);
  }

  void describe_without_manifest(const DatasetOptions& options) {
    const ShardFile& first = set.file(0);
    info.samples = set.rows();
    take_fields(first, options);
    info.source = options.path.filename().string();
    if (const auto& attributes = first.attributes()) {  // shards without their manifest
      info.labels_are_classes = attributes->labels == Labels::classes;
      info.classes = attributes->classes;
      info.ignored_label = attributes->ignored_label;
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
      const bool have_masks =
          has_y() && (options.labels == LabelMeaning::masks ||
                      (options.labels != LabelMeaning::numbers && are_shaped_as_masks_of_inputs(info.y.sample_shape)));
      if (have_masks) info.ignored_label = options.ignored_label;
      info.labels_are_classes =
          has_y() && targets.empty() && (have_masks || info.y.elements() == 1) && are_classes(options.labels);
      if (info.x.type == FileType::uint8) info.value_max = 255;
      if (info.x.type == FileType::uint16) info.value_max = 65535;
      if (info.labels_are_classes) count_classes(options.labels);
      if (have_masks && info.labels_are_classes && info.classes == 0) {
        throw FileError(
            fmt::format("{}: all positions of {} have the ignored label {}: there is nothing to learn or to "
                        "judge; --y names other labels",
                        path_of(0), set.file(0).fields()[y_field].dataset, info.ignored_label.value_or(0)));
      }
      if (!set.text_classes().empty()) info.class_names = set.text_classes();
    }
  }

  /// Takes the fields of other programs' files.
  void take_fields(const ShardFile& first, const DatasetOptions& options) {
    const auto column = [&](std::size_t f) {
      const Field& stored = first.fields()[f].field;
      return Column{.field = f, .stored = stored, .type = delivered_type(stored, false, 0, 1)};
    };
    for (std::size_t i = 0; i < first.inputs(); ++i) inputs.push_back(column(first.input(i)));
    info.x = inputs[0].stored;
    if (inputs.size() > 1) {
      std::vector<std::string> names;
      for (const Column& input : inputs) names.push_back(input.stored.name);
      put_in_order(options.wanted, names);
      std::vector<Column> ordered;
      for (const std::string& name : names) {
        ordered.push_back(*std::ranges::find_if(inputs, [&](const Column& one) { return one.stored.name == name; }));
        info.inputs.push_back({.field = ordered.back().stored});
      }
      inputs = std::move(ordered);
      info.x.name = "x";
    }
    if (first.targets() > 0) info.y = first.fields()[1].field;
    if (first.targets() < 2) return;
    for (std::size_t i = 0; i < first.targets(); ++i) {
      targets.push_back(column(first.target(i)));
      info.targets.push_back({.field = targets.back().stored});
    }
    info.y.name = "y";
  }

  /// One rule for labels of one element, of any type and shape.
  bool are_classes(LabelMeaning wanted) {
    if (!set.text_classes().empty()) return true;
    if (wanted == LabelMeaning::numbers) return false;
    if (info.y.type != FileType::float32 && info.y.type != FileType::float64) return true;
    WholeNumbers numbers(info.ignored_label);
    for (std::size_t shard = 0; shard < set.size() && numbers.are_whole(); ++shard) {
      set.stream(shard, y_field,
                 [&](std::int64_t, std::span<const std::byte> block) { numbers.add(info.y.type, block); });
    }
    if (wanted == LabelMeaning::automatic ? !numbers.are_classes() : !numbers.are_whole()) return false;
    set.warnings().push_back(
        fmt::format("{}: {} holds whole numbers as floats: taken as labels of classes (--loss mean-squared-error, or "
                    "--regression of pack, takes them as numbers to predict)",
                    path_of(0), set.file(0).fields()[y_field].dataset));
    return true;
  }

  TargetValues look_at_targets() const {
    TargetPattern pattern(info.y.elements());
    for (std::size_t shard = 0; shard < set.size() && pattern.is_binary(); ++shard) {
      set.stream(shard, y_field,
                 [&](std::int64_t, std::span<const std::byte> block) { pattern.add(info.y.type, block); });
    }
    return pattern.values();
  }

  /// Recognises rows of zeros with a single 1 as classes, rows of zeros and ones as labels, and, if classes are wanted,
  /// rows as long as the samples as masks of series.
  void understand_targets(const DatasetOptions& options) {
    const LabelMeaning wanted = options.labels;
    if (info.y.sample_shape.size() > 1) return;
    const TargetValues values = known_targets ? *known_targets : look_at_targets();
    const bool is_series = info.y.sample_shape.size() == 1 && info.y.elements() > 1 &&
                           std::ranges::any_of(inputs, [&](const Column& input) {
                             const std::vector<std::int64_t>& shape = input.stored.sample_shape;
                             return !shape.empty() && shape[0] == info.y.sample_shape[0];
                           });
    if (wanted == LabelMeaning::classes && values != TargetValues::one_hot && is_series && !known_targets) {
      info.ignored_label = options.ignored_label;
      info.labels_are_classes = are_classes(LabelMeaning::masks);
      if (info.labels_are_classes) return count_classes(LabelMeaning::masks);
    }
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
    const std::string where = fmt::format("{}: {}", path_of(0), set.file(0).fields()[y_field].dataset);
    set.warnings().push_back(
        one_hot ? fmt::format("{} holds one 1 in each row: taken as labels of {}", where, count_of(columns, "class"))
                : fmt::format("{} holds rows of 0 and 1: taken as {} labels, any of which a sample may have (--loss "
                              "mean-squared-error takes them as numbers)",
                              where, columns));
  }

  void count_classes(LabelMeaning wanted) {
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t shard = 0; shard < set.size(); ++shard) {
      set.stream(shard, y_field, [&](std::int64_t first, std::span<const std::byte> block) {
        with_elements(info.y.type, block, [&](auto elements) {
          for (std::size_t i = 0; i < elements.size(); ++i) {
            if (is_ignored(elements[i])) continue;
            const std::int64_t label = is_whole(elements[i]) ? static_cast<std::int64_t>(elements[i]) : -1;
            if (label < 0 || label > std::numeric_limits<std::int32_t>::max()) {
              throw FileError(fmt::format("{}: {} has label {}, which is no class number ({})", path_of(shard),
                                          label_place(first, i), label_text(elements[i]),
                                          info.y.elements() > 1
                                              ? "--ignore-label names the label of positions without a class"
                                              : "--loss mean-squared-error, or --regression of pack, predicts such "
                                                "numbers"));
            }
            smallest = std::min(smallest, label);
            info.classes = std::max(info.classes, label + 1);
            if (!plausible_classes(info.classes, info.samples)) {
              throw FileError(fmt::format(
                  "{}: {} has label {}, which {} not explain: it is damaged, "
                  "or {} holds no class numbers (--loss mean-squared-error, or --regression of pack, takes them "
                  "as numbers to predict)",
                  path_of(shard), label_place(first, i), label,
                  info.samples == 1 ? "1 sample does" : fmt::format("{} samples do", info.samples),
                  set.file(shard).fields()[y_field].dataset));
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
    if (inputs.size() > 1) return info.x.type;
    return delivered_type(info.x, info.has_statistics, info.value_min, info.value_max);
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

  static void to_channels_last(const Field& field, std::span<const std::byte> samples, std::size_t element,
                               std::span<std::byte> out) {
    const auto channels = static_cast<std::size_t>(field.sample_shape.back());
    const auto pixels = static_cast<std::size_t>(field.elements()) / channels;
    for (std::size_t at = 0; at < samples.size(); at += pixels * channels * element) {
      for (std::size_t c = 0; c < channels; ++c) {
        for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
          std::memcpy(&out[at + (pixel * channels + c) * element], &samples[at + (c * pixels + pixel) * element],
                      element);
        }
      }
    }
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
    if (!targets.empty()) return read_side_by_side(targets, shard, first, rows, y_type(), out, scratch);
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
    fields.push_back({column.stored.name, place.type, column.stored.sample_shape});
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
  const std::size_t shard = files_->set.shard_of(first);
  const std::int64_t within = first - shards()[shard].first;
  const ShardFile& file = files_->set.file(shard);
  MissingRows rows{.x = file.missing_rows(files_->inputs[0].field, within, samples), .y = {}};
  const auto add = [&](std::size_t field, std::vector<bool>& flags) {
    const std::vector<bool> more = file.missing_rows(field, within, samples);
    if (flags.empty()) flags.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i) flags[i] = flags[i] || more[i];
  };
  for (std::size_t i = 1; i < files_->inputs.size(); ++i) add(files_->inputs[i].field, rows.x);
  if (files_->has_y() && files_->targets.empty()) add(files_->y_field, rows.y);
  for (const auto& target : files_->targets) add(target.field, rows.y);
  return rows;
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
