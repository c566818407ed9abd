/// \file
/// A network's graph, made from its description: nodes with their operations, values with their types and readers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "model/graph/description.hpp"
#include "model/graph/operation.hpp"
#include "model/graph/operation_kinds.hpp"

namespace lockstep::model {

struct Value {
  ValueType type;
  std::int64_t margin = 0;                ///< rows per sample before the first one
  std::vector<std::size_t> readers = {};  ///< nodes, ascending; a node that reads it twice occurs twice
};

/// A call of an operation. Its output is value `number of the node + 1`; value 0 is the network's input.
struct Node {
  std::string name;
  Call call = {};  ///< with all arguments
  std::unique_ptr<Operation> operation = {};
  std::vector<std::size_t> inputs = {};  ///< values
  std::vector<ParameterSpec> declared = {};
  /// A parameter that another node declares.
  struct Shared {
    Node* owner;
    std::size_t number;
  };
  std::vector<Shared> shared = {};
  std::vector<std::size_t> parameters = {};  ///< indices in the network's table: declared, then shared ones
  std::vector<ActivationSpec> saved = {}, scratch = {}, states = {};
  std::size_t first_state = 0;  ///< index of the first of `states` in the network's table of recurrent state
  std::int64_t margin = 0;
  bool synchronizes = false;
};

class Graph {
 public:
  /// Declares parameters in `parameters` and recurrent state in `state`. Throws std::invalid_argument, with the place
  /// and the name of the call, for an invalid description.
  Graph(const Description& description, ParameterTable& parameters, ActivationTable& state,
        OperationKinds kinds = operation_kinds());

  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const std::vector<Value>& values() const noexcept { return values_; }
  std::size_t output() const noexcept { return nodes_.size(); }  ///< the value that the loss reads
  /// Returns for each value whether it depends on a trained parameter. Backward computes gradients of these values
  /// only.
  std::vector<bool> values_that_want_gradients(const ParameterTable& parameters) const;
  /// True if the node computes gradients of its parameters.
  static bool trains(const Node& node, const ParameterTable& parameters);

 private:
  std::vector<Node> nodes_;
  std::vector<Value> values_;
};

}  // namespace lockstep::model
