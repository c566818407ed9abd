#include "app/data/data_match.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/image_options.hpp"
#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"
#include "io/datasets/relabelled_dataset.hpp"
#include "io/shards/class_names.hpp"

namespace lockstep::app {

namespace {

/// Ratios between the magnitudes of two ranges. From kUnusualScale on the difference is probably an error; from
/// kOtherScale on it is certainly one if the samples are images.
constexpr double kOtherScale = 64, kUnusualScale = 8;
constexpr double kBytes = 255;
constexpr std::size_t kMaxNames = 10;  ///< maximum number of names in one message

std::string layout_of(const io::DatasetInfo& info) {
  if (info.tokens) return "tokens";
  if (!info.inputs.empty()) return "inputs side by side";
  if (info.windows) return "steps, numbers";
  switch (info.x.sample_shape.size()) {
    case 1:
      return "features";
    case 2:
      return "height, width";
    case 3:
      return "height, width, channels";
    default:
      return "";
  }
}

std::string listed(const std::vector<std::string>& names) {
  const auto shown = std::span(names).first(std::min(names.size(), kMaxNames));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > shown.size() ? fmt::format(" and {} more", names.size() - shown.size()) : "");
}

bool has_twins(const std::vector<std::string>& names) {
  return std::set<std::string>(names.begin(), names.end()).size() < names.size();
}

/// Removes extents of 1, which do not affect the order of elements.
std::vector<std::int64_t> squeezed(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result), [](std::int64_t extent) { return extent != 1; });
  return result;
}

double magnitude(const ValueRange& range) { return std::max(std::abs(range.least), std::abs(range.greatest)); }

std::string range_text(io::FileType type, const ValueRange& range) {
  return fmt::format("{} from {:.6g} to {:.6g}", io::name_of(type), range.least, range.greatest);
}

/// The unit of each target, as a field's file says it, or as its name does: "price [EUR]". Empty: all are unknown.
std::vector<std::string> units_of_targets(const io::DatasetInfo& info, const std::vector<std::string>& names) {
  std::vector<std::string> units;
  for (const io::FieldRange& target : info.targets) {
    units.insert(units.end(), static_cast<std::size_t>(target.field.elements()), target.field.unit);
  }
  if (units.empty() && !info.y.unit.empty() && !info.labels_are_classes) {
    units.assign(static_cast<std::size_t>(info.target_count()), info.y.unit);
  }
  if (units.empty()) std::ranges::transform(names, std::back_inserter(units), io::unit_of);
  return units;
}

}  // namespace

io::DataDescription describe_data(const io::DatasetInfo& info, const DataOptions& settings) {
  const bool classes = info.labels_are_classes && !info.tokens && !info.y.name.empty();
  const std::optional<ValueRange> range = known_range(info);
  io::DataDescription description{
      .x = info.x,
      .inputs = {},
      .layout = layout_of(info),
      .has_range = range.has_value(),
      .value_min = range ? range->least : 0,
      .value_max = range ? range->greatest : 1,
      .has_statistics = info.has_statistics && !info.tokens,
      .mean = info.has_statistics && !info.tokens ? info.mean : 0,
      .standard_deviation = info.has_statistics && !info.tokens ? info.standard_deviation : 1,
      .labels = classes                              ? io::Labels::classes
                : info.y.name.empty() || info.tokens ? io::Labels::none
                                                     : io::Labels::targets,
      .classes = classes ? info.classes : 0,
      .ignored_label = info.ignored_label,
      .mask = info.has_masks() ? info.y.sample_shape : std::vector<std::int64_t>{},
      .field = info.field,
      .target_shape = info.field.empty() ? std::vector<std::int64_t>{} : info.y.sample_shape,
      .class_names = classes ? info.class_names : std::vector<std::string>{},
      .target_names = info.windows             ? info.windows->target_names
                      : info.table && !classes ? info.table->labels
                                               : std::vector<std::string>{},
      .target_units = {},
      .scale = 1,
      .shift = 0,
      .per_image = settings.normalize.kind == Normalization::Kind::per_image,
      .augmentation = to_text(settings.augment),
      .source = info.source,
      .table = info.table,
      .window = info.windows ? info.windows->window : 0,
      .horizon = info.windows ? info.windows->horizon : 0};
  for (const io::FieldRange& input : info.inputs) description.inputs.push_back(input.field);
  std::ranges::copy(io::names_of_numbers(info.targets), std::back_inserter(description.target_names));
  description.target_units = units_of_targets(info, description.target_names);
  if (settings.normalize.kind == Normalization::Kind::affine) {
    description.scale = settings.normalize.affine.scale;
    description.shift = settings.normalize.affine.shift;
  }
  if (static_cast<std::int64_t>(description.class_names.size()) != description.classes) description.class_names.clear();
  return description;
}

