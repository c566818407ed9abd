#include "io/shards/stored_meaning.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "io/files/element_cast.hpp"

namespace lockstep::io {
namespace {

FileType unsigned_of(FileType type) {
  switch (type) {
    case FileType::int8:
      return FileType::uint8;
    case FileType::int16:
      return FileType::uint16;
    case FileType::int32:
      return FileType::uint32;
    case FileType::int64:
      return FileType::uint64;
    default:
      return type;
  }
}

bool is_integer(FileType type) { return type != FileType::float32 && type != FileType::float64; }

/// netCDF's default fill values (netcdf.h); it has none for bytes.
std::optional<double> netcdf_fill(FileType type) {
  switch (type) {
    case FileType::int16:
      return -32767;
    case FileType::uint16:
      return 65535;
    case FileType::int32:
      return -2147483647;
    case FileType::uint32:
      return 4294967295;
    case FileType::int64:
      return -9223372036854775806.0;
    case FileType::uint64:
      return 18446744073709551614.0;
    case FileType::float32:
      return 9.9692099683868690e+36F;
    case FileType::float64:
      return 9.9692099683868690e+36;
    default:
      return std::nullopt;
  }
}

/// The number of an attribute as an element: rounded, or with the same bits.
double as_element(double value, FileType stored, FileType meant) {
  if (stored == FileType::float32) return static_cast<float>(value);
  if (meant == stored || value >= 0) return value;
  return value + std::ldexp(1.0, static_cast<int>(8 * size_of(stored)));
}

std::optional<double> single(const Hdf5File& file, std::string_view dataset, const char* attribute) {
  const std::vector<double> values = file.numbers(dataset, attribute);
  if (values.size() <= 1) return values.empty() ? std::nullopt : std::optional(values[0]);
  throw FileError({.file = file.path(),
                   .what = fmt::format("{} of {} is a list, where one number is expected", attribute, dataset)});
}

}  // namespace

StoredMeaning meaning_of(const Hdf5File& file, std::string_view dataset, FileType stored) {
  StoredMeaning meaning{
      .stored = stored, .meant = stored, .numbers = stored, .markers = {}, .least = {}, .greatest = {}};
  if (file.has_attribute(dataset, "_Unsigned")) {
    const std::string text = file.text(dataset, "_Unsigned").value_or("");
    if (text == "true" || text == "True" || text == "TRUE") meaning.meant = unsigned_of(stored);
  }
  const auto element = [&](double value) { return as_element(value, stored, meaning.meant); };
  for (const char* const name : {"_FillValue", "missing_value"}) {
    for (const double value : file.numbers(dataset, name)) {
      meaning.markers.push_back({.value = element(value), .name = name});
    }
  }
  if (!file.has_attribute(dataset, "_FillValue") && file.is_netcdf(dataset)) {
    const std::optional<double> fill = file.fill_value(dataset);
    if (fill && fill == netcdf_fill(stored)) {
      meaning.markers.push_back({.value = element(*fill), .name = "netCDF fill value"});
    }
  }
  meaning.scale = single(file, dataset, "scale_factor").value_or(1);
  meaning.offset = single(file, dataset, "add_offset").value_or(0);
  meaning.scaled = meaning.scale != 1 || meaning.offset != 0;
  meaning.numbers = meaning.scaled ? FileType::float64 : meaning.meant;
  // Float limits of scaled integers apply to the scaled numbers (netCDF's user guide).
  const auto limit = [&](const char* name, std::size_t place) -> std::optional<double> {
    const std::vector<double> values = file.numbers(dataset, name);
    if (values.size() <= place) return std::nullopt;
    const bool of_scaled = meaning.scaled && is_integer(stored) && !file.attribute_is_integer(dataset, name);
    return of_scaled ? (values[place] - meaning.offset) / meaning.scale : element(values[place]);
  };
  meaning.least = limit("valid_min", 0);
  meaning.greatest = limit("valid_max", 0);
  const std::optional<double> low = limit("valid_range", 0), high = limit("valid_range", 1);
  if (low && high) {
    meaning.least = low;
    meaning.greatest = high;
  }
  if (meaning.least && meaning.greatest && *meaning.least > *meaning.greatest && meaning.scale < 0) {
    std::swap(meaning.least, meaning.greatest);
  }
  return meaning;
}

void StoredMeaning::deliver_missing() {
  if (can_be_missing() && is_integer(numbers)) numbers = size_of(numbers) <= 2 ? FileType::float32 : FileType::float64;
}

std::string StoredMeaning::in_words() const {
  std::string words;
  const auto add = [&](std::string_view text) { words += fmt::format("{}{}", words.empty() ? "" : ", ", text); };
  if (meant != stored) add("_Unsigned");
  if (scaled) add(fmt::format("scale_factor {:.10g} and add_offset {:.10g} applied", scale, offset));
  for (const Marker& marker : markers) add(fmt::format("{} {:.10g}", marker.name, marker.value));
  if (least) add(fmt::format("valid from {:.10g}", *least));
  if (greatest) add(fmt::format("valid to {:.10g}", *greatest));
  return words;
}

bool StoredMeaning::is_missing(double number) const noexcept {
  const auto equals = [number](const Marker& marker) {
    return number == marker.value || (std::isnan(number) && std::isnan(marker.value));
  };
  return std::any_of(markers.begin(), markers.end(), equals) || (least && number < *least) ||
         (greatest && number > *greatest);
}

std::string StoredMeaning::why_missing(double number) const {
  for (const Marker& marker : markers) {
    if (number == marker.value || std::isnan(number)) return fmt::format("{:.10g}, its {}", number, marker.name);
  }
  return fmt::format("{:.10g}, outside of what its attributes call valid", number);
}

std::optional<StoredMeaning::Missing> StoredMeaning::apply(std::span<const std::byte> elements,
                                                           std::span<std::byte> out) const {
  std::optional<Missing> first;
  const bool judged = can_be_missing();
  with_elements(meant, elements, [&](auto values) {
    const auto deliver = [&]<class Number>(Number) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        Number number{};
        const auto value = static_cast<double>(values[i]);
        if (judged && is_missing(value)) {
          if (!first) first = Missing{.element = i, .why = why_missing(value)};
          if constexpr (std::is_floating_point_v<Number>) number = std::numeric_limits<Number>::quiet_NaN();
        } else {
          number = scaled ? static_cast<Number>(value * scale + offset) : static_cast<Number>(values[i]);
        }
        std::memcpy(&out[i * sizeof number], &number, sizeof number);
      }
    };
    if (numbers == FileType::float64) return deliver(double{});
    if (numbers == FileType::float32) return deliver(float{});
    deliver(std::remove_cv_t<typename decltype(values)::element_type>{});
  });
  return first;
}

std::vector<bool> StoredMeaning::missing(std::span<const std::byte> elements) const {
  std::vector<bool> flags;
  with_elements(meant, elements, [&](auto values) {
    flags.reserve(values.size());
    for (const auto value : values) {
      const auto number = static_cast<double>(value);
      flags.push_back(std::isnan(number) || is_missing(number));
    }
  });
  return flags;
}

}  // namespace lockstep::io
