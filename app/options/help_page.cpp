#include "app/options/help_page.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kHelpColumn = 34;

/// Wraps `text` into lines between `indent` and kColumns; the first line continues the caller's line.
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

bool has_yes_or_no(const HelpPage& page) {
  return std::ranges::any_of(page.rows, [](const HelpRow& r) { return r.shape == OptionShape::yes_or_no; });
}

}  // namespace

std::string HelpRow::spelled() const {
  switch (shape) {
    case OptionShape::yes_or_no:
      return usual == "yes" ? fmt::format("--[no-]{}", name) : fmt::format("--{}", name);
    case OptionShape::optional_value:
      return fmt::format("--{}[={}]", name, value_name);
    case OptionShape::value:
      break;
  }
  return fmt::format("--{} {}", name, value_name);
}

std::string HelpRow::explanation() const {
  std::string text = help;
  if (!words.empty()) text += fmt::format(" ({})", model::list_names(words));
  if (!usual.empty()) text += fmt::format(" [{}]", usual);
  return text;
}

HelpPage help_page(std::string_view command, std::string_view usage, std::string_view examples) {
  constexpr std::string_view kUsage = "Usage: ", kExamples = "\nExamples\n";
  HelpPage page{.command = std::string(command), .synopsis = "", .description = ""};
  if (usage.starts_with(kUsage)) usage.remove_prefix(kUsage.size());
  const std::size_t end = std::min(usage.find("\n\n"), usage.size());
  page.synopsis = usage.substr(0, end);
  page.description = usage.substr(std::min(end + 2, usage.size()));
  if (examples.starts_with(kExamples)) examples.remove_prefix(kExamples.size());
  while (!examples.empty()) {
    const std::size_t line = std::min(examples.find('\n'), examples.size());
    page.examples.emplace_back(examples.substr(0, line));
    examples.remove_prefix(std::min(line + 1, examples.size()));
  }
  return page;
}

std::vector<GeneralOption> general_options(const HelpPage& page) {
  std::vector<GeneralOption> options;
  if (page.takes_config) {
    options.push_back({"--config FILE",
                       "read options from an INI file of `name = value` lines (names without --; # begins a comment); "
                       "the command line wins over the file"});
  }
  options.push_back({"-h, --help", "print this help"});
  return options;
}

std::string notes_on_options(const HelpPage& page) {
  std::string notes = "Defaults are in [brackets]. --name=value is the same as --name value.";
  if (has_yes_or_no(page)) {
    notes += " Yes/no options: --name or --no-name, also --name=yes or --name=no";
    notes += page.takes_config ? "; in a file: name = yes." : ".";
  }
  return notes;
}

std::string to_text(const HelpPage& page) {
  std::string text = fmt::format("Usage: {}\n\n{}", page.synopsis, page.description);
  for (const HelpPage::Network& network : page.chosen) {
    text += fmt::format("\nNetwork {}: {}\nThe options below include its own; [brackets] show its defaults.\n",
                        network.name, network.summary);
  }
  if (!page.networks.empty()) {
    text += fmt::format("\nNetworks (for the options and defaults of one: {} --model NAME --help)\n", page.command);
    for (const HelpPage::Network& network : page.networks) {
      text += fmt::format("  {:<12}{}\n", network.name, network.summary);
    }
  }
  std::string group;
  for (const HelpRow& option : page.rows) {
    if (option.group != group) {
      group = option.group;
      text += fmt::format("\n{}\n", group);
    }
    text += row(option.spelled(), option.explanation());
  }
  text += "\nGeneral\n";
  for (const GeneralOption& option : general_options(page)) text += row(option.spelled, option.help);
  text += "\n" + wrapped(notes_on_options(page), 0) + "\n";
  if (!page.examples.empty()) text += "\nExamples\n";
  for (const std::string& line : page.examples) text += line + "\n";
  return text;
}

}  // namespace lockstep::app