bool is_same_data(const io::DataDescription& a, const io::DataDescription& b) {
  const auto meaning = [](const io::DataDescription& one) {
    std::vector<io::Field> fields = one.inputs;
    fields.push_back(one.x);
    for (io::Field& field : fields) field.unit.clear();  // compare_units() warns of another one
    return std::tuple(std::move(fields), std::tie(one.contents, one.labels, one.classes, one.ignored_label, one.mask,
                                                  one.field, one.target_names, one.table, one.window, one.horizon));
  };
  // Earlier versions read no names of the classes of masks.
  const bool same_names =
      a.class_names == b.class_names || (!a.mask.empty() && (a.class_names.empty() || b.class_names.empty()));
  return !a.contents.empty() && same_names && meaning(a) == meaning(b);
}

std::vector<std::string> changes_of(const io::DataDescription& before, const io::DataDescription& now) {
  std::vector<std::string> changes;
  const auto compare = [&](std::string_view what, const std::string& then, const std::string& here) {
    if (then != here) changes.push_back(fmt::format("its {} are {} now, and were {}", what, here, then));
  };
  const auto samples = [](const io::DataDescription& data) {
    return fmt::format("{} [{}]", io::name_of(data.x.type), fmt::join(data.x.sample_shape, ", "));
  };
  const auto classes = [](const io::DataDescription& data) {
    return data.class_names.empty() ? fmt::format("{} without names", data.classes) : listed(data.class_names);
  };
  compare("samples", samples(before), samples(now));
  compare("classes", classes(before), classes(now));
  compare("targets", listed(before.target_names), listed(now.target_names));
  if (!changes.empty()) return changes;
  const bool known = !before.contents.empty() && !now.contents.empty();
  changes.emplace_back(known ? "its numbers, their types or order, or the part taken by --validation are others now"
                             : "its files, their numbers or order, or the part taken by --validation are others now");
  return changes;
}

std::optional<ValueRange> known_range(const io::DatasetInfo& info) {
  if (info.tokens || (!info.has_statistics && info.x.type != io::FileType::uint8)) return std::nullopt;
  return ValueRange{.least = info.value_min, .greatest = info.value_max};
}

ValueRange measured_range(const io::Dataset& dataset) {
  constexpr std::int64_t kMaxSamples = 256;
  constexpr std::size_t kMaxBytes = std::size_t{16} << 20;
  const std::int64_t samples = dataset.info().samples;
  const auto fit = static_cast<std::int64_t>(kMaxBytes / std::max<std::size_t>(1, dataset.x_bytes()));
  const std::int64_t count = std::clamp<std::int64_t>(std::min(fit, samples), 1, kMaxSamples);
  std::vector<std::byte> x(dataset.x_bytes()), y(dataset.y_bytes());
  ValueRange range{.least = HUGE_VAL, .greatest = -HUGE_VAL};
  const auto add = [&]<class Number>(const Number* numbers) {
    const auto [least, greatest] = std::minmax_element(numbers, numbers + x.size() / sizeof(Number));
    range.least = std::min<double>(range.least, *least);
    range.greatest = std::max<double>(range.greatest, *greatest);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t sample = samples * i / count;
    dataset.read(std::span(&sample, 1), io::kNoEpoch, x, y);
    switch (dataset.x_type()) {
      case io::FileType::uint8:
        add(reinterpret_cast<const std::uint8_t*>(x.data()));
        break;
      case io::FileType::float64:
        add(reinterpret_cast<const double*>(x.data()));
        break;
      default:
        add(reinterpret_cast<const float*>(x.data()));
    }
  }
  return range;
}

namespace {

/// Names classes without names by number if all `others` are whole numbers.
std::vector<std::string> comparable_names(const std::vector<std::string>& names, std::int64_t classes,
                                          const std::vector<std::string>& others) {
  return names.empty() && io::all_whole_numbers(others) ? io::numbered_classes(classes) : names;
}

}  // namespace

