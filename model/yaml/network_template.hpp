/// \file
/// Reads the parts of a network file that need no data: name, options and training defaults (networks.md has the
/// grammar).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/network.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/yaml_document.hpp"

namespace lockstep::model {

/// Reads the network that `text` describes. `file`: a user's file, as given to --model; "": a shipped network. Throws
/// std::invalid_argument, "FILE:LINE: ...", for an invalid text.
NetworkKind read_network(std::string text, std::string file);

/// An input that a file declares, `inputs: {NAME: [28, any, 3]}`.
struct DeclaredInput {
  std::string name = "input";
  std::vector<std::int64_t> extents = {};  ///< 0: any; empty: the extents of the data
  int line = 0;                            ///< 0: not declared
};
/// Returns the inputs that a file declares, in its order; empty: one input of any shape.
std::vector<DeclaredInput> declared_inputs(const NetworkKind& kind);

/// Converts a value to the option's type. Throws std::invalid_argument with the end of a sentence that begins with the
/// name of the option: "is relu, and must be a whole number".
OptionValue option_value(const NetworkValue& value, const NetworkOption& option);

/// Returns the end of a message about an unknown name: "; did you mean conv?", if a name is near, then all names.
std::string known_names(std::string_view wrong, std::vector<std::string> names, std::string_view what);

/// Returns the file's name for messages: the user's file, or "mlp.yaml".
std::string file_of(const NetworkKind& kind);
/// True for a non-empty text of letters, digits, _, - and . only.
bool has_name_letters(std::string_view text);

}  // namespace lockstep::model
