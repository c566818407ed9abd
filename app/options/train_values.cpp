#include "app/options/train_values.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/image_options.hpp"
#include "app/options/option_table.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {

namespace {

constexpr std::string_view kAffine = "affine(";

/// Parses a text that begins with "affine(". Returns nullopt unless it is "affine(SCALE,SHIFT)".
std::optional<model::InputTransform> parse_affine(const std::string& text) {
  model::InputTransform transform;
  const char* const last = text.data() + text.size();
  const auto [comma, scale_error] = std::from_chars(text.data() + kAffine.size(), last, transform.scale);
  if (scale_error != std::errc() || comma == last || *comma != ',') return std::nullopt;
  const auto [end, shift_error] = std::from_chars(comma + 1, last, transform.shift);
  const bool finite = std::isfinite(transform.scale) && std::isfinite(transform.shift);
  if (shift_error != std::errc() || !finite || std::string_view(end, last) != ")") return std::nullopt;
  return transform;
}

}  // namespace

std::string parse_normalization(const std::string& text, Normalization& value) {
  std::vector<std::string> words;
  for (const auto& [word, kind] : choices<Normalization::Kind>()) {
    if (word == text) return value = {.kind = kind}, "";
    words.push_back(word);
  }
  if (!text.starts_with(kAffine)) {
    return fmt::format("is not one of {} and affine(SCALE,SHIFT){}", fmt::join(words, ", "),
                       model::did_you_mean(text, words));
  }
  const std::optional<model::InputTransform> affine = parse_affine(text);
  if (!affine) return "is not of the form affine(SCALE,SHIFT) with two numbers, as in affine(0.00392,-0.5)";
  value = {.kind = Normalization::Kind::affine, .affine = *affine};
  return "";
}

std::string check_boundaries(const std::string& text) {
  std::int64_t before = -1;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data(); at < last;) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(at, last, value);
    if (error != std::errc()) return "";  // "none": the list parser has checked the numbers
    if (value <= before) return "must be in ascending order";
    before = value;
    at = end + 1;
  }
  return "";
}

std::string parse_augment(const std::string& text, AugmentOptions& value) {
  return refusal_of([&] { value = parse_augmentation(text); });
}

std::string parse_limit(const std::string& text, TimeLimit& value) {
  if (text == "auto") return value = {.kind = TimeLimit::Kind::scheduler}, "";
  if (text == "none") return value = {.kind = TimeLimit::Kind::none}, "";
  const std::optional<double> seconds = parse_time_limit(text);
  if (!seconds) {
    return "is neither auto nor none nor a time above 0: seconds, or [D-]HH:MM[:SS] as in 11:30 or 1-00:00:00";
  }
  value = {.kind = TimeLimit::Kind::given, .seconds = *seconds};
  return "";
}

std::string to_text(const TimeLimit& value) {
  if (value.kind == TimeLimit::Kind::given) return fmt::format("{}", value.seconds);
  return value.kind == TimeLimit::Kind::none ? "none" : "auto";
}

std::string parse_every(const std::string& text, CheckpointEvery& value) {
  const char* const last = text.data() + text.size();
  std::int64_t steps = 0;
  const auto whole = std::from_chars(text.data(), last, steps);
  if (whole.ec == std::errc() && whole.ptr == last && steps >= -1) return value = {.steps = steps}, "";
  double seconds = 0;
  const auto number = std::from_chars(text.data(), last, seconds);
  const std::string_view unit(number.ptr, last);
  const double scale = unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (number.ec != std::errc() || !(seconds * scale > 0) || !std::isfinite(seconds * scale)) {
    return "is neither a number of steps (0: once per epoch; -1: only at the end) nor a time such as 90s, 10m or 2h";
  }
  value = {.seconds = seconds * scale};
  return "";
}

std::string to_text(const CheckpointEvery& value) {
  return value.seconds > 0 ? fmt::format("{}s", value.seconds) : fmt::format("{}", value.steps);
}

std::string parse_patterns(const std::string& text, std::vector<std::string>& value) {
  std::vector<std::string> patterns;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    patterns.push_back(text.substr(begin, comma - begin));
    if (patterns.back().empty()) return "has an empty pattern";
    begin = comma + 1;
  }
  value = std::move(patterns);
  return "";
}

std::string to_text(const std::vector<std::string>& value) { return fmt::format("{}", fmt::join(value, ",")); }

std::string parse_rate_scales(const std::string& text, std::vector<RateScale>& value) {
  std::vector<std::string> items;
  if (const std::string wrong = parse_patterns(text, items); !wrong.empty()) return wrong;
  std::vector<RateScale> scales;
  for (const std::string& item : items) {
    const std::size_t equals = item.rfind('=');
    if (equals == std::string::npos || equals == 0) return fmt::format("is not PATTERN=FACTOR: {}", item);
    RateScale scale{.pattern = item.substr(0, equals)};
    const char *const first = item.data() + equals + 1, *const last = item.data() + item.size();
    const auto [end, error] = std::from_chars(first, last, scale.factor);
    if (error != std::errc() || end != last || !std::isfinite(scale.factor) || scale.factor < 0) {
      return fmt::format("has no factor of 0 or more in {}", item);
    }
    if (scale.factor == 0) return fmt::format("has the factor 0: --freeze {} says that", scale.pattern);
    scales.push_back(std::move(scale));
  }
  value = std::move(scales);
  return "";
}

