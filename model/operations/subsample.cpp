/// \file
/// "subsample": takes every stride-th pixel and adds zero channels, half of them before and half after the input's. It
/// is the parameter-free shortcut of narrow residual networks (He et al. 2015, option A).
#include <stdexcept>

#include <fmt/format.h>

#include "model/operations/plain_operation.hpp"

namespace lockstep::model {

namespace {

class SubsampleOperation final : public PlainOperation {
 public:
  explicit SubsampleOperation(const Call& call)
      : channels_(call.get<std::int64_t>("channels")), stride_(call.get<std::int64_t>("stride")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    in_ = image_of(inputs[0].shape, "a subsampling");
    if (channels_ < in_.channels || (channels_ - in_.channels) % 2 != 0) {
      throw std::invalid_argument(
          fmt::format("makes {} channels of {}: it adds as many before the old "
                      "ones as behind them",
                      channels_, in_.channels));
    }
    out_ = {.height = (in_.height + stride_ - 1) / stride_,
            .width = (in_.width + stride_ - 1) / stride_,
            .channels = channels_};
    return {.shape = Shape(out_)};
  }

  OperationNeeds needs() const override {
    return {.adds = 1, .narrow_inputs = 1, .narrow_output = true, .narrow_alike = true};
  }

  void forward(const NodePass& node) const override {
    node.pass.images().subsample_forward(in_, out_, stride_, node.by_sample(node.in(), in_.elements()),
                                         node.by_sample(node.out(), out_.elements()));
  }

  void backward(const NodePass& node) const override {
    Tensor sum = node.sum_of();
    if (!sum.present()) {
      sum = node.d_in();
      node.pass.backend.fill_zero(sum);
    }
    node.pass.images().subsample_backward(in_, out_, stride_, node.by_sample(node.d_out(), out_.elements()),
                                          node.by_sample(sum, in_.elements()));
  }

 private:
  std::int64_t channels_, stride_;
  ImageShape in_, out_;
};

}  // namespace

extern const OperationKind subsample_operation;
const OperationKind subsample_operation{
    .name = "subsample",
    .summary = "every stride-th pixel, new channels zero",
    .arguments = {{.name = "channels", .value = 0, .value_name = "N", .help = "of the output", .at_least = 1},
                  {.name = "stride", .value = 0, .value_name = "N", .help = "in both directions", .at_least = 1}},
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<SubsampleOperation>(call); }};

}  // namespace lockstep::model
