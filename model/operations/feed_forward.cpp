/// \file
/// "dense, gelu, dense": two fused dense operations with a GELU between them. The pass of the GELU adds the bias, and
/// one product computes the gradient through the second dense and the GELU.
#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/operations/dense_parameters.hpp"

namespace lockstep::model {

namespace {

class FeedForwardOperation final : public Operation {
 public:
  explicit FeedForwardOperation(const Call& call) : expand_(call.parts.at(0)), contract_(call.parts.at(1)) {
    // In the plan, two parts of one group have the group's name.
    const std::string& first = expand_.name;
    const std::string group = first.substr(0, first.rfind('/') + 1);
    name_ = !group.empty() && contract_.name.starts_with(group) ? group.substr(0, group.size() - 1)
                                                                : fmt::format("{}, {}", first, contract_.name);
  }

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    inputs_ = inputs[0].shape.last();
    wide_ = expand_.get<std::int64_t>("units");
    units_ = contract_.get<std::int64_t>("units");
    declare_dense(declarations, expand_, inputs_);
    declare_dense(declarations, contract_, wide_);
    const ActivationSpec wide{.name = "", .rows = inputs[0].shape.places(), .columns = wide_, .holds = Holds::narrow};
    declarations.saved(wide);
    declarations.saved(wide);
    declarations.scratch(wide);
    return {.shape = inputs[0].shape.with_last(units_), .order = inputs[0].order};
  }

  OperationNeeds needs() const override {
    return {.reads_inputs = 1, .adds_in_product = true, .narrow_inputs = 1, .narrow_output = true};
  }
  bool takes_positions() const override { return true; }

  LayerPlan plan(const NodeView& node) const override {
    const std::int64_t rows = node.output.shape.places();
    const auto product = [&](std::int64_t inputs, std::int64_t outputs) {
      return 2.0 * static_cast<double>(rows) * static_cast<double>(inputs) * static_cast<double>(outputs);
    };
    const double expand = product(inputs_, wide_), contract = product(wide_, units_);
    const auto is_frozen = [&](std::size_t k) { return node.table[node.parameters[k]].frozen; };
    return {.name = name_,
            .description = fmt::format("{} -> {}, gelu -> {}", inputs_, wide_, units_),
            .parameters = inputs_ * wide_ + wide_ + wide_ * units_ + units_,
            .activation_elements = rows * (2 * wide_ + units_),
            .forward_flops = expand + contract,
            .backward_flops = (is_frozen(kContract) ? 0 : contract) + contract + node.backward_flops(expand, kExpand),
            .products = {{.rows = rows, .inputs = wide_, .outputs = units_},
                         {.rows = rows, .inputs = inputs_, .outputs = wide_}}};
  }

  void forward(const NodePass& node) const override {
    node.pass.backend.linear_gelu_forward(node.in(), node.weight(kExpand), node.weight(kExpand + 1),
                                          node.saved(kExpanded), node.saved(kActive));
    const Tensor active = node.saved(kActive), weight = node.weight(kContract), bias = node.weight(kContract + 1);
    if (const Tensor added = node.added(); added.present()) {
      return node.pass.backend.linear_add_forward(active, weight, bias, added, node.out());
    }
    node.pass.backend.linear_forward(active, weight, bias, Activation::none, node.out());
  }

  void backward(const NodePass& node) const override {
    const Tensor expanded = node.saved(kExpanded), d_expanded = node.scratch(0);
    node.pass.backend.linear_backward_through_gelu({.x = node.saved(kActive),
                                                    .w = node.weight(kContract),
                                                    .d_y = node.d_out(),
                                                    .d_w = node.gradient(kContract),
                                                    .d_bias = node.gradient(kContract + 1),
                                                    .d_x = d_expanded},
                                                   expanded, node.accumulate(), node.gradient(kExpand + 1));
    node.pass.backend.linear_backward({.x = node.in(),
                                       .w = node.weight(kExpand),
                                       .y = expanded,
                                       .d_y = d_expanded,
                                       .d_w = node.gradient(kExpand),
                                       .d_x = node.d_in()},
                                      Activation::none, node.accumulate());
  }

  void results(const std::string& name, const NodePass& node, const TakeResult& take) const override {
    take(expand_.name, node.saved(kActive));
    take(name, node.out());
  }

 private:
  static constexpr std::size_t kExpand = 0, kContract = 2;  // numbers of the weights; a bias follows each
  static constexpr std::size_t kExpanded = 0, kActive = 1;  // saved

  Call expand_, contract_;
  std::string name_;
  std::int64_t inputs_ = 0, wide_ = 0, units_ = 0;
};

}  // namespace

extern const OperationKind feed_forward_operation;
const OperationKind feed_forward_operation{.name = "dense, gelu, dense",
                                           .summary = "two dense operations with a GELU between them, in one",
                                           .rows = ReadsRows::either,
                                           .is_fused = true,
                                           .make = [](const Call& call) -> std::unique_ptr<Operation> {
                                             return std::make_unique<FeedForwardOperation>(call);
                                           }};

}  // namespace lockstep::model
