/// \file
/// The content of --help as data, from which the text on a terminal, manual pages and shell completions are made.
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
  std::string usual;  ///< the value that applies unless the user gives one; "" if the help does not tell it

  /// "--epochs N", "--[no-]shuffle", "--resume[=FILE]"
  std::string spelled() const;
  /// The help with the valid values and the usual value.
  std::string explanation() const;
};

struct HelpPage {
  struct Network {
    std::string name;
    std::string summary;
  };

  std::string command;                     ///< "lockstep train"
  std::string synopsis;                    ///< "mpirun -np RANKS lockstep train --data FOLDER [options]"
  std::string description;                 ///< lines of prose; empty lines separate paragraphs
  std::vector<Network> networks = {};      ///< networks to choose from, if --model was not given
  std::vector<Network> chosen = {};        ///< the chosen network
  std::vector<HelpRow> rows = {};          ///< rows, those of a group one after another
  bool takes_config = false;               ///< --config FILE
  std::vector<std::string> examples = {};  ///< lines; comments begin with more blanks
};

/// `usage` is "Usage: SYNOPSIS", an empty line, the description; `examples` is "", or "\nExamples\n" and lines.
HelpPage help_page(std::string_view command, std::string_view usage, std::string_view examples);

/// 100 columns: usage, networks, groups, one row per option, examples.
std::string to_text(const HelpPage& page);

/// An option of every command besides its rows; "--help" is the last.
struct GeneralOption {
  std::string_view spelled;
  std::string_view help;
};
std::vector<GeneralOption> general_options(const HelpPage& page);

/// One paragraph about the notation of defaults and of yes/no options.
std::string notes_on_options(const HelpPage& page);

}  // namespace lockstep::app
