/// \file
/// An operation without parameters and products: its cost is its output.
#pragma once

#include <string>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

class PlainOperation : public Operation {
 public:
  OperationNeeds needs() const override { return {}; }
  /// The description in the node's line of the plan.
  virtual std::string describe(const NodeView& node) const {
    return fmt::format("{} -> {}", to_string(node.inputs[0].shape), to_string(node.output.shape));
  }
  LayerPlan plan(const NodeView& node) const final {
    return {.name = node.name, .description = describe(node), .activation_elements = node.output.shape.elements()};
  }
};

}  // namespace lockstep::model
