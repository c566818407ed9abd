/// \file
/// The declaration of options: one row per option, bound to the field that it sets. The command line, the INI file, the
/// help, the saved configuration and the list of valid names are all derived from these rows. The value of a field when
/// its row is added is the default. Private to the code that reads options.
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

/// Source of an option's value. Later sources override earlier ones.
enum class OptionSource {
  default_value,
  checkpoint,  ///< checkpoint that a run resumes or that provides its initial weights
  file,
  command_line,
};

/// One row. Declared by OptionTable::add and the chained calls below.
class Option {
 public:
  using Shape = OptionShape;

  // --- declaration, chained ---
  /// Bounds for a number, or for each element of a list: at_least and at_most include the bound.
  Option& at_least(double bound);
  Option& above(double bound);
  Option& at_most(double bound);
  Option& below(double bound);
  /// The value is one of these names.
  Option& one_of(std::vector<std::string> names);
  /// Accepts also values for which `accepted` is true, besides the names of one_of().
  Option& or_if(bool (*accepted)(std::string_view));
  /// Adds a check of text() after parsing. `check` returns "", or the error ("is not …").
  Option& check(std::function<std::string(const std::string&)> check);
  /// --name alone means --name=value.
  Option& alone_means(std::string value);
  /// The first bare argument of the command line is this option's value.
  Option& positional();
  /// The option, or its bare argument, may be repeated; parsing then appends to the value.
  Option& several();
  /// The option has an effect only while `other` has one of these values.
  Option& only_with(std::string other, std::vector<std::string> values);
  /// The option has an effect only while `other` differs from its default.
  Option& needs(std::string other);
  /// The option has no effect while `other` differs from its default; giving both is an error.
  Option& contradicts(std::string other);
  /// Declares values that leave the decision to the run ("auto"). Such a value does not override a decision stored in a
  /// checkpoint.
  Option& left_open_by(std::function<bool(const std::string&)> open);
  Option& left_open_by(std::string value);
  /// Replaces the text for the help.
  Option& explain(std::string help);
  /// Hides the option from the help.
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
  /// Returns the field's value as text that assign() accepts.
  std::string text() const { return text_(); }
  bool is_default() const { return text_() == default_; }
  bool is_hidden() const noexcept { return hidden_; }
  const std::string& spelled() const noexcept { return spelled_; }  ///< the user's spelling
  /// Parses `text` and checks the bounds. Returns "", or the error, and then does not change `value`.
  std::string read(const std::string& text, bool& value) const;
  std::string read(const std::string& text, std::vector<std::int64_t>& value) const;
  template <class Number>
  std::string read(const std::string& text, Number& value) const;
  /// Parses and checks `value`. On an error, throws UsageError that begins with `spelled`, the user's spelling of the
  /// option ("--epochs" or "run.ini:3: epochs"), and does not change the field. A value that leaves the decision open
  /// does not change a value from a checkpoint.
  void assign(const std::string& value, OptionSource source, const std::string& spelled);
  /// Returns the field to its default.
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
  bool left_open_ = false;  ///< the present value leaves the decision to the run
  std::vector<std::string> names_;
  bool (*accepted_)(std::string_view) = nullptr;  ///< accepts values besides names_
  std::optional<Bound> lower_, upper_;
  std::function<std::string(const std::string&)> check_;
  std::function<bool(const std::string&)> open_;
  std::vector<Relation> relations_;
  OptionSource source_ = OptionSource::default_value;
  std::string spelled_;
  /// Sets the field; returns "", or the error.
  std::function<std::string(const std::string&)> parse_;
  std::function<std::string()> text_;
};

class OptionTable {
 public:
  /// `command`: the command as the user types it, "lockstep train".
  explicit OptionTable(std::string command) : command_(std::move(command)) {}

  /// Sets the group of the rows that are added from now on.
  void group(std::string title) { group_ = std::move(title); }
  /// Adds a row. The field must outlive the table. `value_name`: name of the value in the help ("STEPS").
  Option& add(std::string name, bool& field, std::string help);
  template <class Number>
  requires std::is_arithmetic_v<Number> Option& add(std::string name, Number& field, std::string value_name,
                                                    std::string help);
  Option& add(std::string name, std::optional<double>& field, std::string value_name, std::string help);
  Option& add(std::string name, std::string& field, std::string value_name, std::string help);
  Option& add(std::string name, std::filesystem::path& field, std::string value_name, std::string help);
  /// The value is a comma-separated list. "none" is the empty list, accepted only if the default is empty.
  Option& add(std::string name, std::vector<std::int64_t>& field, std::string value_name, std::string help);

