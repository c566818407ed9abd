#include "model/nearest_name.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>

namespace lockstep::model {
namespace {

std::string folded(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// First letters of the words between hyphens.
std::string initials(std::string_view name) {
  std::string result;
  bool at_start = true;
  for (const char c : name) {
    if (at_start) result += c;
    at_start = c == '-';
  }
  return result;
}

std::size_t common_beginning(std::string_view a, std::string_view b) {
  const auto [end, unused] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(end - a.begin());
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const std::string s = folded(a), t = folded(b);
  // Three rows of the table suffice: a swap looks two rows back.
  std::vector<int> before_last(t.size() + 1), last(t.size() + 1), row(t.size() + 1);
  for (std::size_t j = 0; j <= t.size(); ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= s.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= t.size(); ++j) {
      const int replaced = last[j - 1] + (s[i - 1] == t[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && s[i - 1] == t[j - 2] && s[i - 2] == t[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[t.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string> valid) {
  const std::string wanted = folded(word);
  if (wanted.empty()) return "";
  // Abbreviations first: "lr" is a letter away from "l2", but nobody means that.
  for (const std::string& name : valid) {
    if (wanted.size() >= 2 && initials(folded(name)) == wanted) return name;
  }

  const int tolerance = std::max(1, static_cast<int>(wanted.size()) / 3);
  std::string best;
  int best_distance = tolerance + 1;
  std::size_t best_beginning = 0;
  for (const std::string& name : valid) {
    const int distance = edit_distance(wanted, name);
    if (distance >= static_cast<int>(name.size())) continue;  // nothing in common
    const std::size_t beginning = common_beginning(wanted, folded(name));
    if (distance < best_distance || (distance == best_distance && beginning > best_beginning)) {
      best = name;
      best_distance = distance;
      best_beginning = beginning;
    }
  }
  if (best_distance <= tolerance) return best;

  constexpr std::size_t kTellingLength = 3;  // shortest common prefix that suggests a name
  for (const std::string& name : valid) {
    const std::string candidate = folded(name);
    if (std::min(wanted.size(), candidate.size()) < kTellingLength) continue;
    if (candidate.starts_with(wanted) || wanted.starts_with(candidate)) return name;
  }
  return "";
}

std::string did_you_mean(std::string_view word, std::span<const std::string> valid, std::string_view prefix) {
  const std::string near = nearest_name(word, valid);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, near);
}

std::string list_names(std::span<const std::string> names, std::string_view last_joint) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? fmt::format(" {} ", last_joint) : ", ";
    text += names[i];
  }
  return text;
}

}  // namespace lockstep::model
