#include "app/options/image_options.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "model/nearest_name.hpp"

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

/// Thrown by the parsers of items. The caller puts the whole text before `item` and `reason`.
struct Refusal {
  std::string item, reason;
};
[[noreturn]] void refuse(std::string_view item, const std::string& reason) { throw Refusal{std::string(item), reason}; }

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

void apply_item(std::string_view item, AugmentOptions& spec) {
  const std::size_t equals = item.find('=');
  const std::string name(item.substr(0, equals));
  const std::string_view value = equals == std::string_view::npos ? std::string_view{} : item.substr(equals + 1);
  if (name == "flip") {
    const std::string_view directions = equals == std::string_view::npos ? "w" : value;
    for (const char direction : directions) {
      bool* const flip = direction == 'w'   ? &spec.flip
                         : direction == 'h' ? &spec.flip_height
                         : direction == 'd' ? &spec.flip_depth
                                            : nullptr;
      if (flip == nullptr || *flip) refuse(item, "takes letters of d, h and w (depth, height, width), each once");
      *flip = true;
    }
    if (directions.empty()) refuse(item, "takes letters of d, h and w (depth, height, width)");
  } else if (name == "symmetries") {
    if (equals != std::string_view::npos) refuse(item, "takes no value");
    spec.symmetries = true;
  } else if (name == "pad") {
    spec.pad = extent(item, value);
  } else if (name == "crop") {
    const auto sides = split(value, 'x');
    if (sides.size() > 3) refuse(item, "needs crop=N, crop=HEIGHTxWIDTH or crop=DEPTHxHEIGHTxWIDTH");
    spec.crop = {.height = extent(item, sides[sides.size() == 3]), .width = extent(item, sides.back())};
    if (sides.size() == 3) spec.crop->depth = extent(item, sides[0]);
  } else if (name == "area") {
    spec.minimum_area = positive(item, value, 1);
  } else if (name == "brightness") {
    spec.brightness = positive(item, value, 1e30f);
  } else if (name == "contrast") {
    const auto bounds = split(value, ':');
    if (bounds.size() != 2) refuse(item, "needs contrast=LOW:HIGH, as in contrast=0.2:1.8");
    spec.contrast_low = positive(item, bounds[0], 1e30f);
    spec.contrast_high = positive(item, bounds[1], 1e30f);
    if (spec.contrast_low > spec.contrast_high) refuse(item, "is no range: LOW is above HIGH");
  } else {
    const std::vector<std::string> names{"pad", "crop", "area", "flip", "symmetries", "brightness", "contrast"};
    refuse(item, fmt::format("is none of {}{}", model::list_names(names, "and"), model::did_you_mean(name, names)));
  }
}

}  // namespace

model::ImageShape parse_image_shape(const std::string& text) {
  const auto sides = split(text, 'x');
  std::vector<std::int64_t> extents(sides.size());
  bool fits = sides.size() >= 2 && sides.size() <= 4;
  for (std::size_t i = 0; fits && i < sides.size(); ++i) fits = parse_all(sides[i], extents[i]) && extents[i] >= 1;
  if (!fits) throw UsageError("is not HEIGHTxWIDTHxCHANNELS, as in 32x32x3, or DEPTHxHEIGHTxWIDTHxCHANNELS");
  if (extents.size() == 4)
    return {.height = extents[1], .width = extents[2], .channels = extents[3], .depth = extents[0]};
  return {.height = extents[0], .width = extents[1], .channels = extents.size() == 3 ? extents[2] : 1};
}

std::string to_text(const model::ImageShape& shape) {
  const std::string image = fmt::format("{}x{}x{}", shape.height, shape.width, shape.channels);
  return shape.depth == 1 ? image : fmt::format("{}x{}", shape.depth, image);
}

AugmentOptions parse_augmentation(const std::string& text) {
  AugmentOptions options;
  if (text.empty() || text == "none") return options;
  std::set<std::string> seen;
  try {
    for (const std::string_view item : split(text, ',')) {
      if (!seen.emplace(item.substr(0, item.find('='))).second) refuse(item, "is given twice");
      apply_item(item, options);
    }
  } catch (const Refusal& refusal) {
    throw UsageError(refusal.item == text ? refusal.reason
                                          : fmt::format("has {}, which {}", refusal.item, refusal.reason));
  }
  if (options.minimum_area < 1 && options.pad > 0) {
    throw UsageError("has area and pad, which exclude each other: both decide where the crop comes from");
  }
  if (options.symmetries && (options.flip || options.flip_height || options.flip_depth)) {
    throw UsageError("names flips, and symmetries contains all flips: leave flip out");
  }
  return options;
}

