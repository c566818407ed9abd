/// \file
/// A network as words: named calls of operations, flat and in the order of computing. All that a network is made of can
/// be stored and compared.
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
  std::string name;  ///< its parameters are NAME/weight and so on, and its result is the value NAME
  /// Names of the values that it reads; empty: the result of the preceding call, or the network's input.
  std::vector<std::string> from = {};
  std::map<std::string, OptionValue, std::less<>> arguments = {};
  /// Its parameters come before those of this call in the parameter table; empty: in the order of the calls.
  std::string declared_before = {};
  std::string place = {};  ///< a user's file and line, for messages: "net.yaml:14"
  /// The calls that this one computes in one (model/graph/rewrites.hpp); its name is that of the last.
  std::vector<Call> parts = {};

  /// The value of an argument, if it is given. Throws std::bad_variant_access for another type.
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

/// Calls that share a line of the plan: those named NAME or NAME/...
struct CallGroup {
  std::string name;
  std::string description;  ///< behind the shapes of its input and output
  bool has_shapes = true;   ///< false: the description alone
};

struct Description {
  std::string input = "input";  ///< name of the value that the batch provides
  Shape input_shape;
  Holds input_holds = Holds::activations;  ///< or tokens
  std::vector<Call> calls;                 ///< the result of the last one is the network's output
  std::vector<CallGroup> groups = {};
};

}  // namespace lockstep::model