ClassMatch match_classes(const std::vector<std::string>& trained_on, std::int64_t outputs, const io::DatasetInfo& data,
                         const std::filesystem::path& path) {
  ClassMatch match;
  const std::vector<std::string> data_names =
      std::ssize(data.class_names) == data.classes ? data.class_names : std::vector<std::string>{};
  const std::vector<std::string> names = comparable_names(data_names, data.classes, trained_on),
                                 known = comparable_names(trained_on, outputs, data_names);
  const bool compared = !known.empty() && !names.empty();
  if (!compared || names == known) {
    // The labels of a table without class names are the class numbers themselves: nothing to warn about.
    const bool numbers = trained_on.empty() && names.empty() && data.table && data.classes <= outputs;
    if (!compared && !numbers && (data.classes < outputs || !known.empty() || !names.empty())) {
      match.warning =
          fmt::format("{} has {}, the network {}, and {}: class 0 is taken for the network's class 0, and so on",
                      path.string(), counted(data.classes, "class"), outputs,
                      !known.empty()  ? fmt::format("only the network's have names ({})", listed(known))
                      : names.empty() ? "they have no names"
                                      : "only those of the data have names");
    }
    return match;
  }
  if (has_twins(names) || has_twins(known)) {
    throw UsageError(
        fmt::format("{}: two of its classes, or of the network's, have one name ({}), so that nobody can "
                    "tell which is which: name them apart in {}",
                    path.string(), listed(has_twins(names) ? names : known), (path / io::kManifestName).string()));
  }
  std::vector<std::string> unknown;
  const std::vector<std::optional<std::size_t>> places = io::places_among(known, names);
  bool alike = names.size() == known.size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    alike = alike && places[i] == i;
    if (places[i]) {
      match.output_of_class.push_back(static_cast<std::int32_t>(*places[i]));
    } else {
      unknown.push_back(names[i]);
    }
  }
  if (alike) return {};  // the same classes in another spelling
  if (!unknown.empty()) {
    throw UsageError(
        fmt::format("{} has classes that the network does not know: {}; it knows {}: leave them out, or train on them",
                    path.string(), listed(unknown), listed(known)));
  }
  match.note = fmt::format("classes are matched by name: the {} of {} with the network's {}", names.size(),
                           path.string(), known.size());
  return match;
}

std::unique_ptr<io::Dataset> relabelled(std::unique_ptr<io::Dataset> data, const ClassMatch& match,
                                        const std::vector<std::string>& trained_on, std::int64_t outputs) {
  if (match.output_of_class.empty() || data->info().y.name.empty()) return data;
  return std::make_unique<io::RelabelledDataset>(std::move(data), match.output_of_class, outputs, trained_on);
}

void require_same_targets(std::span<const std::string> network, std::span<const io::FieldRange> data,
                          const std::filesystem::path& path) {
  const std::vector<std::string> names = io::names_of_numbers(data);
  if (names.empty() || network.empty() || std::ranges::equal(network, names)) return;
  throw UsageError(fmt::format("{}: has the targets {}, and the network learns {}: --y names them in its order",
                               path.string(), fmt::join(names, " and "), fmt::join(network, " and ")));
}

void require_same_extents(const io::Field& network, const io::Field& data, const std::string& layout,
                          const std::filesystem::path& path) {
  const std::vector<std::int64_t> before = squeezed(network.sample_shape), now = squeezed(data.sample_shape);
  const bool flat = before.size() < 2 || now.size() < 2;
  if (flat || before == now || network.elements() != data.elements()) return;
  throw UsageError(fmt::format(
      "{}: its samples are {}, those that the network was trained on {}{}: their numbers lie in another order; pack "
      "them in that one",
      path.string(), fmt::join(data.sample_shape, " x "), fmt::join(network.sample_shape, " x "),
      layout.empty() ? "" : fmt::format(" ({})", layout)));
}

void require_same_inputs(std::span<const io::FieldRange> network, std::span<const io::FieldRange> data,
                         const std::filesystem::path& path) {
  const auto alike = [](const io::FieldRange& a, const io::FieldRange& b) {
    return squeezed(a.field.sample_shape) == squeezed(b.field.sample_shape);
  };
  const auto is_named = [&](const io::FieldRange& one) {
    return std::ranges::any_of(network, [&](const auto& other) { return other.field.name == one.field.name; });
  };
  const auto same_name = [](const io::FieldRange& a, const io::FieldRange& b) { return a.field.name == b.field.name; };
  // Inputs are matched by name, or by order if no name of the data is known to the network.
  const bool in_order = std::ranges::equal(network, data, same_name) || std::ranges::none_of(data, is_named);
  if (in_order && std::ranges::equal(network, data, alike)) return;
  const auto listed = [](std::span<const io::FieldRange> inputs) {
    std::vector<std::string> texts;
    for (const io::FieldRange& input : inputs) {
      texts.push_back(fmt::format("{} [{}]", input.field.name, fmt::join(input.field.sample_shape, ", ")));
    }
    return texts.empty() ? std::string("one input") : fmt::format("the inputs {}", fmt::join(texts, " and "));
  };
  throw UsageError(fmt::format("{}: has {}, and the network was made for {}: --x names them in its order",
                               path.string(), listed(data), listed(network)));
}

