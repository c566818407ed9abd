#include "io/datasets/shard_contents.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/datasets/delivered_numbers.hpp"
#include "io/files/element_cast.hpp"
#include "io/files/hdf5_enumeration.hpp"
#include "io/files/plural.hpp"
#include "io/text/utf8.hpp"

namespace lockstep::io {
namespace {

std::string listed(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

/// Puts `names` into the order of `wanted` if both have the same elements.
void put_in_order(const std::vector<std::string>& wanted, std::vector<std::string>& names) {
  if (std::ranges::is_permutation(wanted, names)) names = wanted;
}

}  // namespace

ShardContents::ShardContents(const DatasetOptions& options)
    : owned(is_packed(options.path) ? open_packed(options)
                                    : std::make_shared<ShardSet>(options.path, options.x, options.y, options.deadline,
                                                                 options.unlabelled, options.gaps)),
      set(*owned),
      wide_targets(options.wide_targets) {
  if (!is_packed(options.path)) describe_without_manifest(options);
  stored_y = info.y;
  if (has_y() && !info.labels_are_classes && targets.empty()) understand_targets(options);
  only_target = {.field = y_field, .stored = info.y};
  arrange(options);
  lay_side_by_side();
  understand_masks(options);
  understand_field(options);
  if (info.has_masks() && !is_packed(options.path)) name_classes_of_masks();
  only_target.stored = info.y;
}

FileType ShardContents::x_type() const noexcept {
  if (inputs.size() > 1) return info.x.type;
  return delivered_type(info.x, info.has_statistics, info.value_min, info.value_max);
}

FileType ShardContents::y_type() const noexcept {
  if (info.labels_are_classes) return FileType::int32;
  return wide_targets && is_wide(info.y.type) ? FileType::float64 : FileType::float32;
}

std::string ShardContents::last_word(const Column& input) const {
  const std::string& path = dataset_of(input);
  return path.substr(path.rfind('/') + 1);
}

bool ShardContents::is_named(const Column& column, const std::string& name) const {
  return name.empty() || name == column.stored.name || name == dataset_of(column) || name == last_word(column);
}

std::vector<ShardContents::Column*> ShardContents::fields_to_predict(const Layouts& layouts) {
  std::vector<Column*> fields;
  if (!has_y() || info.labels_are_classes) return fields;
  for (Column& target : targets) fields.push_back(&target);
  if (targets.empty()) fields.push_back(&only_target);
  std::erase_if(fields, [&](const Column* target) {
    return !are_shaped_as_masks_of_inputs(target->stored.sample_shape) && order_of(*target, layouts) == nullptr;
  });
  return fields;
}

const FieldLayout* ShardContents::order_of(const Column& target, const Layouts& layouts) const {
  for (const FieldLayout& given : layouts.fields) {
    // Letters without a name are those of the input. A field of as many extents has the same order.
    const bool is_of = given.field.empty() ? are_shaped_as_masks_of_inputs(target.stored.sample_shape) &&
                                                 given.letters.size() == target.stored.sample_shape.size() + 1
                                           : is_named(target, given.field);
    if (is_of) return &given;
  }
  return nullptr;
}

bool ShardContents::follows_channels_first(const Column& target) const {
  const std::vector<std::int64_t>& shape = target.stored.sample_shape;
  return std::ranges::any_of(inputs, [&](const Column& input) {
    const std::vector<std::int64_t>& other = input.stored.sample_shape;  // channels last
    return input.channels_first && other.size() == shape.size() && shape.size() > 1 &&
           std::equal(shape.begin() + 1, shape.end(), other.begin()) &&
           !std::equal(shape.begin(), shape.end() - 1, other.begin());
  });
}

void ShardContents::arrange(const DatasetOptions& options) {
  const Layouts& layouts = options.layout;
  const std::vector<Column*> fields = fields_to_predict(layouts);
  for (const FieldLayout& given : layouts.fields) {
    const auto is_of = [&](const Column& input) { return is_named(input, given.field); };
    std::ptrdiff_t found = std::ranges::count_if(inputs, is_of);
    if (!given.field.empty())
      found += std::ranges::count_if(fields, [&](const Column* field) { return is_of(*field); });
    if (found == 1) continue;
    // Samples without targets: the order may be that of the target.
    if (found == 0 && !has_y() && options.unlabelled == Unlabelled::accepted) continue;
    std::vector<std::string> names;
    for (const Column& input : inputs) names.push_back(inputs.size() > 1 ? input.stored.name : last_word(input));
    throw FileError(fmt::format("{}: --layout {}{}{}: the inputs are {}", path_of(0), given.field,
                                given.field.empty() ? "" : "=", given.letters, listed(names)));
  }
  for (Column& input : inputs) {
    const auto given =
        std::ranges::find_if(layouts.fields, [&](const FieldLayout& one) { return is_named(input, one.field); });
    given == layouts.fields.end() ? arrange(layouts.images, input, "samples") : arrange(*given, input);
  }
  if (inputs.size() == 1) info.x.sample_shape = inputs[0].stored.sample_shape;
  const std::vector<Column> rows = targets;
  for (Column* const field : fields) {
    if (const FieldLayout* const given = order_of(*field, layouts)) {
      arrange(*given, *field);
    } else if (has_channels(*field, options)) {
      arrange(follows_channels_first(*field) ? Layout::channels_first : layouts.images, *field, last_word(*field));
    }
  }
  if (targets.empty() && !fields.empty()) info.y.sample_shape = only_target.stored.sample_shape;
  const auto has_order = [&](const Column& target) { return order_of(target, layouts) != nullptr; };
  if (first_with_other_positions(options) == nullptr || std::ranges::any_of(targets, has_order)) return;
  targets = rows;
  targets_are_rows = true;
}

const ShardContents::Column* ShardContents::first_with_other_positions(const DatasetOptions& options) const {
  for (const Column& target : targets) {
    if (positions_of(target, options) != positions_of(targets[0], options)) return &target;
  }
  return nullptr;
}

void ShardContents::arrange(const FieldLayout& given, Column& column) const {
  std::vector<std::int64_t>& shape = column.stored.sample_shape;
  if (given.letters.size() != shape.size() + 1) {
    throw FileError(fmt::format("{}: --layout {} names {} extents, and the samples of {} have {}: [{}]", path_of(0),
                                given.letters, given.letters.size() - 1, column.stored.name, shape.size(),
                                fmt::join(shape, ", ")));
  }
  column.channels_first = given.letters[1] == 'c' && shape.size() > 1;
  if (column.channels_first) std::rotate(shape.begin(), shape.begin() + 1, shape.end());
}

void ShardContents::arrange(Layout layout, Column& column, const std::string& what) {
  std::vector<std::int64_t>& shape = column.stored.sample_shape;
  if (shape.size() != 3 || layout == Layout::channels_last) return;
  const std::int64_t first = shape[0];
  const bool looks_so = (first == 1 || first == 3 || first == 4) && shape[1] > 4 && shape[2] > 4;
  if (!looks_so && layout == Layout::automatic) return;
  column.channels_first = true;
  const std::vector<std::int64_t> stored = shape;
  std::rotate(shape.begin(), shape.begin() + 1, shape.end());
  if (layout == Layout::channels_first) return;
  set.warnings().push_back(
      fmt::format("{}: {} of [{}] are taken as channels first, {} x {} pixels of {} "
                  "(--layout says otherwise)",
                  path_of(0), what, fmt::join(stored, ", "), shape[0], shape[1],
                  shape[2] == 1 ? "1 channel" : fmt::format("{} channels", shape[2])));
}

void ShardContents::lay_side_by_side() {
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
    row.unit.clear();
  };
  if (inputs.size() > 1) place(inputs, info.inputs, info.x);
  if (targets.size() > 1) place(targets, info.targets, info.y);
  if (targets.size() > 1) stored_y = info.y;
}

bool ShardContents::are_shaped_as_masks_of_inputs(std::span<const std::int64_t> shape) const {
  return std::ranges::any_of(
      inputs, [&](const Column& input) { return are_shaped_as_masks(input.stored.sample_shape, shape); });
}

std::vector<std::size_t> ShardContents::chosen(const DatasetOptions& options, const ShardManifest& manifest,
                                               FieldRole role) const {
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

void ShardContents::take_fields(const DatasetOptions& options, const ShardManifest& manifest) {
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

void ShardContents::together(const std::vector<FieldRange>& ranges) {
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

void ShardContents::understand_masks(const DatasetOptions& options) {
  std::vector<std::int64_t>& shape = info.y.sample_shape;
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

bool ShardContents::has_channels(const Column& target, const DatasetOptions& options) const {
  if (const FieldLayout* const given = order_of(target, options.layout))
    return given->letters.find('c') != std::string::npos;
  constexpr std::size_t kExtentsOfImage = 3;  // an image of two extents has one channel
  std::size_t read = options.extents;
  for (const Column& input : inputs) {
    if (options.extents == 0) read = std::max({read, input.stored.sample_shape.size(), kExtentsOfImage});
  }
  return target.stored.sample_shape.size() >= read;
}

std::vector<std::int64_t> ShardContents::positions_of(const Column& target, const DatasetOptions& options) const {
  std::vector<std::int64_t> positions = target.stored.sample_shape;
  if (order_of(target, options.layout) == nullptr && !are_shaped_as_masks_of_inputs(positions)) return {};
  if (has_channels(target, options)) positions.pop_back();
  return positions;
}

void ShardContents::understand_field(const DatasetOptions& options) {
  if (!has_y() || info.labels_are_classes || targets_are_rows) return;
  if (targets.empty()) {
    info.field = positions_of(only_target, options);
    return;
  }
  const std::vector<std::int64_t> field = positions_of(targets[0], options);
  if (const Column* const other = first_with_other_positions(options)) {
    throw FileError(fmt::format(
        "{}: {} has numbers of [{}] for each sample and {} of [{}]: several targets have the same positions, or are "
        "rows of numbers",
        path_of(0), targets[0].stored.name, fmt::join(targets[0].stored.sample_shape, ", "), other->stored.name,
        fmt::join(other->stored.sample_shape, ", ")));
  }
  if (field.empty()) return;
  info.field = field;
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const std::vector<std::int64_t>& shape = targets[i].stored.sample_shape;
    Field& of_position = info.targets[i].field;
    of_position.sample_shape.assign(shape.begin() + std::ssize(field), shape.end());
    targets[i].first = info.targets[i].first = channels;
    channels += of_position.elements();
  }
  info.y.sample_shape = field;
  info.y.sample_shape.push_back(channels);
}

void ShardContents::name_classes_of_masks() {
  const StoredField& masks = set.file(0).fields()[y_field];
  if (masks.meaning.matters()) return;  // other numbers than those of the members
  const auto names_in = [&](std::size_t shard) { return enumeration_members(set.path(shard), masks.dataset); };
  const std::map<std::int64_t, std::string> names = names_in(0);
  if (names.empty()) return;
  for (std::size_t shard = 1; shard < set.size(); ++shard) {
    if (names_in(shard) != names) return;
  }
  std::vector<std::string> of_classes;
  for (std::int64_t number = 0; number < info.classes; ++number) {
    const auto name = names.find(number);
    if (name == names.end() || first_not_utf8(name->second)) return;
    of_classes.push_back(name->second);
  }
  info.class_names = std::move(of_classes);
}

std::string ShardContents::label_place(std::int64_t first, std::size_t index) const {
  const std::int64_t each = info.y.elements(), at = static_cast<std::int64_t>(index);
  return fmt::format("sample {}{}", first + at / each, place_text(info.y.sample_shape, at % each));
}

std::shared_ptr<ShardSet> ShardContents::open_packed(const DatasetOptions& options) {
  const ShardManifest manifest = [&] {
    if (options.shared) return options.shared->manifest();
    const IoDeadline::Operation reading(options.deadline, IoDeadline::Kind::reading, options.path);
    return read_manifest(options.path);
  }();
  if (manifest.tokens) {
    throw FileError(
        fmt::format("{}: is a corpus of tokens, not a set of samples; language models read it", options.path.string()));
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

void ShardContents::describe_without_manifest(const DatasetOptions& options) {
  const ShardFile& first = set.file(0);
  info.samples = set.rows();
  take_fields(first, options);
  info.source = (options.path / "").parent_path().filename().string();  // the slash: "folder/" has a name, too
  if (const auto& attributes = first.attributes()) {                    // shards that have lost their manifest
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

void ShardContents::take_fields(const ShardFile& first, const DatasetOptions& options) {
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

bool ShardContents::are_classes(LabelMeaning wanted) {
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

TargetValues ShardContents::look_at_targets() const {
  TargetPattern pattern(info.y.elements());
  for (std::size_t shard = 0; shard < set.size() && pattern.is_binary(); ++shard) {
    set.stream(shard, y_field,
               [&](std::int64_t, std::span<const std::byte> block) { pattern.add(info.y.type, block); });
  }
  return pattern.values();
}

void ShardContents::understand_targets(const DatasetOptions& options) {
  const LabelMeaning wanted = options.labels;
  if (info.y.sample_shape.size() > 1) return;
  const TargetValues values = known_targets ? *known_targets : look_at_targets();
  const bool is_series =
      info.y.sample_shape.size() == 1 && info.y.elements() > 1 && std::ranges::any_of(inputs, [&](const Column& input) {
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

void ShardContents::count_classes(LabelMeaning wanted) {
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
                                            ? "--ignore-label names the label of positions without a class, --loss "
                                              "mean-squared-error predicts such numbers"
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
  set.warnings().push_back(
      fmt::format("{}: labels begin at {}: the classes below have no samples, and outputs of the network all the same",
                  path_of(0), smallest));
}

}  // namespace lockstep::io
