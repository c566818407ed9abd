/// \file
/// How options are declared: one row per option, bound to the field that it sets. The command line, the INI file, the
/// help text, the saved configuration and the list of valid names all come from these rows; a field's initial value
/// is the default. Private to options*.cpp.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "app/options/choices.hpp"
#include "app/options/help_page.hpp"
#include "app/options/usage_error.hpp"

namespace lockstep::app {

/// Who gave an option its value; later ones win.
enum class OptionSource {
  default_value,
  checkpoint,  ///< what a run goes on from, or begins with the weights of
  file,
  command_line,
};

/// One row. Declared by OptionTable::add and the chained calls below.
class Option {
 public:
  using Shape = OptionShape;

  // --- declaration, chained ---
  /// Numbers (each element of a list) must be at least, above, at most, below `bound`.
  Option& at_least(double bound);
  Option& above(double bound);
  Option& at_most(double bound);
  Option& below(double bound);
  /// The value is one of these names.
  Option& one_of(std::vector<std::string> names);
  /// A further check, of text(): returns "" or what is wrong with it ("is not …").
  Option& check(std::function<std::string(const std::string&)> check);
  /// --name alone means --name=value.
  Option& alone_means(std::string value);
  /// The first bare word of the command line is this option's value.
  Option& positional();
  /// It may be given again and again, as the bare words of the command line are; parse() adds to the value then.
  Option& several();
  /// The option has an effect only while `other` has one of these values.
  Option& only_with(std::string other, std::vector<std::string> values);
  /// The option has an effect only while `other` differs from its default.
  Option& needs(std::string other);
  /// The option has no effect while `other` differs from its default: giving both is an error.
  Option& contradicts(std::string other);
  /// A value that leaves the decision to the run ("auto"): it does not undo what a checkpoint knows of the decision.
  Option& left_open_by(std::function<bool(const std::string&)> open);
  Option& left_open_by(std::string value);
  /// Another text for the help.
  Option& explain(std::string help);
  /// Not in the help.
  Option& hide();

  // --- use ---
  const std::string& name() const noexcept { return name_; }
  const std::string& group() const noexcept { return group_; }
  const std::string& value_name() const noexcept { return value_name_; }
  const std::string& help() const noexcept { return help_; }
  const std::string& default_text() const noexcept { return default_; }
  const std::string& alone() const noexcept { return alone_; }
  const std::vector<std::string>& names() const noexcept { return names_; }
  Shape shape() const noexcept { return shape_; }
  bool is_positional() const noexcept { return positional_; }
  bool is_several() const noexcept { return several_; }
  OptionSource source() const noexcept { return source_; }
  /// The field's value as text that assign() takes back.
  std::string text() const { return text_(); }
  bool is_default() const { return text_() == default_; }
  bool is_hidden() const noexcept { return hidden_; }
  const std::string& spelled() const noexcept { return spelled_; }  ///< as the user wrote it
  /// The value of a text, within the bounds. Returns "" or what is wrong with the text, and leaves the value alone
  /// then.
  std::string read(const std::string& text, bool& value) const;
  std::string read(const std::string& text, std::vector<std::int64_t>& value) const;
  template <class Number>
  std::string read(const std::string& text, Number& value) const;
  /// Parses and checks `value`; throws UsageError beginning with `spelled`, the option as the user wrote it
  /// ("--epochs" or "run.ini:3: epochs"). A value that leaves the decision open leaves a checkpoint's as it is.
  void assign(const std::string& value, OptionSource source, const std::string& spelled);
  void reset();

 private:
  friend class OptionTable;
  enum class Kind { with, needed, contradicted };
  struct Relation {
    Kind kind;
    std::string other;
    std::vector<std::string> values;
  };
  struct Bound {
    double value;
    bool inclusive;
  };
  std::string bounds_broken_by(double number) const;

  std::string name_, group_, value_name_, help_, default_, alone_;
  Shape shape_ = Shape::value;
  bool positional_ = false, several_ = false, hidden_ = false;
  bool left_open_ = false;  ///< what was assigned leaves the decision to the run
  std::vector<std::string> names_;
  std::optional<Bound> lower_, upper_;
  std::function<std::string(const std::string&)> check_;
  std::function<bool(const std::string&)> open_;
  std::vector<Relation> relations_;
  OptionSource source_ = OptionSource::default_value;
  std::string spelled_;
  /// Returns "" or what is wrong with the text.
  std::function<std::string(const std::string&)> parse_;
  std::function<std::string()> text_;
};

class OptionTable {
 public:
  /// `command` as the user types it: "lockstep train".
  explicit OptionTable(std::string command) : command_(std::move(command)) {}

  void group(std::string title) { group_ = std::move(title); }
  /// The field must outlive the table. `value_name` is for the help ("STEPS").
  Option& add(std::string name, bool& field, std::string help);
  template <class Number>
  requires std::is_arithmetic_v<Number> Option& add(std::string name, Number& field, std::string value_name,
                                                    std::string help);
  Option& add(std::string name, std::optional<double>& field, std::string value_name, std::string help);
  Option& add(std::string name, std::string& field, std::string value_name, std::string help);
  Option& add(std::string name, std::filesystem::path& field, std::string value_name, std::string help);
  /// Comma-separated. An empty list is written "none" and, unless the default is empty, not accepted.
  Option& add(std::string name, std::vector<std::int64_t>& field, std::string value_name, std::string help);

