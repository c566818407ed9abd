#include "app/exchange/onnx_operations.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "model/graph/operation_kinds.hpp"
#include "model/network.hpp"

namespace lockstep::app {
namespace {

TEST(OnnxOperationsTest, ThereIsAnEmitterForEachKindThatDescriptionsHave) {
  std::set<std::string_view> kinds, emitted;
  for (const model::OperationKind* kind : model::operation_kinds()) {
    if (!kind->is_fused) kinds.insert(kind->name);
  }
  for (const OnnxEmitter& emitter : onnx_emitters()) {
    EXPECT_TRUE(emitted.insert(emitter.kind).second) << emitter.kind << " twice";
  }
  EXPECT_EQ(emitted, kinds);
}

/// A network of dense layers with the weights of a file.
class Dense {
 public:
  Dense()
      : network_({.input_shape = {2},
                  .calls = {{.kind = "dense", .name = "wide", .arguments = {{"units", 3}, {"activation", "gelu"}}},
                            {.kind = "dense", .name = "narrow", .arguments = {{"units", 2}}},
                            {.kind = "add", .name = "sum", .from = {"narrow", "input"}}}},
                 {.features = 2, .outputs = 2}, "test") {
    for (const model::Parameter& parameter : network_.parameters().all()) {
      numbers_.emplace_back(parameter.count);
      weights_.push_back({.name = parameter.name, .shape = parameter.shape, .values = numbers_.back()});
    }
  }

  std::set<std::string> operators() {
    io::OnnxModel model;
    OnnxGraph onnx(model);
    model::ParameterTable table;
    model::ActivationTable state;
    const model::Graph graph = network_.plain_graph(table, state);
    OnnxEmission emission(graph, table, weights_, onnx);
    emission.set_rows(0, "input");
    emission.run();
    std::set<std::string> operators;
    for (const auto& node : model.nodes) operators.insert(node.op_type);
    return operators;
  }
  std::vector<io::NamedTensor>& weights() { return weights_; }

 private:
  model::Network network_;
  std::vector<std::vector<float>> numbers_;
  std::vector<io::NamedTensor> weights_;
};

TEST(OnnxOperationsTest, TheGraphIsThatOfPlainOperations) {
  const std::set<std::string> operators = Dense().operators();
  EXPECT_TRUE(operators.contains("Gemm"));
  EXPECT_TRUE(operators.contains("Tanh")) << "of the gelu that training computes with both products";
}

TEST(OnnxOperationsTest, AMissingWeightIsAnError) {
  Dense network;
  network.weights().pop_back();
  EXPECT_THROW(network.operators(), std::logic_error);
}

}  // namespace
}  // namespace lockstep::app
