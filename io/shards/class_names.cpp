#include "io/shards/class_names.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "io/text/visible_text.hpp"

namespace lockstep::io {

std::optional<std::int64_t> class_number(std::string_view text) {
  constexpr double kExactBelow = 9007199254740992.0;  // 2^53, which is also what 2^53 + 1 becomes
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  text = text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  if (!(std::abs(value) < kExactBelow) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string class_name(std::string_view text) {
  const std::optional<std::int64_t> number = class_number(text);
  return number ? std::to_string(*number) : std::string(text);
}

void sort_class_names(std::vector<std::string>& names) {
  if (all_whole_numbers(names)) {
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return std::pair(*class_number(a), std::string_view(a)) < std::pair(*class_number(b), std::string_view(b));
    });
  } else {
    std::sort(names.begin(), names.end());
  }
}

std::vector<std::string> numbered_classes(std::int64_t classes) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < classes; ++i) names.push_back(std::to_string(i));
  return names;
}

bool all_whole_numbers(const std::vector<std::string>& names) {
  return !names.empty() && std::all_of(names.begin(), names.end(),
                                       [](const std::string& name) { return class_number(name).has_value(); });
}

std::vector<std::optional<std::size_t>> places_among(const std::vector<std::string>& known,
                                                     const std::vector<std::string>& names) {
  std::map<std::string_view, std::size_t> by_text;
  for (std::size_t i = 0; i < known.size(); ++i) by_text.emplace(known[i], i);
  std::vector<std::optional<std::size_t>> places(names.size());
  std::set<std::size_t> taken;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = by_text.find(names[i]);
    if (found == by_text.end()) continue;
    places[i] = found->second;
    taken.insert(found->second);
  }
  std::map<std::int64_t, std::vector<std::size_t>> known_left, names_left;
  for (std::size_t i = 0; i < known.size(); ++i) {
    const auto number = taken.contains(i) ? std::nullopt : class_number(known[i]);
    if (number) known_left[*number].push_back(i);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto number = places[i] ? std::nullopt : class_number(names[i]);
    if (number) names_left[*number].push_back(i);
  }
  for (const auto& [number, left] : names_left) {
    const auto found = known_left.find(number);
    if (found != known_left.end() && found->second.size() == 1 && left.size() == 1) places[left[0]] = found->second[0];
  }
  return places;
}

KnownNames::KnownNames(std::vector<std::string> names) : names_(std::move(names)) {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    by_text_.emplace(names_[i], i);
    const std::optional<std::int64_t> number = class_number(names_[i]);
    if (!number) continue;
    const auto [place, is_first] = by_number_.emplace(*number, i);
    if (!is_first) place->second.reset();
  }
}

std::optional<std::size_t> KnownNames::find(const std::string& text, std::string_view plain) const {
  if (const auto found = by_text_.find(text); found != by_text_.end()) return found->second;
  const std::optional<std::int64_t> number = class_number(plain);
  const auto found = number ? by_number_.find(*number) : by_number_.end();
  return found == by_number_.end() ? std::nullopt : found->second;
}

void KnownNames::saw(std::size_t place, const std::string& text) {
  const auto [first, is_first] = seen_.emplace(place, text);
  if (!is_first && !twin_ && first->second != text) twin_.emplace(place, text);
}

std::string KnownNames::twins() const {
  if (!twin_) return "";
  return fmt::format("\"{}\" and \"{}\", and both are \"{}\"", visible_line(seen_.at(twin_->first)),
                     visible_line(twin_->second), visible_line(names_[twin_->first]));
}

}  // namespace lockstep::io
