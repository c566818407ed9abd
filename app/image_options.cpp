#include "app/image_options.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "app/nearest_name.hpp"
#include "app/options.hpp"

namespace lockstep::app {

namespace {

template <class T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value - value == 0;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void refuse(std::string_view item, const std::string& reason) {
  throw UsageError(fmt::format("augment item {}: {}", item, reason));
}

float positive(std::string_view item, std::string_view value, float most) {
  float number = 0;
  if (!parse_all(value, number) || !(number > 0) || number > most) {
    refuse(item, most < 1e30f ? fmt::format("needs a number above 0 and at most {}", most) : "needs a positive number");
  }
  return number;
}

std::int64_t extent(std::string_view item, std::string_view value) {
  std::int64_t number = 0;
  if (!parse_all(value, number) || number < 1 || number > 65536) refuse(item, "needs whole numbers from 1 to 65,536");
  return number;
}

void apply_item(std::string_view item, model::Augmentation& spec) {
  const std::size_t equals = item.find('=');
  const std::string name(item.substr(0, equals));
  const std::string_view value = equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
  if (name == "flip") {
    if (!value.empty()) refuse(item, "flip takes no value");
    spec.flip = true;
  } else if (name == "pad") {
    spec.pad = extent(item, value);
  } else if (name == "crop") {
    const auto sides = split(value, 'x');
    if (sides.size() > 2) refuse(item, "needs crop=N or crop=HEIGHTxWIDTH");
    spec.out.height = extent(item, sides.front());
    spec.out.width = extent(item, sides.back());
  } else if (name == "area") {
    spec.minimum_area = positive(item, value, 1);
  } else if (name == "brightness") {
    spec.brightness = positive(item, value, 1e30f);
  } else if (name == "contrast") {
    const auto bounds = split(value, ':');
    if (bounds.size() != 2) refuse(item, "needs contrast=LOW:HIGH, as in contrast=0.2:1.8");
    spec.contrast_low = positive(item, bounds[0], 1e30f);
    spec.contrast_high = positive(item, bounds[1], 1e30f);
    if (spec.contrast_low > spec.contrast_high) refuse(item, "LOW is above HIGH");
  } else {
    const std::vector<std::string> names{"pad", "crop", "area", "flip", "brightness", "contrast"};
    refuse(item, fmt::format("is none of {}{}", list_names(names, "and"), did_you_mean(name, names)));
  }
}

}  // namespace

model::ImageShape parse_image_shape(const std::string& text) {
  const auto sides = split(text, 'x');
  model::ImageShape shape{.channels = 1};
  const bool fits = (sides.size() == 2 || sides.size() == 3) && parse_all(sides[0], shape.height) &&
                    parse_all(sides[1], shape.width) && (sides.size() == 2 || parse_all(sides[2], shape.channels));
  if (!fits || shape.height < 1 || shape.width < 1 || shape.channels < 1) {
    throw UsageError(fmt::format("{} is not HEIGHTxWIDTHxCHANNELS, as in 32x32x3", text));
  }
  return shape;
}

model::Augmentation parse_augmentation(const std::string& text, const model::ImageShape& in) {
  model::Augmentation spec{.in = in, .out = in};
  if (text.empty() || text == "none") return spec;
  std::set<std::string> seen;
  for (const std::string_view item : split(text, ',')) {
    if (!seen.emplace(item.substr(0, item.find('='))).second) refuse(item, "is given twice");
    apply_item(item, spec);
  }
  if (spec.minimum_area < 1 && spec.pad > 0) {
    throw UsageError("augment: area and pad exclude each other: both decide where the crop comes from");
  }
  return spec;
}

}  // namespace lockstep::app
