/// \file
/// A network file: its name, options and training defaults, read without data (networks.md has the grammar).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/network.hpp"
#include "model/yaml/expression.hpp"
#include "model/yaml/yaml_document.hpp"

namespace lockstep::model {

/// The network that `text` describes. `file`: a user's file, as --model names it; "": a shipped network. Throws
/// std::invalid_argument, "FILE:LINE: ...", for a text that is no network.
NetworkKind read_network(std::string text, std::string file);

/// An input that a file declares, `inputs: {NAME: [28, any, 3]}`.
struct DeclaredInput {
  std::string name = "input";
  std::vector<std::int64_t> extents = {};  ///< 0: any; empty: as the data are
  int line = 0;                            ///< 0: not declared
};
/// Those of a file, in its order; none: one input of any shape.
std::vector<DeclaredInput> declared_inputs(const NetworkKind& kind);

/// The value as one of the option's type. Throws std::invalid_argument, the end of a sentence that begins with the name
/// of the option: "is relu, and must be a whole number".
OptionValue option_value(const NetworkValue& value, const NetworkOption& option);

/// "; did you mean conv?", or "" ; then the names: what a message about an unknown name ends with.
std::string known_names(std::string_view wrong, std::vector<std::string> names, std::string_view what);

/// The name of the kind's text in messages: the user's file, or "mlp.yaml".
std::string file_of(const NetworkKind& kind);
/// True for letters, digits, _, - and ., at least one.
bool has_name_letters(std::string_view text);

}  // namespace lockstep::model
