/// \file
/// "max-pool": the greatest value in each window of each channel. Saves its position, one byte per output.
#include <optional>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class MaxPoolOperation final : public Operation {
 public:
  explicit MaxPoolOperation(const Call& call)
      : extent_(call.get<std::int64_t>("window")),
        stride_(call.find<std::int64_t>("stride").value_or(extent_)),
        padding_(call.find<std::int64_t>("padding")) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const ImageShape in = image_of(inputs[0].shape, "a pool");
    const Sliding window = padding_ ? even_padding(extent_, stride_, *padding_) : same_padding(in, extent_, stride_);
    shape_ = {.in = in, .out = slide(in, window, in.channels), .window = window};
    declarations.saved({.name = "", .columns = shape_.out.elements(), .holds = Holds::choices});
    return {.shape = Shape(shape_.out)};
  }

  OperationNeeds needs() const override { return {}; }

  LayerPlan plan(const NodeView& node) const override {
    return {.name = node.name,
            .description = fmt::format("{} -> {}, maximum of {}x{}/{}", to_string(node.inputs[0].shape),
                                       to_string(node.output.shape), extent_, extent_, stride_),
            .activation_elements = shape_.out.elements()};
  }

  void forward(const NodePass& node) const override {
    node.pass.images().max_pool_forward(shape_, node.by_sample(node.in(), shape_.in.elements()),
                                        node.by_sample(node.out(), shape_.out.elements()), node.saved(0));
  }

  void backward(const NodePass& node) const override {
    node.pass.images().max_pool_backward(shape_, node.saved(0), node.by_sample(node.d_out(), shape_.out.elements()),
                                         node.by_sample(node.d_in(), shape_.in.elements()));
  }

 private:
  std::int64_t extent_, stride_;
  std::optional<std::int64_t> padding_;
  Pool shape_{};
};

}  // namespace

extern const OperationKind max_pool_operation;
const OperationKind max_pool_operation{
    .name = "max-pool",
    .summary = "the greatest value in each window of each channel",
    .arguments =
        {{.name = "window", .value = 0, .value_name = "N", .help = "height and width", .at_least = 1, .below = 17},
         {.name = "stride",
          .value = 0,
          .value_name = "N",
          .help = "in both directions; the window's if it is not given",
          .automatic = true,
          .at_least = 1},
         {.name = "padding",
          .value = 0,
          .value_name = "N",
          .help = "on all sides; unless given as much as makes the "
                  "output 1 / stride as large",
          .automatic = true,
          .at_least = 0}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<MaxPoolOperation>(call); }};

}  // namespace lockstep::model
