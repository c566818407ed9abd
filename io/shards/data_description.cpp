#include "io/shards/data_description.hpp"

#include <optional>

#include <fmt/format.h>

#include "io/files/json_text.hpp"

namespace lockstep::io {
namespace {

using nlohmann::json;

constexpr const char* kDescribes = "the description of its data";

bool flag_entry(const json& object, const char* key) { return integer_entry(object, key) != 0; }

}  // namespace

std::string to_json(const DataDescription& description) {
  const json text = {{"sample",
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
        .x = {.name = text_entry(parsed, "name"), .type = *type, .sample_shape = integers_entry(sample, "shape")},
        .layout = text_entry(sample, "layout"),
        .has_range = flag_entry(sample, "range_is_known"),
        .value_min = real_entry(sample, "value_min"),
        .value_max = real_entry(sample, "value_max"),
        .has_statistics = flag_entry(sample, "statistics_are_known"),
        .mean = real_entry(sample, "mean"),
        .standard_deviation = real_entry(sample, "standard_deviation"),
        .labels = *labels,
        .classes = integer_entry(parsed, "classes"),
        .class_names = texts_entry(parsed, "class_names"),
        .target_names = texts_entry(parsed, "target_names"),
        .target_units = texts_entry(parsed, "target_units"),
        .scale = real_entry(input, "scale"),
        .shift = real_entry(input, "shift"),
        .per_image = flag_entry(input, "per_image"),
        .augmentation = text_entry(input, "augmentation"),
        .source = text_entry(parsed, "source")};
    const auto named = static_cast<std::int64_t>(description.class_names.size());
    if (named > 0 && named != description.classes) throw FileError("not every class has a name");
    return description;
  } catch (const FileError& error) {
    throw FileError(fmt::format("{} is damaged: {}", kDescribes, error.what()));
  }
}

}  // namespace lockstep::io
