/// \file
/// Base of operations without parameters and matrix products. Their only cost is the memory of the output.
#pragma once

#include <string>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

class PlainOperation : public Operation {
 public:
  OperationNeeds needs() const override { return {}; }
  /// Returns the description in the node's line of the plan.
  virtual std::string describe(const NodeView& node) const {
    return fmt::format("{} -> {}", to_string(node.inputs[0].shape), to_string(node.output.shape));
  }
  LayerPlan plan(const NodeView& node) const final {
    return {.name = node.name, .description = describe(node), .activation_elements = node.output.shape.elements()};
  }
};

}  // namespace lockstep::model
