#include "model/graph/graph_network.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/rewrites.hpp"

namespace lockstep::model {

GraphNetwork::GraphNetwork(const Description& description, const SampleShape& shape, std::string signature,
                           OperationKinds kinds)
    : groups_(description.groups), signature_(std::move(signature)) {
  shape_ = shape;
  graph_.emplace(rewritten(description, kinds), parameters_, recurrent_state_, kinds);
  const Shape& output = graph_->values()[graph_->output()].type.shape;
  if (output.elements() != shape.outputs * positions()) {
    const bool is_flat = output.places() == positions();
    throw std::invalid_argument(fmt::format(
        "the network's output is {} of each sample, and the data ask for {}: end with {}", to_string(output),
        shape.outputs, is_flat ? "`dense: $outputs`" : "`flatten` (or `global-average`) and `dense: $outputs`"));
  }
  if (parameters_.all().empty()) throw std::invalid_argument("the network has no parameters: nothing can be trained");
  synchronizes_ = std::ranges::any_of(graph_->nodes(), &Node::synchronizes);
  // One row per position, from the tokens to the output.
  reuses_positions_ =
      shape.tokens &&
      std::ranges::all_of(graph_->nodes(), [](const Node& node) { return node.operation->takes_positions(); }) &&
      std::ranges::all_of(graph_->values(), [&](const Value& value) {
        return value.type.holds == Holds::tokens || value.type.shape.places() == positions();
      });
  parameters_.lay_out();
  compile();
}

void GraphNetwork::compile() {
  training_.emplace(*graph_, parameters_, Purpose::training);
  evaluation_.emplace(*graph_, parameters_, Purpose::evaluation);
}

void GraphNetwork::freeze(std::span<const std::size_t> parameters) {
  Network::freeze(parameters);
  compile();
}

namespace {

void add_costs(const LayerPlan& part, LayerPlan& sum) {
  sum.parameters += part.parameters;
  sum.activation_elements += part.activation_elements;
  sum.forward_flops += part.forward_flops;
  sum.backward_flops += part.backward_flops;
  sum.patch_elements = std::max(sum.patch_elements, part.patch_elements);
  sum.score_elements = std::max(sum.score_elements, part.score_elements);
  sum.products.insert(sum.products.end(), part.products.begin(), part.products.end());
  sum.declares.insert(sum.declares.end(), part.declares.begin(), part.declares.end());
}

}  // namespace

std::vector<LayerPlan> GraphNetwork::plan(std::span<const CallGroup> groups) const {
  const CallGroup* last_group = nullptr;
  std::string input;  // shape that the last group reads
  const std::vector<bool> wants = graph_->values_that_want_gradients(parameters_);
  std::vector<LayerPlan> lines;
  for (std::size_t i = 0; i < graph_->nodes().size(); ++i) {
    const Node& node = graph_->nodes()[i];
    if (node.operation->needs().is_view) continue;
    NodeView view{.name = node.name,
                  .inputs = {},
                  .output = graph_->values()[i + 1].type,
                  .table = parameters_,
                  .parameters = node.parameters,
                  .goes_on = std::ranges::any_of(node.inputs, [&](std::size_t value) { return wants[value]; })};
    for (const std::size_t value : node.inputs) view.inputs.push_back(graph_->values()[value].type);
    const std::vector<std::size_t> declared(node.parameters.begin(),
                                            node.parameters.end() - static_cast<std::ptrdiff_t>(node.shared.size()));
    const auto group = std::ranges::find_if(groups, [&](const CallGroup& each) {
      return node.name == each.name || node.name.starts_with(each.name + "/");
    });
    if (group == groups.end()) {
      // A dropout or a sum is no line of its own if its name says that it belongs to the line before.
      const bool belongs = node.parameters.empty() && !lines.empty() && node.name.starts_with(lines.back().name + "/");
      if (belongs) continue;
      std::vector<LayerPlan> own = node.operation->lines(view);
      if (own.size() == 1) own[0].declares = declared;
      std::ranges::move(own, std::back_inserter(lines));
      continue;
    }
    if (&*group != last_group) {
      lines.push_back({.name = group->name, .description = ""});
      last_group = &*group;
      input = to_string(view.inputs[0].shape);
    }
    const OperationNeeds needs = node.operation->needs();
    LayerPlan part = node.operation->plan(view);
    if (!group->has_shapes && node.parameters.empty() && needs.in_place != 0) part.activation_elements = 0;
    part.declares = declared;
    add_costs(part, lines.back());
    lines.back().description =
        group->has_shapes ? fmt::format("{} -> {}, {}", input, to_string(view.output.shape), group->description)
                          : group->description;
  }
  return lines;
}

void GraphNetwork::backward(const Pass& pass, const Tensor& /*d_output*/, Accumulate accumulate,
                            const GradientReady& ready) const {
  training_->backward(pass, accumulate, ready);
}

}  // namespace lockstep::model
