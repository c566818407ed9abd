#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <boost/program_options.hpp>
#include <fmt/format.h>

#include "app/options/option_table.hpp"
#include "app/options/other_names.hpp"
#include "model/nearest_name.hpp"

namespace lockstep::app {
namespace {

namespace po = boost::program_options;

constexpr std::string_view kYesNoWords[] = {"yes", "no", "true", "false", "on", "off", "1", "0"};

/// True for "--name", "--no-name" or "--name=…" of an option of the table, and for --help and --config.
bool is_known_option(const OptionTable& table, std::string_view word) {
  if (!word.starts_with("--")) return false;
  const std::string_view name = word.substr(2, word.find('=') - 2);
  return table.find(name) != nullptr || name == "help" || name == "config" ||
         (name.starts_with("no-") && table.find(name.substr(3)) != nullptr);
}

/// Resolves two ambiguities of Boost. Boost takes any next argument as an optional value, and an option as a required
/// value. This joins every optional value to its option ("--resume" becomes "--resume=auto"). The next argument is the
/// value of a yes/no option only if it is yes, no or a synonym, and of another option only if it does not begin with
/// "-". Throws UsageError if an option follows where a value is required.
std::vector<std::string> settle_values(const OptionTable& table, const std::vector<std::string>& arguments) {
  std::vector<std::string> settled;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    settled.push_back(arguments[i]);
    if (arguments[i] == "--") {
      settled.insert(settled.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    const Option* const option =
        arguments[i].starts_with("--") ? table.find(std::string_view(arguments[i]).substr(2)) : nullptr;
    if (option == nullptr) continue;
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : "--";
    if (option->shape() == Option::Shape::value) {
      if (is_known_option(table, next)) {
        throw UsageError(fmt::format("{} needs a value: {}", arguments[i], option->value_name()));
      }
      if (i + 1 < arguments.size()) settled.push_back(arguments[++i]);
      continue;
    }
    const bool is_yes_or_no = std::find(std::begin(kYesNoWords), std::end(kYesNoWords), next) != std::end(kYesNoWords);
    const bool takes_next = option->shape() == Option::Shape::yes_or_no ? is_yes_or_no : !next.starts_with("-");
    settled.back() += "=" + (takes_next ? next : option->alone());
    if (takes_next) ++i;
  }
  return settled;
}

po::options_description describe(const OptionTable& table, bool takes_config) {
  po::options_description description;
  auto add = description.add_options();
  add("help,h", "");
  if (takes_config) add("config", po::value<std::string>(), "");
  for (const Option& option : table.options()) {
    add(option.name().c_str(), po::value<std::string>(), "");
    if (option.shape() == Option::Shape::yes_or_no) add(("no-" + option.name()).c_str(), "");
  }
  return description;
}

[[noreturn]] void refuse_unknown(const OptionTable& table, const std::string& spelled, bool takes_config) {
  std::vector<std::string> names = table.names();
  for (const Option& option : table.options()) {
    if (option.shape() == Option::Shape::yes_or_no) names.push_back("no-" + option.name());
  }
  names.push_back("help");
  if (takes_config) names.push_back("config");
  const std::string_view bare =
      std::string_view(spelled).substr(std::min(spelled.find_first_not_of('-'), spelled.size()));
  const std::string hint = hint_from_other_programs(bare, names, "--").value_or(model::did_you_mean(bare, names, "--"));
  throw UsageError(fmt::format("unknown option {}{}", spelled, hint));
}

/// True if `word` is an option without its dashes, such as "epochs=3" or "epochs", and no file has this name.
bool lacks_dashes(const OptionTable& table, const std::string& word) {
  std::error_code ignored;
  return table.find(word.substr(0, word.find('='))) != nullptr && !std::filesystem::exists(word, ignored);
}

/// Throws UsageError for a bare argument that is not accepted. `taken`: the positional option if it has a value
/// already.
[[noreturn]] void refuse_word(const OptionTable& table, const std::string& word, const Option* taken) {
  if (word.size() > 1 && word.front() == '-') refuse_unknown(table, word, false);
  if (lacks_dashes(table, word)) {
    throw UsageError(fmt::format("cannot make sense of {}; did you mean --{}?", word, word));
  }
  const bool has_data = taken == nullptr && table.find("data") != nullptr;
  throw UsageError(fmt::format("cannot make sense of {}: {}values follow their option's name{}", word,
                               taken == nullptr ? "" : fmt::format("--{} is given already, and ", taken->name()),
                               has_data ? fmt::format(", as in --data {}", word) : ""));
}

}  // namespace

CommandLine read_command_line(const OptionTable& table, const std::vector<std::string>& arguments, bool takes_config) {
  using style = po::command_line_style::style_t;
  constexpr int kStyle = style::allow_long | style::long_allow_adjacent | style::long_allow_next | style::allow_short |
                         style::allow_dash_for_short | style::short_allow_next;  // no abbreviations
  const po::options_description description = describe(table, takes_config);
  CommandLine line;
  const auto positional =
      std::find_if(table.options().begin(), table.options().end(), [](const Option& o) { return o.is_positional(); });
  const auto is_given = [&](const std::string& spelled) {
    return std::ranges::any_of(line.options, [&](const auto& given) { return given.spelled == spelled; });
  };
  const auto take = [&](const std::string& name, const std::string& value, const std::string& spelled) {
    const auto earlier =
        std::find_if(line.options.begin(), line.options.end(), [&](const auto& o) { return o.name == name; });
    const Option* const option = table.find(name);
    if (earlier != line.options.end() && (option == nullptr || !option->is_several())) {
      throw UsageError(earlier->spelled == spelled
                           ? fmt::format("{} is given twice", spelled)
                           : fmt::format("{} and {} contradict each other", earlier->spelled, spelled));
    }
    line.options.push_back({name, value, spelled});
  };
  try {
    const auto parsed = po::command_line_parser(settle_values(table, arguments))
                            .options(description)
                            .style(kStyle)
                            .allow_unregistered()
                            .run();
    for (const po::option& given : parsed.options) {
      if (given.string_key.empty()) {  // a bare argument, or one after "--"
        const std::string& word = given.value.empty() ? given.original_tokens.at(0) : given.value.front();
        const bool is_option = (word.size() > 1 && word.front() == '-') || lacks_dashes(table, word);
        if (positional == table.options().end() || is_option) refuse_word(table, word, nullptr);
        if (!positional->is_several() && is_given("--" + positional->name())) refuse_word(table, word, &*positional);
        take(positional->name(), word, word);
      } else if (given.unregistered) {
        const std::string& token = given.original_tokens.at(0);
        refuse_unknown(table, token.substr(0, token.find('=')), takes_config);
      } else if (given.string_key == "help" || given.string_key == "-h") {
        line.help = true;
      } else if (given.string_key == "config" && takes_config) {
        if (!line.config.empty()) throw UsageError("--config is given twice");
        line.config = given.value.at(0);
        if (line.config.empty()) throw UsageError("--config needs the name of a file");
      } else if (table.find(given.string_key) != nullptr) {
        const Option& option = *table.find(given.string_key);
        take(option.name(), given.value.at(0), "--" + option.name());
      } else {
        take(given.string_key.substr(3), "no", "--" + given.string_key);  // "no-NAME"
      }
    }
  } catch (const po::error_with_option_name& error) {
    const std::string spelled = "--" + error.get_option_name().substr(error.get_option_name().find_first_not_of('-'));
    const Option* const option = table.find(spelled.substr(2));
    if (option == nullptr && spelled.starts_with("--no-")) throw UsageError(fmt::format("{} takes no value", spelled));
    if (option == nullptr && spelled != "--config") throw UsageError(error.what());
    throw UsageError(fmt::format("{} needs a value: {}", spelled, option == nullptr ? "FILE" : option->value_name()));
  } catch (const po::error& error) {
    throw UsageError(error.what());
  }
  return line;
}

void apply(const CommandLine& line, OptionTable& table) {
  for (const CommandLine::Given& given : line.options) {
    Option& option = *table.find(given.name);
    option.assign(given.value, OptionSource::command_line,
                  option.is_positional() ? "--" + option.name() : given.spelled);
  }
}

void read_options(OptionTable& table, const std::vector<std::string>& arguments, std::string_view usage,
                  std::string_view examples) {
  const CommandLine line = read_command_line(table, arguments, false);
  if (line.help) throw HelpRequested(make_help(table, usage, examples, false));
  apply(line, table);
}

}  // namespace lockstep::app
