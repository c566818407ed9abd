#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "app/options/option_table.hpp"
#include "app/options/other_names.hpp"
#include "model/nearest_name.hpp"

// The format: one `name = value` per line. A line that begins with # or ; is a comment, and so is the rest of a line
// after a blank and #. Values that contain comment signs, quotes, line breaks or outer blanks are written in double
// quotes, with the escapes \" \\ \n \r. Boost's reader is not used: it cuts every value at # and has no line numbers.

namespace lockstep::app {
namespace {

std::string quoted_if_needed(const std::string& value) {
  const bool plain = trimmed(value) == value && value.find_first_of("\"\n\r#;") == std::string::npos;
  if (plain) return value;
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    c == '\n' ? text += "\\n" : c == '\r' ? text += "\\r" : text += c;
  }
  return text + '"';
}

/// Returns the value in a text that begins with a quote. Throws UsageError.
std::string unquoted(std::string_view text, const std::string& where) {
  std::string value;
  std::size_t i = 1;
  for (; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      value += text[i];
      continue;
    }
    ++i;
    value += text[i] == 'n' ? '\n' : text[i] == 'r' ? '\r' : text[i];
  }
  if (i >= text.size()) throw UsageError(fmt::format("{}: the closing quote is missing", where));
  const std::string_view rest = trimmed(text.substr(i + 1));
  if (!rest.empty() && rest.front() != '#')
    throw UsageError(fmt::format("{}: text after the closing quote: {}", where, rest));
  return value;
}

std::string read_value(std::string_view text, const std::string& where) {
  text = trimmed(text);
  if (text.starts_with('"')) return unquoted(text, where);
  if (text.starts_with('#')) return "";
  const std::size_t comment = std::min(text.find(" #"), text.find("\t#"));
  return std::string(trimmed(text.substr(0, comment)));
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::string& where, const OptionTable& table) {
  if (name.starts_with("no-") && table.find(name.substr(3)) != nullptr) {
    throw UsageError(fmt::format("{}: in a file this is written {} = no", where, name.substr(3)));
  }
  if (name.starts_with("--"))
    throw UsageError(fmt::format("{}: in a file, names are written without --: {}", where, name.substr(2)));
  const std::vector<std::string> names = table.names();
  throw UsageError(fmt::format("{}: unknown option {}{}", where, name,
                               hint_from_other_programs(name, names).value_or(model::did_you_mean(name, names))));
}

}  // namespace

void apply_ini(const std::string& text, const std::string& source_name, OptionTable& table, OptionSource source) {
  std::map<std::string, int> lines;  // line of each name's first occurrence
  std::istringstream stream(text);
  std::string raw;
  for (int number = 1; std::getline(stream, raw); ++number) {
    const std::string where = fmt::format("{}:{}", source_name, number);
    const std::string_view line = trimmed(raw);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      throw UsageError(fmt::format("{}: sections such as {} are not used here: write name = value lines", where, line));
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      throw UsageError(fmt::format("{}: expected name = value, found {}", where, line));
    }
    const std::string name(trimmed(line.substr(0, equals)));
    Option* const option = table.find(name);
    if (option == nullptr) refuse_unknown(name, where, table);
    const auto [earlier, is_new] = lines.emplace(name, number);
    if (!is_new) throw UsageError(fmt::format("{}: {} is given twice; first in line {}", where, name, earlier->second));
    option->assign(read_value(line.substr(equals + 1), where), source, fmt::format("{}: {}", where, name));
  }
}

namespace {

std::string read_ini_file(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    const bool is_run = std::filesystem::exists(file / "config.ini", ignored);
    throw UsageError(fmt::format("--config: {} is a folder{}", file.string(),
                                 is_run ? fmt::format("; did you mean {}?", (file / "config.ini").string()) : ""));
  }
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  if (!stream || (stream.peek(), stream.bad())) {
    throw UsageError(
        fmt::format("--config: cannot read {}: {}", file.string(), std::strerror(errno != 0 ? errno : EIO)));
  }
  return text.str();
}

}  // namespace

std::string ini_value(std::string_view text) { return read_value(text, "the configuration"); }

void apply_ini_file(const std::filesystem::path& file, OptionTable& table) {
  apply_ini(read_ini_file(file), file.string(), table);
}

std::string format_ini(const OptionTable& table) {
  std::string text;
  std::string group;
  for (const Option& option : table.options()) {
    if (option.group() != group) {
      group = option.group();
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", group);
    }
    const std::string value = quoted_if_needed(option.text());
    const std::string assignment = fmt::format("{} ={}{}", option.name(), value.empty() ? "" : " ", value);
    text += table.in_use(option) ? assignment + "\n" : fmt::format("# {}  (no effect here)\n", assignment);
  }
  return text;
}

}  // namespace lockstep::app
