/// \file
/// The content of --help as data. The text on a terminal, manual pages and shell completions are made from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

/// Form in which an option takes its value.
enum class OptionShape {
  value,           ///< --name VALUE
  yes_or_no,       ///< --name, --no-name, --name=yes|no
  optional_value,  ///< --name or --name=VALUE
};

struct HelpRow {
  std::string name;  ///< "epochs"
  std::string group;
  OptionShape shape = OptionShape::value;
  std::string value_name;  ///< "N"
  std::string help;
  std::vector<std::string> words;  ///< all valid values; empty: anything
  std::string usual;               ///< default value; "": not shown

  /// Returns "--epochs N", "--[no-]shuffle" or "--resume[=FILE]".
  std::string spelled() const;
  /// Returns the help with the valid values and the default.
  std::string explanation() const;
};

struct HelpPage {
  struct Network {
    std::string name;
    std::string summary;
  };

  std::string command;                     ///< "lockstep train"
  std::string synopsis;                    ///< "mpirun -np RANKS lockstep train --data FOLDER [options]"
  std::string description;                 ///< lines of text; empty lines separate paragraphs
  std::vector<Network> networks = {};      ///< networks to choose from, if --model was not given
  std::vector<Network> chosen = {};        ///< the chosen network
  std::vector<HelpRow> rows = {};          ///< the rows of a group are consecutive
  bool takes_config = false;               ///< the command has --config FILE
  std::vector<std::string> examples = {};  ///< lines; comments begin with more blanks
};

/// Makes a page without rows. `usage`: "Usage: SYNOPSIS", an empty line and the description. `examples`: "", or
/// "\nExamples\n" and lines.
HelpPage help_page(std::string_view command, std::string_view usage, std::string_view examples);

/// Returns the text for a terminal of 100 columns: usage, networks, one row per option by groups, examples.
std::string to_text(const HelpPage& page);

/// An option that does not come from a table: --config or --help.
struct GeneralOption {
  std::string_view spelled;
  std::string_view help;
};
/// Returns the general options of the page's command; --help is the last.
std::vector<GeneralOption> general_options(const HelpPage& page);

/// Returns a paragraph about the notation of defaults and of yes/no options.
std::string notes_on_options(const HelpPage& page);

}  // namespace lockstep::app
