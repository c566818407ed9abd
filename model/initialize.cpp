#include "model/initialize.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include <fmt/format.h>

#include "model/random.hpp"

namespace lockstep::model {

namespace {

using Scheme = Initializer::Scheme;

struct SchemeName {
  Scheme scheme;
  std::string_view name;
  bool takes_value;
};
constexpr std::array kSchemes{
    SchemeName{Scheme::zeros, "zeros", false},
    SchemeName{Scheme::constant, "constant", true},
    SchemeName{Scheme::uniform, "uniform", true},
    SchemeName{Scheme::normal, "normal", true},
    SchemeName{Scheme::truncated_normal, "truncated_normal", true},
    SchemeName{Scheme::xavier_uniform, "xavier_uniform", false},
    SchemeName{Scheme::xavier_normal, "xavier_normal", false},
    SchemeName{Scheme::he_uniform, "he_uniform", false},
    SchemeName{Scheme::he_normal, "he_normal", false},
    SchemeName{Scheme::lecun_normal, "lecun_normal", false},
    SchemeName{Scheme::fan_in_uniform, "fan_in_uniform", false},
};

std::string valid_initializers() {
  std::string text;
  for (const SchemeName& entry : kSchemes) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", entry.name, entry.takes_value ? "(VALUE)" : "");
  }
  return text;
}

const SchemeName& entry_of(Scheme scheme) {
  return *std::find_if(kSchemes.begin(), kSchemes.end(), [&](const SchemeName& e) { return e.scheme == scheme; });
}

enum class Distribution { constant, uniform, normal, truncated_normal };

/// A scheme with known fans; `scale` is the constant, half-width or standard deviation.
struct Draw {
  Distribution distribution;
  double scale;
};

Draw draw_of(const Initializer& initializer, double fan_in, double fan_out) {
  const double value = initializer.value;
  switch (initializer.scheme) {
    case Scheme::zeros:
      return {Distribution::constant, 0};
    case Scheme::constant:
      return {Distribution::constant, value};
    case Scheme::uniform:
      return {Distribution::uniform, value};
    case Scheme::normal:
      return {Distribution::normal, value};
    case Scheme::truncated_normal:
      return {Distribution::truncated_normal, value};
    case Scheme::xavier_uniform:
      return {Distribution::uniform, std::sqrt(6 / (fan_in + fan_out))};
    case Scheme::xavier_normal:
      return {Distribution::normal, std::sqrt(2 / (fan_in + fan_out))};
    case Scheme::he_uniform:
      return {Distribution::uniform, std::sqrt(6 / fan_in)};
    case Scheme::he_normal:
      return {Distribution::normal, std::sqrt(2 / fan_in)};
    case Scheme::lecun_normal:
      return {Distribution::normal, std::sqrt(1 / fan_in)};
    case Scheme::fan_in_uniform:
      return {Distribution::uniform, 1 / std::sqrt(fan_in)};
  }
  throw std::invalid_argument("unknown initialiser");
}

/// Random draws of one parameter: counter = (index, attempt, name), key = seed.
class Stream {
 public:
  Stream(std::uint64_t seed, std::string_view name) : seed_(seed), name_(stream_of(name)) {}

  double uniform(std::uint64_t index, double half_width) const {
    return (2 * open_uniform(words(index, 0)[0]) - 1) * half_width;
  }
  /// Box & Muller 1958, one number of the pair.
  double normal(std::uint64_t index, std::uint32_t attempt, double deviation) const {
    const PhiloxCounter w = words(index, attempt);
    return std::sqrt(-2 * std::log(open_uniform(w[0]))) * std::cos(2 * std::numbers::pi * open_uniform(w[1])) *
           deviation;
  }
  double truncated_normal(std::uint64_t index, double deviation) const {
    for (std::uint32_t attempt = 0;; ++attempt) {
      const double value = normal(index, attempt, deviation);
      if (!(std::abs(value) > 2 * std::abs(deviation))) return value;
    }
  }

