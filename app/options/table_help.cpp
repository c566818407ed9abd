#include "app/options/option_table.hpp"

namespace lockstep::app {
namespace {

/// Returns the text of the default, which may come from the network; "" if the option is off by default.
std::string usual_text(const Option& option) {
  const std::string value = option.source() == OptionSource::default_value ? option.text() : option.default_text();
  const bool off = value == "none" || (option.shape() == Option::Shape::yes_or_no && value == "no");
  if (off) return "";
  std::string shown;
  for (const char c : value) c == '\n' ? shown += "\\n" : shown += c;
  return shown;
}

}  // namespace

HelpPage make_help(const OptionTable& table, std::string_view usage, std::string_view examples, bool takes_config) {
  HelpPage page = help_page(table.command(), usage, examples);
  page.takes_config = takes_config;
  for (const Option& option : table.options()) {
    if (option.is_hidden()) continue;
    page.rows.push_back({.name = option.name(),
                         .group = option.group(),
                         .shape = option.shape(),
                         .value_name = option.value_name(),
                         .help = option.help(),
                         .words = option.names(),
                         .usual = usual_text(option)});
  }
  return page;
}

}  // namespace lockstep::app