void require_same_fields(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                         const std::filesystem::path& path) {
  std::vector<io::FieldRange> inputs;
  for (const io::Field& input : trained_on.inputs) inputs.push_back({.field = input});
  require_same_inputs(inputs, data.inputs, path);
  require_same_targets(trained_on.target_names, data.targets, path);
}

void require_same_samples(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                          const std::filesystem::path& path) {
  require_same_fields(trained_on, data, path);
  require_same_extents(trained_on.x, data.x, trained_on.layout, path);
}

std::string compare_ranges(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                           const std::optional<ValueRange>& range, const std::filesystem::path& path,
                           const std::string& remedy) {
  if (trained_on.per_image) return "";  // each image is normalised to the same mean and deviation
  const bool bytes_before = trained_on.x.type == io::FileType::uint8, bytes_now = data.x.type == io::FileType::uint8;
  if (bytes_before && bytes_now) return "";
  if (!trained_on.has_range || !range) {
    if (bytes_before == bytes_now) return "";
    return fmt::format("{} holds {}, and the network was trained on {} of a range that is not known: see whether {}",
                       path.string(), io::name_of(data.x.type), io::name_of(trained_on.x.type),
                       "both mean the same; --normalize says how numbers become its input");
  }
  const ValueRange before{.least = trained_on.value_min, .greatest = trained_on.value_max};
  const double smaller = std::min(magnitude(before), magnitude(*range)),
               larger = std::max(magnitude(before), magnitude(*range));
  if (smaller == 0 || larger / smaller < kUnusualScale) return "";
  // Images: one range lies in [0, 1] or around 0, the other one goes up to 255.
  const bool images = bytes_before || bytes_now || (larger <= kBytes && larger > kBytes / 2 && smaller <= 1);
  const std::string text = fmt::format("{} holds {}, and the network was trained on {}", path.string(),
                                       range_text(data.x.type, *range), range_text(trained_on.x.type, before));
  if (images && larger / smaller >= kOtherScale) throw UsageError(fmt::format("{}: {}", text, remedy));
  return fmt::format("{}: is that meant? {}", text, remedy);
}

std::vector<std::string> compare_units(const io::DataDescription& trained_on, const io::DatasetInfo& data,
                                       const std::filesystem::path& path) {
  std::vector<std::string> warnings;
  const auto compare = [&](const std::string& name, const std::string& before, const std::string& now) {
    if (before.empty() || now.empty() || before == now) return;
    warnings.push_back(fmt::format(
        "{}: {} is in {}, and the network was trained on {}: is that meant? Its numbers are taken as they are: convert "
        "them, or write one unit in one spelling (attribute units)",
        path.string(), name, now, before));
  };
  if (trained_on.inputs.empty() && data.inputs.empty()) compare("x", trained_on.x.unit, data.x.unit);
  for (std::size_t i = 0; i < std::min(trained_on.inputs.size(), data.inputs.size()); ++i) {
    compare(data.inputs[i].field.name, trained_on.inputs[i].unit, data.inputs[i].field.unit);
  }
  if (data.y.name.empty() || data.labels_are_classes || data.table) return warnings;  // a table's names have its units
  const std::vector<std::string>& before = trained_on.target_units;
  const std::vector<std::string> names = io::names_of_numbers(data.targets), now = units_of_targets(data, names);
  for (std::size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (i > 0 && before[i] == before[i - 1] && now[i] == now[i - 1]) continue;
    compare(i < names.size() ? names[i] : "y", before[i], now[i]);
  }
  return warnings;
}

std::string compare_vocabularies(const io::TokenInfo& trained_on, const io::TokenInfo& data,
                                 const std::filesystem::path& path) {
  if (io::same_vocabulary(trained_on, data)) return "";
  constexpr const char* kElsewhere = "ids";
  if (trained_on.kind == kElsewhere || data.kind == kElsewhere) {
    if (trained_on.kind == data.kind) return "";  // only the sizes differ, which another check refuses
    return fmt::format(
        "{} holds tokens of kind {}, and the network was trained on kind {}: see whether they are the "
        "same tokens",
        path.string(), data.kind, trained_on.kind);
  }
  throw UsageError(fmt::format(
      "{} was made with another vocabulary ({} tokens of kind {}) than the one that the network was trained "
      "with ({} of kind {}): pack it with --vocabulary-from and the data of the run",
      path.string(), data.vocabulary, data.kind, trained_on.vocabulary, trained_on.kind));
}

}  // namespace lockstep::app
