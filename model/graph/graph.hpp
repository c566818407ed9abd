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
  std::vector<std::size_t> readers = {};  ///< nodes, ascending; a node that reads it twice is there twice
};

/// A call of an operation. Its output is value `number of the node + 1`; value 0 is the network's input.
struct Node {
  std::string name;
  Call call = {};  ///< with all arguments
  std::unique_ptr<Operation> operation = {};
  std::vector<std::size_t> inputs = {};  ///< values
  std::vector<ParameterSpec> declared = {};
  /// A parameter that another node declares: behind the node's own ones.
  struct Shared {
    Node* owner;
    std::size_t number;
  };
  std::vector<Shared> shared = {};
  std::vector<std::size_t> parameters = {};  ///< indices of both in the network's table
  std::vector<ActivationSpec> saved = {}, scratch = {}, states = {};
  std::size_t first_state = 0;  ///< in the table of recurrent state
  std::int64_t margin = 0;
  bool synchronizes = false;
};

class Graph {
 public:
  /// Declares parameters in `parameters` and recurrent state in `state`. Throws std::invalid_argument with the place
  /// and the name of the call for a description that is none.
  Graph(const Description& description, ParameterTable& parameters, ActivationTable& state,
        OperationKinds kinds = operation_kinds());

  const std::vector<Node>& nodes() const noexcept { return nodes_; }
  const std::vector<Value>& values() const noexcept { return values_; }
  std::size_t output() const noexcept { return nodes_.size(); }  ///< the value that the loss reads
  /// For each value, whether a trained parameter lies upstream: only then its gradient is made.
  std::vector<bool> values_that_want_gradients(const ParameterTable& parameters) const;
  /// True if the node makes gradients of its own parameters.
  static bool trains(const Node& node, const ParameterTable& parameters);

 private:
  std::vector<Node> nodes_;
  std::vector<Value> values_;
};

}  // namespace lockstep::model
