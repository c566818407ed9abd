#include "io/shards/class_names.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

namespace lockstep::io {

std::optional<std::int64_t> class_number(std::string_view text) {
  constexpr double kMaxExact = 9007199254740992.0;  // whole numbers beyond 2^53 have gaps
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
  if (!(std::abs(value) <= kMaxExact) || value != std::floor(value)) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

std::string class_name(std::string_view text) {
  const std::optional<std::int64_t> number = class_number(text);
  return number ? std::to_string(*number) : std::string(text);
}

void sort_class_names(std::vector<std::string>& names) {
  if (all_whole_numbers(names)) {
    std::stable_sort(names.begin(), names.end(),
                     [](const std::string& a, const std::string& b) { return *class_number(a) < *class_number(b); });
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

}  // namespace lockstep::io
