#include <algorithm>

#include <fmt/format.h>

#include "app/options/nearest_name.hpp"
#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kHelpColumn = 34;

/// Words of `text` in lines that fit between `indent` and kColumns; the first line starts where the caller stands.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column > indent && column + 1 + word.size() > kColumns) {
      result += fmt::format("\n{:{}}", "", indent);
      column = indent;
    }
    if (column > indent) result += ' ', ++column;
    result += word;
    column += word.size();
  }
  return result;
}

std::string row(std::string_view left, std::string_view right) {
  std::string line = fmt::format("  {}", left);
  line += line.size() + 2 > kHelpColumn ? fmt::format("\n{:{}}", "", kHelpColumn)
                                        : fmt::format("{:{}}", "", kHelpColumn - line.size());
  return line + wrapped(right, kHelpColumn) + "\n";
}

/// The default, which may be the network's.
std::string usual_text(const Option& option) {
  return option.source() == OptionSource::default_value ? option.text() : option.default_text();
}

std::string left_side(const Option& option) {
  switch (option.shape()) {
    case Option::Shape::yes_or_no:
      return usual_text(option) == "yes" ? fmt::format("--[no-]{}", option.name()) : fmt::format("--{}", option.name());
    case Option::Shape::optional_value:
      return fmt::format("--{}[={}]", option.name(), option.value_name());
    case Option::Shape::value:
      break;
  }
  return fmt::format("--{} {}", option.name(), option.value_name());
}

std::string right_side(const Option& option) {
  std::string text = option.help();
  if (!option.names().empty()) text += fmt::format(" ({})", list_names(option.names()));
  const std::string value = usual_text(option);
  const bool telling =
      !value.empty() && value != "none" && !(option.shape() == Option::Shape::yes_or_no && value == "no");
  if (telling) text += fmt::format(" [{}]", value);
  return text;
}

}  // namespace

std::string format_help(const OptionTable& table, std::string_view usage, std::string_view ending, bool takes_config) {
  std::string text(usage);
  std::string group;
  bool has_yes_or_no = false;
  for (const Option& option : table.options()) {
    if (option.is_hidden()) continue;
    if (option.group() != group) {
      group = option.group();
      text += fmt::format("\n{}\n", group);
    }
    text += row(left_side(option), right_side(option));
    has_yes_or_no = has_yes_or_no || option.shape() == Option::Shape::yes_or_no;
  }
  text += "\nGeneral\n";
  if (takes_config) {
    text += row("--config FILE",
                "read options from an INI file of `name = value` lines (names as here, without --; # begins "
                "a comment); the command line wins over the file");
  }
  text += row("-h, --help", "print this");
  std::string notes = "Defaults are in [brackets]. A value may also be joined to its name: --name=value.";
  if (has_yes_or_no) {
    notes += " Yes/no options are --name or --no-name, and also take a value: --name=yes, --name=no";
    notes += takes_config ? "; in a file: name = yes." : ".";
  }
  text += "\n" + wrapped(notes, 0) + "\n";
  text += ending;
  return text;
}

}  // namespace lockstep::app