std::string to_text(const AugmentOptions& options) {
  const AugmentOptions none;
  std::vector<std::string> items;
  if (options.pad != none.pad) items.push_back(fmt::format("pad={}", options.pad));
  if (options.crop) {
    const auto [height, width, depth] = *options.crop;
    items.push_back(depth             ? fmt::format("crop={}x{}x{}", *depth, height, width)
                    : height == width ? fmt::format("crop={}", height)
                                      : fmt::format("crop={}x{}", height, width));
  }
  if (options.minimum_area != none.minimum_area) items.push_back(fmt::format("area={}", options.minimum_area));
  if (options.flip_height || options.flip_depth) {
    items.push_back(fmt::format("flip={}{}{}", options.flip_depth ? "d" : "", options.flip_height ? "h" : "",
                                options.flip ? "w" : ""));
  } else if (options.flip) {
    items.push_back("flip");
  }
  if (options.symmetries) items.push_back("symmetries");
  if (options.brightness != none.brightness) items.push_back(fmt::format("brightness={}", options.brightness));
  if (options.contrast_low != none.contrast_low || options.contrast_high != none.contrast_high) {
    items.push_back(fmt::format("contrast={}:{}", options.contrast_low, options.contrast_high));
  }
  return items.empty() ? "none" : fmt::format("{}", fmt::join(items, ","));
}

model::Augmentation augmentation_of(const AugmentOptions& options, const model::ImageShape& in) {
  model::Augmentation spec{.in = in, .out = in};
  const bool volume = in.depth > 1;
  const auto fail = [&](const std::string& reason) {
    throw UsageError(fmt::format("--augment {}: {}", to_text(options), reason));
  };
  const auto size = [volume](const model::ImageShape& shape) {
    return volume ? fmt::format("{} x {} x {}", shape.depth, shape.height, shape.width)
                  : fmt::format("{} x {}", shape.height, shape.width);
  };
  const std::string samples = (volume ? "volumes of " : "images of ") + size(in);
  if (options.crop) {
    const auto& [height, width, depth] = *options.crop;
    if (volume && !depth && height != width) {
      fail(fmt::format("the samples are {}: give crop=DEPTHxHEIGHTxWIDTH", samples));
    }
    if (!volume && depth) fail(fmt::format("the samples are {}: give crop=HEIGHTxWIDTH", samples));
    spec.out.height = height;
    spec.out.width = width;
    if (volume) spec.out.depth = depth.value_or(height);
    if (volume && spec.out.depth == 1) fail("one plane is no volume: a crop has a depth of 2 or more");
  }
  if (!volume && options.flip_depth) fail(fmt::format("the samples are {}, which have no depth d", samples));
  if (volume && options.minimum_area < 1) {
    fail(fmt::format("area scales images, and the samples are {}: pad and crop shift them", samples));
  }
  spec.pad = options.pad;
  spec.flip = options.flip || options.symmetries;
  spec.flip_height = options.flip_height || options.symmetries;
  spec.flip_depth = options.flip_depth || (options.symmetries && volume);
  spec.turns = options.symmetries;
  spec.minimum_area = options.minimum_area;
  spec.brightness = options.brightness;
  spec.contrast_low = options.contrast_low;
  spec.contrast_high = options.contrast_high;
  const model::ImageShape& out = spec.out;
  const bool fits = (!volume || out.depth <= in.depth + 2 * spec.pad) && out.height <= in.height + 2 * spec.pad &&
                    out.width <= in.width + 2 * spec.pad;
  if (spec.minimum_area >= 1 && !fits) {
    fail(fmt::format("a crop of {} does not fit {}{}", size(out), samples,
                     spec.pad > 0 ? fmt::format(" with {} zeros around", spec.pad) : ""));
  }
  return spec;
}

}  // namespace lockstep::app