 private:
  /// `attempt` shares a 32-bit word with the upper part of the index: 2^40 elements, 2^24 attempts.
  PhiloxCounter words(std::uint64_t index, std::uint32_t attempt) const {
    return philox4x32({static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32) | attempt << 8,
                       static_cast<std::uint32_t>(name_), static_cast<std::uint32_t>(name_ >> 32)},
                      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
  }

  std::uint64_t seed_;
  std::uint64_t name_;
};

}  // namespace

Initializer parse_initializer(std::string_view text) {
  const std::size_t open = text.find('(');
  const std::string_view name = text.substr(0, open);
  const auto entry =
      std::find_if(kSchemes.begin(), kSchemes.end(), [&](const SchemeName& e) { return e.name == name; });
  if (entry == kSchemes.end()) {
    throw std::invalid_argument(fmt::format("unknown initialiser '{}'; valid: {}", text, valid_initializers()));
  }
  Initializer initializer{entry->scheme, 0};
  if (entry->takes_value != (open != std::string_view::npos)) {
    throw std::invalid_argument(fmt::format("initialiser '{}' {} a value; valid: {}", text,
                                            entry->takes_value ? "needs" : "takes no", valid_initializers()));
  }
  if (entry->takes_value) {
    const char* first = text.data() + open + 1;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, initializer.value);
    if (error != std::errc() || end + 1 != last || *end != ')' || !std::isfinite(initializer.value)) {
      throw std::invalid_argument(
          fmt::format("initialiser '{}': expected a number in parentheses, as in {}(0.1)", text, entry->name));
    }
    if (initializer.value < 0 && entry->scheme != Scheme::constant) {
      throw std::invalid_argument(fmt::format("initialiser '{}': the value must not be negative", text));
    }
  }
  return initializer;
}

Initializers parse_initializers(std::string_view text) {
  Initializers result;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = item.find('=');
    if (item == "auto") continue;
    if (equals == std::string_view::npos) {
      if (result.all) throw std::invalid_argument(fmt::format("'{}' has two initialisers for all layers", text));
      result.all = parse_initializer(item);
      continue;
    }
    const std::string layer(item.substr(0, equals));
    const bool again = std::ranges::any_of(result.layers, [&](const auto& each) { return each.first == layer; });
    if (layer.empty() || again) {
      throw std::invalid_argument(fmt::format(
          "'{}' {}", text, again ? "names " + layer + " twice" : std::string("has a layer without a name")));
    }
    result.layers.emplace_back(layer, parse_initializer(item.substr(equals + 1)));
  }
  return result;
}

std::string to_string(const Initializers& initializers) {
  std::string text = initializers.all ? to_string(*initializers.all) : "";
  for (const auto& [layer, initializer] : initializers.layers) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", layer, to_string(initializer));
  }
  return text;
}

std::string to_string(const Initializer& initializer) {
  const SchemeName& entry = entry_of(initializer.scheme);
  return entry.takes_value ? fmt::format("{}({})", entry.name, initializer.value) : std::string(entry.name);
}

void initialize(std::span<float> values, const Initializer& initializer, std::int64_t fan_in, std::int64_t fan_out,
                std::uint64_t seed, std::string_view parameter_name) {
  if (fan_in <= 0 || fan_out <= 0) {
    throw std::invalid_argument(fmt::format("parameter {}: fan_in and fan_out must be positive", parameter_name));
  }
  const auto [distribution, scale] = draw_of(initializer, static_cast<double>(fan_in), static_cast<double>(fan_out));
  const Stream stream(seed, parameter_name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double value = scale;
    if (distribution == Distribution::uniform) value = stream.uniform(i, scale);
    if (distribution == Distribution::normal) value = stream.normal(i, 0, scale);
    if (distribution == Distribution::truncated_normal) value = stream.truncated_normal(i, scale);
    values[i] = static_cast<float>(value);
  }
}

}  // namespace lockstep::model