std::string to_text(const std::vector<RateScale>& value) {
  std::string text;
  for (const RateScale& scale : value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", scale.pattern, scale.factor);
  }
  return text;
}

std::string parse_agree(const std::string& text, AgreeMode& mode) {
  constexpr std::string_view kLocal = "local=", kQuorum = "quorum=";
  if (text == "all") return mode = {}, "";
  if (text == "async") return mode = {.asynchronous = true}, "";
  std::int64_t number = 0;
  const char* const last = text.data() + text.size();
  const bool local = text.starts_with(kLocal), quorum = text.starts_with(kQuorum);
  const auto [end, error] = std::from_chars(text.data() + (local    ? kLocal.size()
                                                           : quorum ? kQuorum.size()
                                                                    : 0),
                                            last, number);
  if ((!local && !quorum) || error != std::errc() || end != last || number < 1 || number > 1000000) {
    return "is neither all nor local=STEPS, quorum=RANKS or async, with 1 to 1000000 steps or ranks";
  }
  mode = local ? AgreeMode{.local_steps = number} : AgreeMode{.quorum = static_cast<int>(number)};
  return "";
}

std::string agree_text(const AgreeMode& mode) {
  if (mode.asynchronous) return "async";
  if (mode.quorum > 0) return fmt::format("quorum={}", mode.quorum);
  return mode.local_steps == 0 ? "all" : fmt::format("local={}", mode.local_steps);
}

std::string parse_servers(const std::string& text, ServerChoice& servers) {
  if (text == "shared") return servers = {.count = 0, .shared = true}, "";
  int count = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, count);
  if (error != std::errc() || end != last || count < 0 || count > 100000) {
    return "is neither shared nor a number of ranks";
  }
  return servers = {.count = count, .shared = false}, "";
}

std::string servers_text(const ServerChoice& servers) {
  return servers.shared ? "shared" : fmt::format("{}", servers.count);
}

std::string parse_class_weights(const std::string& text, ClassWeights& value) {
  if (text == "none") return value = {}, "";
  if (text == "balanced") return value = {.balanced = true}, "";
  ClassWeights weights;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    double weight = 0;
    const auto [end, error] = std::from_chars(text.data() + begin, text.data() + comma, weight);
    if (error != std::errc() || end != text.data() + comma || !std::isfinite(weight) || weight < 0) {
      return "is neither balanced nor a list of numbers of 0 or more, one for each class";
    }
    weights.given.push_back(weight);
    begin = comma + 1;
  }
  return value = std::move(weights), "";
}

std::string to_text(const ClassWeights& value) {
  if (value.balanced) return "balanced";
  return value.given.empty() ? "none" : fmt::format("{}", fmt::join(value.given, ","));
}

std::string parse_resume(const std::string& text, Resume& value) {
  if (text.empty()) return value = {}, "";
  if (text == "auto") return value = {.from = Resume::From::newest}, "";
  return value = {.from = Resume::From::file, .file = text}, "";
}

std::string to_text(const Resume& value) {
  if (value.from == Resume::From::file) return value.file.string();
  return value.from == Resume::From::newest ? "auto" : "";
}

std::string parse_layout(const std::string& text, io::Layouts& layout) {
  for (const auto& [word, value] : choices<io::Layout>()) {
    if (text != word) continue;
    layout = value;
    return "";
  }
  io::Layouts parsed;
  for (const std::string& item : io::names_in(text)) {
    const std::size_t sign = item.find('=');
    io::FieldLayout& field = parsed.fields.emplace_back();
    field.field = sign == std::string::npos ? "" : item.substr(0, sign);
    field.letters = sign == std::string::npos ? item : item.substr(sign + 1);
    if (const std::string wrong = io::layout_objection(field.letters); !wrong.empty()) {
      return fmt::format("has {}, which {}; words: auto, channels-first, channels-last", field.letters, wrong);
    }
  }
  for (const io::FieldLayout& field : parsed.fields) {
    if (std::ranges::count(parsed.fields, field.field, &io::FieldLayout::field) > 1) {
      return fmt::format("gives {} twice: each field has one order",
                         field.field.empty() ? "letters without a name" : field.field);
    }
    if (field.field.empty() && parsed.fields.size() > 1) {
      return fmt::format("has {} without a name beside others: NAME={} says whose order it is", field.letters,
                         field.letters);
    }
  }
  if (parsed.fields.empty()) return "is empty: auto, channels-first, channels-last, or letters such as image=nchw";
  layout = parsed;
  return "";
}

std::string layout_text(const io::Layouts& layout) {
  std::vector<std::string> items;
  for (const io::FieldLayout& field : layout.fields) {
    items.push_back(field.field.empty() ? field.letters : fmt::format("{}={}", field.field, field.letters));
  }
  return items.empty() ? word_of(layout.images) : fmt::format("{}", fmt::join(items, ","));
}

}  // namespace lockstep::app
