#include "io/files/json_text.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace lockstep::io {
namespace {

/// Writing and copying of such values is recursive.
constexpr int kMaxDepth = 64;

[[noreturn]] void wrong_entry(const char* key, std::string_view what) {
  throw FileError(fmt::format("its entry {} {}", key, what));
}

/// Line and column, counted from 1, of the byte after the first `bytes`.
std::string place_in(std::string_view text, std::size_t bytes) {
  const std::string_view before = text.substr(0, bytes);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t begin = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}", line, before.size() - begin + 1);
}

std::int64_t integer(const nlohmann::json& value, const char* key) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits) wrong_entry(key, "is no whole number of 64 bits");
  return value.get<std::int64_t>();
}

std::string text(const nlohmann::json& value, const char* key) {
  if (!value.is_string()) wrong_entry(key, "is no text");
  return value.get<std::string>();
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  const auto check_depth = [](int depth, nlohmann::json::parse_event_t, const nlohmann::json&) {
    if (depth > kMaxDepth) throw FileError(fmt::format("it is JSON nested over {} deep", kMaxDepth));
    return true;
  };
  try {
    return nlohmann::json::parse(text, check_depth);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t read = std::min<std::size_t>(error.byte, text.size() + 1);
    if (read > text.size()) throw FileError("it is no JSON: it ends too early, at " + place_in(text, text.size()));
    throw FileError("it is no JSON: " + place_in(text, read > 0 ? read - 1 : 0));
  } catch (const nlohmann::json::exception&) {
    throw FileError("it is no JSON that can be read: a number in it is too large");
  }
}

std::string to_text(const nlohmann::json& json, int indent) {
  try {
    return json.dump(indent);
  } catch (const nlohmann::json::exception&) {
    throw FileError("a text in it is no UTF-8");
  }
}

const nlohmann::json& entry(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) throw FileError(fmt::format("the place of its entry {} holds no object", key));
  const auto found = object.find(key);
  if (found == object.end()) wrong_entry(key, "is missing");
  return *found;
}

std::string text_entry(const nlohmann::json& object, const char* key) { return text(entry(object, key), key); }

std::int64_t integer_entry(const nlohmann::json& object, const char* key) { return integer(entry(object, key), key); }

double real_entry(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = entry(object, key);
  if (!value.is_number()) wrong_entry(key, "is no number");
  return value.get<double>();
}

const nlohmann::json& list_entry(const nlohmann::json& object, const char* key) {
  const nlohmann::json& value = entry(object, key);
  if (!value.is_array()) wrong_entry(key, "is no list");
  return value;
}

std::vector<std::string> texts_entry(const nlohmann::json& object, const char* key) {
  std::vector<std::string> result;
  for (const nlohmann::json& value : list_entry(object, key)) result.push_back(text(value, key));
  return result;
}

std::vector<std::int64_t> integers_entry(const nlohmann::json& object, const char* key) {
  std::vector<std::int64_t> result;
  for (const nlohmann::json& value : list_entry(object, key)) result.push_back(integer(value, key));
  return result;
}

std::vector<double> reals_entry(const nlohmann::json& object, const char* key) {
  std::vector<double> result;
  for (const nlohmann::json& value : list_entry(object, key)) {
    if (!value.is_number()) wrong_entry(key, "holds something that is no number");
    result.push_back(value.get<double>());
  }
  return result;
}

}  // namespace lockstep::io