  /// One of a few words.
  template <class Value>
  Option& add_choice(std::string name, Value& field, std::string value_name, std::string help,
                     const std::vector<Choice<Value>>& of = choices<Value>()) {
    std::vector<std::string> words;
    for (const Choice<Value>& choice : of) words.push_back(choice.word);
    const auto parse = [&field, of](const std::string& text) {
      for (const Choice<Value>& choice : of) {
        if (choice.word == text) field = choice.value;
      }
      return std::string();  // one_of() has refused all other words
    };
    return bind(append(std::move(name), std::move(value_name), std::move(help)), parse,
                [&field, of] { return word_of(field, of); })
        .one_of(std::move(words));
  }
  /// An option that lives in no field. `parse` returns "" or what is wrong with the text ("is not …"), and changes
  /// nothing then; it reads back what `text` writes. The rows never move: `parse` may be bound to the one it gets.
  Option& add_free(std::string name, Option::Shape shape, std::string value_name, std::string help,
                   std::function<std::string(const Option&, const std::string&)> parse,
                   std::function<std::string()> text);
  /// A value with a written form of its own. `parse` returns "" or what is wrong with the text ("is not …"), and leaves
  /// the value alone then; it reads back what `text` writes.
  template <class Value>
  Option& add_parsed(std::string name, Value& field, std::string value_name, std::string help,
                     std::string (*parse)(const std::string&, Value&), std::string (*text)(const Value&)) {
    return bind(
        append(std::move(name), std::move(value_name), std::move(help)),
        [&field, parse](const std::string& words) { return parse(words, field); },
        [&field, text] { return text(field); });
  }

  const std::string& command() const noexcept { return command_; }
  const std::deque<Option>& options() const noexcept { return options_; }
  std::deque<Option>& options() noexcept { return options_; }
  /// nullptr when there is none.
  Option* find(std::string_view name);
  const Option* find(std::string_view name) const;
  std::vector<std::string> names() const;
  /// Long names that are no defaults and leave nothing open, in table order.
  std::vector<std::string> given() const;
  /// Those of them whose values are a checkpoint's.
  std::vector<std::string> from_checkpoint() const;
  /// The option has an effect, given what the others say.
  bool in_use(const Option& option) const;

  /// Throws UsageError where options contradict each other or have no effect. Between two sources the later one wins:
  /// what the command line contradicts in the file, and either of them in the checkpoint, falls back to the default.
  void check_relations();
  /// Throws UsageError saying that --name is missing and what it is for.
  void require(std::string_view name, std::string_view what) const;

 private:
  Option& append(std::string name, std::string value_name, std::string help);
  Option& bind(Option& option, std::function<std::string(const std::string&)> parse, std::function<std::string()> text);
  bool holds(const Option::Relation& relation) const;
  void settle(Option& option, const Option::Relation& relation);

  std::string command_;
  std::string group_;
  std::deque<Option> options_;  // a deque: chained calls keep references while rows are added
};

/// Without blanks at its ends.
std::string_view trimmed(std::string_view text);
/// "" where `parse` returns, else what the UsageError says that it throws: for options whose texts have a parser.
template <class Parse>
std::string refusal_of(Parse parse) {
  try {
    parse();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// options_command_line.cpp
struct CommandLine {
  struct Given {
    std::string name;
    std::string value;
    std::string spelled;  ///< as the user wrote it: "--no-shuffle"
  };
  std::vector<Given> options;
  std::string config;  ///< --config FILE; "" = none
  bool help = false;
};
/// Splits and names; values are not looked at. `takes_config`: the command knows --config. Throws UsageError.
CommandLine read_command_line(const OptionTable& table, const std::vector<std::string>& arguments, bool takes_config);
void apply(const CommandLine& line, OptionTable& table);
/// All there is to read for a command that knows no file of options. Throws UsageError, and HelpRequested for --help.
void read_options(OptionTable& table, const std::vector<std::string>& arguments, std::string_view usage,
                  std::string_view examples);

// options_help.cpp
/// Of all rows that are not hidden; `usage` and `examples` as help_page() takes them.
HelpPage make_help(const OptionTable& table, std::string_view usage, std::string_view examples, bool takes_config);

// options_ini.cpp
/// Assigns every `name = value` line of `text`. Messages begin with "SOURCE_NAME:LINE: ". Throws UsageError.
void apply_ini(const std::string& text, const std::string& source_name, OptionTable& table,
               OptionSource source = OptionSource::file);
void apply_ini_file(const std::filesystem::path& file, OptionTable& table);
/// Every option once, under its group; those without effect as comments.
std::string format_ini(const OptionTable& table);

}  // namespace lockstep::app
