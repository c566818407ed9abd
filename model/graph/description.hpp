/// \file
/// A network as data: a flat list of named calls of operations, in the order of computation. It can be stored and
/// compared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/activation_table.hpp"
#include "model/graph/shape.hpp"
#include "model/network_options.hpp"

namespace lockstep::model {

/// One operation of a network.
struct Call {
  std::string kind;  ///< name of an OperationKind
  std::string name;  ///< the result is the value NAME; parameters are NAME/weight ...
  /// Names of the values that it reads; empty: the result of the previous call, or the network's input for the first
  /// call.
  std::vector<std::string> from = {};
  std::map<std::string, OptionValue, std::less<>> arguments = {};
  /// Name of a call before whose parameters this call's parameters are declared; empty: in the order of the calls.
  std::string declared_before = {};
  std::string place = {};  ///< file and line in a user's file, for messages: "net.yaml:14"
  /// Calls that this one fuses (model/graph/rewrites.hpp); it has the name of the last part.
  std::vector<Call> parts = {};

  /// Returns the value of an argument; nullopt if it is not given. Throws std::bad_variant_access if T is not its type.
  template <class T>
  std::optional<T> find(std::string_view argument) const {
    const auto found = arguments.find(argument);
    return found == arguments.end() ? std::nullopt : std::optional<T>(std::get<T>(found->second));
  }
  template <class T>
  T get(std::string_view argument) const {
    return find<T>(argument).value();
  }
  std::optional<Initializer> initializer(std::string_view argument) const {
    const auto given = find<Initializers>(argument);
    return given ? given->all : std::nullopt;
  }
  void set_initializer(std::string argument, const Initializer& initializer) {
    arguments[std::move(argument)] = Initializers{.all = initializer, .layers = {}};
  }
};

/// Calls that share a line of the plan: all calls named NAME or NAME/...
struct CallGroup {
  std::string name;
  std::string description;  ///< follows the shapes of its input and output
  bool has_shapes = true;   ///< false: the description alone
};

struct Description {
  std::string input = "input";  ///< name of the value that the batch provides
  Shape input_shape;
  Holds input_holds = Holds::activations;  ///< or tokens
  std::vector<Call> calls;                 ///< the last result is the network's output
  std::vector<CallGroup> groups = {};
};

}  // namespace lockstep::model