  /// The value is one of a few names.
  template <class Value>
  Option& add_choice(std::string name, Value& field, std::string value_name, std::string help,
                     const std::vector<Choice<Value>>& of = choices<Value>()) {
    std::vector<std::string> words;
    for (const Choice<Value>& choice : of) words.push_back(choice.word);
    const auto parse = [&field, of](const std::string& text) {
      for (const Choice<Value>& choice : of) {
        if (choice.word == text) field = choice.value;
      }
      return std::string();  // one_of() rejects all other names
    };
    return bind(append(std::move(name), std::move(value_name), std::move(help)), parse,
                [&field, of] { return word_of(field, of); })
        .one_of(std::move(words));
  }
  /// Adds an option without a field. `parse` returns "", or the error ("is not …") and then changes nothing. It accepts
  /// the output of `text`. Rows never move, so `parse` may keep a reference to its row.
  Option& add_free(std::string name, Option::Shape shape, std::string value_name, std::string help,
                   std::function<std::string(const Option&, const std::string&)> parse,
                   std::function<std::string()> text);
  /// Adds an option whose value has its own text form. `parse` returns "", or the error ("is not …") and then does not
  /// change the value. It accepts the output of `text`.
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
  /// Returns the option; nullptr if there is none.
  Option* find(std::string_view name);
  const Option* find(std::string_view name) const;
  std::vector<std::string> names() const;
  /// Returns the names of options set by any source, in table order, except those that leave the decision to the run.
  std::vector<std::string> given() const;
  /// Returns the subset of given() whose values come from a checkpoint.
  std::vector<std::string> from_checkpoint() const;
  /// True if the option has an effect, given the values of the others.
  bool in_use(const Option& option) const;

  /// Throws UsageError if options from the same source contradict each other, or if an option has no effect. If the
  /// sources differ, the later one wins, and the other option returns to its default: an option of the file that the
  /// command line contradicts, or an option of the checkpoint that either contradicts.
  void check_relations();
  /// Throws UsageError if --name has an empty value. The message says that it is missing, and ends with `what`.
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

/// Removes blanks at both ends.
std::string_view trimmed(std::string_view text);
/// Calls `parse`. Returns "", or the text of the UsageError that it throws. For options whose parser throws.
template <class Parse>
std::string refusal_of(Parse parse) {
  try {
    parse();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// command_line.cpp
struct CommandLine {
  struct Given {
    std::string name;
    std::string value;
    std::string spelled;  ///< the user's spelling: "--no-shuffle"
  };
  std::vector<Given> options;
  std::string config;  ///< --config FILE; "" = none
  bool help = false;
};
/// Splits the arguments into options and values, without a check of the values. `takes_config`: the command has
/// --config. Throws UsageError.
CommandLine read_command_line(const OptionTable& table, const std::vector<std::string>& arguments, bool takes_config);
/// Assigns the options of the command line. Throws UsageError.
void apply(const CommandLine& line, OptionTable& table);
/// Reads all arguments of a command without --config. Throws UsageError, and HelpRequested for --help.
void read_options(OptionTable& table, const std::vector<std::string>& arguments, std::string_view usage,
                  std::string_view examples);

// table_help.cpp
/// Makes the help page of all rows that are not hidden; `usage` and `examples` as in help_page().
HelpPage make_help(const OptionTable& table, std::string_view usage, std::string_view examples, bool takes_config);

// ini_file.cpp
/// Assigns every `name = value` line of `text`. Messages begin with "SOURCE_NAME:LINE: ". Throws UsageError.
void apply_ini(const std::string& text, const std::string& source_name, OptionTable& table,
               OptionSource source = OptionSource::file);
void apply_ini_file(const std::filesystem::path& file, OptionTable& table);
/// Returns the value in `text`, the part of a line after `name =`. Throws UsageError.
std::string ini_value(std::string_view text);
/// Writes every option once, under its group. Options without effect become comments.
std::string format_ini(const OptionTable& table);

}  // namespace lockstep::app
