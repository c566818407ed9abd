#include "io/shards/data_description.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "io/files/json_text.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

constexpr const char* kDescribes = "the description of its data";

/// Adds a scale if it is not empty. Checkpoints of older versions have no such entry.
void add_scale(json& object, const char* key, const FeatureScale& scale) {
  if (scale.empty()) return;
  object[key] = {{"mean", scale.mean}, {"deviation", scale.deviation}};
  for (const FeaturePart& part : scale.parts) {
    object[key]["parts"].push_back({{"elements", part.elements}, {"features", part.features}});
  }
}

FeatureScale scale_entry(const json& object, const char* key) {
  if (!object.contains(key)) return {};
  const json& numbers = entry(object, key);
  FeatureScale scale{.mean = reals_entry(numbers, "mean"), .deviation = reals_entry(numbers, "deviation")};
  if (numbers.contains("parts")) {
    for (const json& part : list_entry(numbers, "parts")) {
      scale.parts.push_back({.elements = integer_entry(part, "elements"), .features = integer_entry(part, "features")});
    }
  }
  const bool positive = std::all_of(scale.deviation.begin(), scale.deviation.end(), [](double one) { return one > 0; });
  if (scale.mean.size() != scale.deviation.size() || !positive) {
    throw FileError(fmt::format("{} has no deviation above 0 for each mean", key));
  }
  return scale;
}

/// The unit, or "" without the entry, as in checkpoints of older versions.
std::string unit_entry(const json& object) { return object.contains("unit") ? text_entry(object, "unit") : ""; }

bool flag_entry(const json& object, const char* key) { return integer_entry(object, key) != 0; }

/// The list, or an empty one without the entry, as in checkpoints of older versions.
std::vector<float> floats_entry(const json& object, const char* key) {
  std::vector<float> narrow;
  if (!object.contains(key)) return narrow;
  for (const double value : reals_entry(object, key)) narrow.push_back(static_cast<float>(value));
  return narrow;
}

/// The extents, or none without the entry.
std::vector<std::int64_t> extents_entry(const json& object, const char* key) {
  if (!object.contains(key)) return {};
  std::vector<std::int64_t> extents = integers_entry(object, key);
  const auto positive = [](std::int64_t extent) { return extent > 0 && extent <= std::int64_t{1} << 30; };
  if (!std::ranges::all_of(extents, positive)) throw FileError(fmt::format("a {} has an impossible extent", key));
  return extents;
}

void take_inputs(const json& list, DataDescription& description) {
  std::int64_t numbers = 0;
  for (const json& input : list) {
    const std::optional<FileType> type = file_type_of_name(text_entry(input, "type"));
    if (!type) throw FileError("the type of an input is unknown");
    const Field& field = description.inputs.emplace_back(
        Field{text_entry(input, "name"), *type, integers_entry(input, "shape"), unit_entry(input)});
    std::int64_t elements = 1;
    for (const std::int64_t extent : field.sample_shape) {
      if (extent < 1 || extent > description.x.elements() / elements)
        throw FileError("an input has an impossible shape");
      elements *= extent;
    }
    numbers += elements;
  }
  if (numbers != description.x.elements()) throw FileError("its inputs have other numbers than its samples");
}

}  // namespace

std::string to_json(const DataDescription& description) {
  json text = {{"sample",
                {{"type", name_of(description.x.type)},
                 {"shape", description.x.sample_shape},
                 {"layout", description.layout},
                 {"range_is_known", description.has_range ? 1 : 0},
                 {"value_min", description.value_min},
                 {"value_max", description.value_max},
                 {"statistics_are_known", description.has_statistics ? 1 : 0},
                 {"mean", description.mean},
                 {"standard_deviation", description.standard_deviation}}},
               {"input",
                {{"scale", description.scale},
                 {"shift", description.shift},
                 {"per_image", description.per_image ? 1 : 0},
                 {"augmentation", description.augmentation}}},
               {"labels", name_of(description.labels)},
               {"classes", description.classes},
               {"class_names", description.class_names},
               {"target_names", description.target_names},
               {"target_units", description.target_units},
               {"name", description.x.name},
               {"source", description.source}};
  if (!description.x.unit.empty()) text["sample"]["unit"] = description.x.unit;
  for (const Field& input : description.inputs) {
    text["inputs"].push_back({{"name", input.name}, {"type", name_of(input.type)}, {"shape", input.sample_shape}});
    if (!input.unit.empty()) text["inputs"].back()["unit"] = input.unit;
  }
  if (!description.contents.empty()) text["contents"] = description.contents;
  if (!description.mask.empty()) text["mask"] = description.mask;
  if (!description.field.empty()) text["field"] = description.field;
  if (!description.target_shape.empty()) text["target_shape"] = description.target_shape;
  if (description.ignored_label) text["ignored_label"] = *description.ignored_label;
  if (!description.class_counts.empty()) text["class_counts"] = description.class_counts;
  if (!description.target_means.empty()) text["target_means"] = description.target_means;
  if (!description.target_medians.empty()) text["target_medians"] = description.target_medians;
  if (description.labels_in_part) text["labels_in_part"] = 1;
  if (description.window > 0) text["windows"] = {{"window", description.window}, {"horizon", description.horizon}};
  if (description.table) text["table"] = parse_json(to_json(*description.table));
  add_scale(text, "feature_scale", description.features);
  add_scale(text, "target_scale", description.targets);
  return to_text(text);
}

