/// \file
/// "matmul": products of the matrices of two values, [..., rows, inner] times [..., inner, columns].
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "model/graph/operation.hpp"

namespace lockstep::model {

namespace {

class MatmulOperation final : public Operation {
 public:
  explicit MatmulOperation(const Call& call) : transposed_(call.get<bool>("transpose")) {}

  ValueType declare(Declarations& /*declarations*/, std::span<const ValueType> inputs) override {
    const Shape &a = inputs[0].shape, &b = inputs[1].shape;
    const std::size_t count = a.count();
    bool fits = count >= 2 && b.count() == count;
    for (std::size_t i = 0; fits && i + 2 < count; ++i) fits = a.extents()[i] == b.extents()[i];
    if (fits) {
      const auto matrix = b.extents().last<2>();
      product_ = {.rows = a.extents()[count - 2],
                  .inner = a.last(),
                  .columns = matrix[transposed_ ? 0 : 1],
                  .b_transposed = transposed_};
      fits = matrix[transposed_ ? 1 : 0] == product_.inner;
    }
    if (!fits) {
      throw std::invalid_argument(fmt::format(
          "multiplies {} by {}{}: they must be [.., rows, inner] and [.., {}], with the same extents before",
          to_string(a), to_string(b), transposed_ ? ", transposed" : "",
          transposed_ ? "columns, inner" : "inner, columns"));
    }
    is_causal_ = count > 2;
    pairs_ = a.elements() / (product_.rows * product_.inner);
    return {.shape = a.with_last(product_.columns)};
  }

  OperationNeeds needs() const override { return {.reads_inputs = 3}; }
  bool is_causal() const override { return is_causal_; }

  LayerPlan plan(const NodeView& node) const override {
    const double product =
        2.0 * static_cast<double>(node.inputs[0].shape.elements()) * static_cast<double>(product_.columns);
    return {.name = node.name,
            .description = fmt::format("{} by {} -> {}", to_string(node.inputs[0].shape),
                                       to_string(node.inputs[1].shape), to_string(node.output.shape)),
            .activation_elements = node.output.shape.elements(),
            .forward_flops = product,
            .backward_flops = 2 * product};
  }

  void forward(const NodePass& node) const override {
    node.pass.sequences().batched_product(of(node, product_), node.in(0), node.in(1), node.out());
  }

  /// d_a = d_y b', d_b = a' d_y; of transposed matrices b: d_a = d_y b, d_b = d_y' a.
  void backward(const NodePass& node) const override {
    SequenceOperations& sequences = node.pass.sequences();
    const auto& [count, rows, inner, columns, unused, transposed] = product_;
    if (const Tensor d_a = node.d_in(0); d_a.present()) {
      sequences.batched_product(
          of(node, {.rows = rows, .inner = columns, .columns = inner, .b_transposed = !transposed_}), node.d_out(),
          node.in(1), d_a);
    }
    if (const Tensor d_b = node.d_in(1); d_b.present()) {
      if (transposed_) {
        sequences.batched_product(of(node, {.rows = columns, .inner = rows, .columns = inner, .a_transposed = true}),
                                  node.d_out(), node.in(0), d_b);
      } else {
        sequences.batched_product(of(node, {.rows = inner, .inner = rows, .columns = columns, .a_transposed = true}),
                                  node.in(0), node.d_out(), d_b);
      }
    }
  }

 private:
  BatchedProduct of(const NodePass& node, BatchedProduct product) const {
    product.count = node.pass.batch * pairs_;
    return product;
  }

  bool transposed_, is_causal_ = false;
  BatchedProduct product_;  ///< without `count`, which depends on the batch
  std::int64_t pairs_ = 0;  ///< per sample
};

}  // namespace

extern const OperationKind matmul_operation;
const OperationKind matmul_operation{
    .name = "matmul",
    .summary = "the products of two values' matrices, those of their last two extents",
    .arguments = {{.name = "transpose",
                   .value = false,
                   .value_name = "",
                   .help = "by the transposed matrices of the second value"}},
    .least_inputs = 2,
    .most_inputs = 2,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<MatmulOperation>(call); }};

}  // namespace lockstep::model
