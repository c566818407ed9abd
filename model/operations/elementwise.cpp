/// \file
/// "elementwise": applies a function to each element (model/formulas/elementwise.hpp).
#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

struct FunctionName {
  std::string_view name;
  Function function;
  std::optional<float> parameter = {};  ///< default of functions with a parameter
};
constexpr std::array<FunctionName, 13> kFunctionNames{{{"relu", Function::relu},
                                                       {"leaky-relu", Function::leaky_relu, 0.01f},
                                                       {"elu", Function::elu, 1.0f},
                                                       {"tanh", Function::tanh},
                                                       {"sigmoid", Function::sigmoid},
                                                       {"silu", Function::silu},
                                                       {"gelu", Function::gelu},
                                                       {"gelu-exact", Function::gelu_exact},
                                                       {"softplus", Function::softplus},
                                                       {"log1p", Function::log1p},
                                                       {"hard-sigmoid", Function::hard_sigmoid},
                                                       {"hard-swish", Function::hard_swish},
                                                       {"scale", Function::scale, 1.0f}}};

class ElementwiseOperation final : public PlainOperation {
 public:
  explicit ElementwiseOperation(const Call& call)
      : known_(*std::ranges::find(kFunctionNames, call.get<std::string>("function"), &FunctionName::name)) {
    const auto parameter = call.find<double>("parameter");
    if (parameter && !known_.parameter) {
      throw std::invalid_argument(fmt::format("has a parameter, which {} does not take", known_.name));
    }
    if (known_.function == Function::leaky_relu && parameter && *parameter <= 0) {
      throw std::invalid_argument(fmt::format("has a slope of {} below 0: must be positive, or use relu", *parameter));
    }
    f_ = {.function = known_.function,
          .parameter = parameter ? static_cast<float>(*parameter) : known_.parameter.value_or(1)};
  }

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override { return inputs[0]; }

  OperationNeeds needs() const override {
    const SlopeReads reads = slope_reads(f_.function);
    return {.reads_inputs = reads == SlopeReads::input ? 1u : 0u,
            .reads_output = reads == SlopeReads::output,
            .in_place = 1,
            .gradient_in_place = 1,
            .narrow_inputs = 1,
            .narrow_output = true,
            .narrow_alike = true};
  }

  bool takes_positions() const override { return true; }

  std::string describe(const NodeView& /*node*/) const override {
    return known_.parameter ? fmt::format("{}, {:g}", known_.name, f_.parameter) : std::string(known_.name);
  }

  void forward(const NodePass& node) const override {
    node.pass.backend.elementwise_forward(f_, node.in(), node.out());
  }

  void backward(const NodePass& node) const override {
    const SlopeReads reads = slope_reads(f_.function);
    const Tensor read = reads == SlopeReads::input ? node.in() : reads == SlopeReads::output ? node.out() : Tensor{};
    node.pass.backend.elementwise_backward(f_, read, node.d_out(), node.d_in());
  }

 private:
  FunctionName known_;
  Elementwise f_;
};

std::vector<std::string> function_names() {
  std::vector<std::string> names;
  for (const FunctionName& known : kFunctionNames) names.emplace_back(known.name);
  return names;
}

}  // namespace

extern const OperationKind elementwise_operation;
const OperationKind elementwise_operation{
    .name = "elementwise",
    .summary = "a function of each element",
    .arguments = {{.name = "function", .value = "", .value_name = "NAME", .help = "", .words = function_names()},
                  {.name = "parameter",
                   .value = 0.0,
                   .value_name = "X",
                   .help = "slope of leaky-relu below 0, limit of elu, factor of scale",
                   .automatic = true}},
    .rows = ReadsRows::either,
    .make = [](const Call& call) -> std::unique_ptr<Operation> {
      return std::make_unique<ElementwiseOperation>(call);
    }};

}  // namespace lockstep::model