DataDescription data_description_from_json(std::string_view text) {
  try {
    const json parsed = parse_json(text);
    const json& sample = entry(parsed, "sample");
    const json& input = entry(parsed, "input");
    const std::optional<FileType> type = file_type_of_name(text_entry(sample, "type"));
    const std::optional<Labels> labels = labels_of_name(text_entry(parsed, "labels"));
    if (!type || !labels) throw FileError("a type or a kind of labels is unknown");
    DataDescription description{
        .x = {.name = text_entry(parsed, "name"),
              .type = *type,
              .sample_shape = integers_entry(sample, "shape"),
              .unit = unit_entry(sample)},
        .layout = text_entry(sample, "layout"),
        .has_range = flag_entry(sample, "range_is_known"),
        .value_min = real_entry(sample, "value_min"),
        .value_max = real_entry(sample, "value_max"),
        .has_statistics = flag_entry(sample, "statistics_are_known"),
        .mean = real_entry(sample, "mean"),
        .standard_deviation = real_entry(sample, "standard_deviation"),
        .labels = *labels,
        .classes = integer_entry(parsed, "classes"),
        .mask = extents_entry(parsed, "mask"),
        .field = extents_entry(parsed, "field"),
        .target_shape = extents_entry(parsed, "target_shape"),
        .class_names = texts_entry(parsed, "class_names"),
        .target_names = texts_entry(parsed, "target_names"),
        .target_units = texts_entry(parsed, "target_units"),
        .class_counts =
            parsed.contains("class_counts") ? integers_entry(parsed, "class_counts") : std::vector<std::int64_t>{},
        .target_means = floats_entry(parsed, "target_means"),
        .target_medians = floats_entry(parsed, "target_medians"),
        .labels_in_part = parsed.contains("labels_in_part") && flag_entry(parsed, "labels_in_part"),
        .scale = real_entry(input, "scale"),
        .shift = real_entry(input, "shift"),
        .features = scale_entry(parsed, "feature_scale"),
        .targets = scale_entry(parsed, "target_scale"),
        .per_image = flag_entry(input, "per_image"),
        .augmentation = text_entry(input, "augmentation"),
        .source = text_entry(parsed, "source"),
        .contents = parsed.contains("contents") ? text_entry(parsed, "contents") : ""};
    if (parsed.contains("inputs")) take_inputs(list_entry(parsed, "inputs"), description);
    if (!description.features.parts.empty() && !description.features.fits(description.x.elements())) {
      throw FileError("feature_scale has other parts than its samples");
    }
    if (parsed.contains("windows")) {
      description.window = integer_entry(parsed.at("windows"), "window");
      description.horizon = integer_entry(parsed.at("windows"), "horizon");
      if (description.window < 1 || description.horizon < 1 || description.x.elements() % description.window != 0) {
        throw FileError("its windows are not those of its samples");
      }
    }
    if (parsed.contains("table")) {
      description.table = table_from_json(to_text(parsed.at("table")));
      const std::int64_t targets = description.window > 0 ? std::ssize(description.table->labels) : 0;
      const std::int64_t of_step = description.x.elements() / std::max<std::int64_t>(1, description.window);
      if (description.table->features() + targets != of_step) {
        throw FileError("its table has other columns than its samples");
      }
    }
    const auto named = static_cast<std::int64_t>(description.class_names.size());
    if (named > 0 && named != description.classes) throw FileError("not every class has a name");
    const std::vector<std::int64_t>& counts = description.class_counts;
    if (!counts.empty() && std::ssize(counts) != description.classes) throw FileError("not every class has a count");
    if (std::any_of(counts.begin(), counts.end(), [](std::int64_t count) { return count < 0; })) {
      throw FileError("a class has fewer samples than none");
    }
    if (parsed.contains("ignored_label")) description.ignored_label = integer_entry(parsed, "ignored_label");
    const std::vector<std::int64_t>&field = description.field, &shape = description.target_shape;
    const bool fits = field.size() <= shape.size() && shape.size() <= field.size() + (field.empty() ? 0 : 1) &&
                      std::equal(field.begin(), field.end(), shape.begin());
    if (!fits) throw FileError("a field has other extents than its positions");
    return description;
  } catch (const FileError& error) {
    throw FileError(fmt::format("{} is damaged: {}", kDescribes, error.what()));
  }
}

}  // namespace lockstep::io
