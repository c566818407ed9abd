/// \file
/// What --help says of a command, as data: the text on a terminal, manual pages and shell completions are made of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

/// How an option takes its value.
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
  std::vector<std::string> words;  ///< all that the value may be; empty: anything
  std::string usual;               ///< the value where the user gives none; "" where it says nothing

  /// "--epochs N", "--[no-]shuffle", "--resume[=FILE]"
  std::string spelled() const;
  /// The help with the words and the usual value.
  std::string explanation() const;
};

struct HelpPage {
  struct Network {
    std::string name;
    std::string summary;
  };

  std::string command;                     ///< "lockstep train"
  std::string synopsis;                    ///< "mpirun -np RANKS lockstep train --data FOLDER [options]"
  std::string description;                 ///< lines of prose; empty lines part paragraphs
  std::vector<Network> networks = {};      ///< those to choose from, where --model was not given
  std::vector<Network> chosen = {};        ///< the one that was
  std::vector<HelpRow> rows = {};          ///< those of a group one after another
  bool takes_config = false;               ///< --config FILE
  std::vector<std::string> examples = {};  ///< lines; those of comments begin with more blanks
};

/// `usage` is "Usage: SYNOPSIS", an empty line, the description; `examples` is "", or "\nExamples\n" and lines.
HelpPage help_page(std::string_view command, std::string_view usage, std::string_view examples);

/// 100 columns: usage, networks, groups, one row per option, examples.
std::string to_text(const HelpPage& page);

/// Of every command: what it takes besides its rows, "--help" last.
struct GeneralOption {
  std::string_view spelled;
  std::string_view help;
};
std::vector<GeneralOption> general_options(const HelpPage& page);

/// How defaults and yes/no options are written, in one paragraph.
std::string notes_on_options(const HelpPage& page);

}  // namespace lockstep::app
