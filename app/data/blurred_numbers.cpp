#include "app/data/blurred_numbers.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "io/shards/target_values.hpp"

namespace lockstep::app {

namespace {

constexpr double kAlwaysExact = 0x1p53;  ///< float64 holds all whole numbers up to here

/// A feature or target.
struct Number {
  std::string name;
  bool is_long;  ///< stored as an integer of 64 bits
};

bool is_long(const io::Field& field) { return field.type == io::FileType::int64 || field.type == io::FileType::uint64; }

/// Returns the name of each feature of the parts.
std::vector<Number> features_in(const io::DatasetInfo& info, std::span<const io::FeaturePart> parts) {
  std::vector<Number> features;
  const bool has_columns = info.table && !info.windows;
  for (const io::TableColumn& column : has_columns ? info.table->columns : std::vector<io::TableColumn>{}) {
    features.insert(features.end(), static_cast<std::size_t>(column.features()), {column.name, false});
  }
  if (!features.empty()) return features;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const io::Field& field = info.inputs.empty() ? info.x : info.inputs[i].field;
    const std::int64_t count = parts[i].features;
    for (std::int64_t feature = 0; feature < count; ++feature) {
      features.push_back({field.name + io::place_text(std::span(&count, 1), feature), is_long(field)});
    }
  }
  return features;
}

std::vector<Number> targets_in(const io::DatasetInfo& info) {
  std::vector<Number> targets;
  for (const io::FieldRange& target : info.targets) {
    for (const std::string& name : io::names_of_numbers(std::span(&target, 1))) {
      targets.push_back({name, is_long(target.field)});
    }
  }
  const std::int64_t count = info.target_count();
  for (std::int64_t i = 0; targets.empty() && i < count; ++i) {
    const bool is_named = info.table && !info.windows && std::ssize(info.table->labels) == count;
    const std::string name = is_named ? info.table->labels[static_cast<std::size_t>(i)]
                                      : info.y.name + io::place_text(std::span(&count, 1), i);
    targets.push_back({name, is_long(info.y)});
  }
  return targets;
}

/// Returns the distance of neighbouring numbers of the type at a number's size.
double spacing_at(double number, ToldApartIn type) {
  if (type == ToldApartIn::float64) {
    return std::nextafter(std::abs(number), std::numeric_limits<double>::infinity()) - std::abs(number);
  }
  const auto narrow = static_cast<float>(std::abs(number));
  return static_cast<double>(std::nextafter(narrow, std::numeric_limits<float>::infinity())) -
         static_cast<double>(narrow);
}

std::string first_blurred(std::span<const io::FeatureSpread> spreads, const std::vector<Number>& numbers,
                          ToldApartIn type, const std::filesystem::path& path, const char* option) {
  constexpr double kFew = 100;             // steps of the type in a deviation
  constexpr double kFloat64Noise = 1e-14;  ///< share of a constant
  for (std::size_t i = 0; i < spreads.size(); ++i) {
    const auto& [mean, deviation] = spreads[i];
    const bool is_large = std::abs(mean) >= kAlwaysExact;
    const bool is_known = i < numbers.size();
    const std::string what = fmt::format("{}: {}", path.string(), is_known ? numbers[i].name : "a number");
    if (deviation == 0) {
      if (!is_large || !is_known || !numbers[i].is_long) continue;
      return fmt::format(
          "{} is {:.0f} in all samples, as far as float64 shows, which has multiples of {:g} there: if "
          "its numbers differ, subtract one of them from all",
          what, mean, spacing_at(mean, ToldApartIn::float64));
    }
    const double spacing = spacing_at(mean, type);
    if (deviation >= kFew * spacing) continue;
    if (type == ToldApartIn::float32) {
      if (!is_large && deviation <= kFloat64Noise * std::abs(mean)) continue;
      return fmt::format(
          "{} holds numbers around {:.10g} with a deviation of {:.3g}, and float32, in which they reach "
          "the network, has multiples of {:g} there: {} standardises them before",
          what, mean, deviation, spacing, option);
    }
    if (!is_large) continue;
    return fmt::format(
        "{} holds numbers around {:.0f} with a deviation of {:.3g}, and float64, in which they are read, "
        "has multiples of {:g} there: subtract a number near them from all",
        what, mean, deviation, spacing);
  }
  return "";
}

}  // namespace

std::string blurred_features(const FeatureStatistics& statistics, std::span<const io::FeaturePart> parts,
                             ToldApartIn type, const io::DatasetInfo& info, const std::filesystem::path& path) {
  return first_blurred(statistics.x, features_in(info, parts), type, path, "--normalize per-feature");
}

std::string blurred_targets(const FeatureStatistics& statistics, ToldApartIn type, const io::DatasetInfo& info,
                            const std::filesystem::path& path) {
  return first_blurred(statistics.y, targets_in(info), type, path, "--normalize-targets standard");
}

}  // namespace lockstep::app
