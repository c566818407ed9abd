/// \file
/// An operation of a network: the code behind a call of a description. It owns no memory. It declares its parameters
/// and activations once, says what its backward pass needs, and works on the tensors that come with each pass.
///
/// One kind of operation is one file in operations/: NAME.cpp defines `const OperationKind NAME_operation` (with _ for
/// each - of its name) and nothing else that is visible. CMake makes the list of all of them from the names of the
/// files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph/description.hpp"
#include "model/graph/shape.hpp"
#include "model/network.hpp"

namespace lockstep::model {

struct Node;
struct NodePlaces;

/// A value between operations.
struct ValueType {
  Shape shape;
  /// Only the loss reads it: rows have padded_outputs() columns in bfloat16.
  bool padded = false;
};

/// Use of operands by an operation's passes, besides reading inputs and writing the output. Bit i: input i.
struct OperationNeeds {
  std::uint32_t reads_inputs = 0;    ///< backward reads these inputs
  bool reads_output = false;         ///< backward reads the output
  bool overwrites_gradient = false;  ///< backward uses up the output's gradient
  /// The gradient of these inputs is the gradient of the output, and backward writes none.
  std::uint32_t passes_on = 0;
  std::uint32_t in_place = 0;           ///< the output may be the memory of one of these inputs
  std::uint32_t gradient_in_place = 0;  ///< the gradient of one of these inputs may be the memory of the output's
  /// Backward adds the gradient of one of these inputs to NodePass::sum_of() itself if it is a further contribution,
  /// with d_in() as scratch memory.
  std::uint32_t adds = 0;
  std::uint32_t always_writes = 0;  ///< d_in() of these inputs is present even if nobody needs it
  bool is_view = false;             ///< the output is the memory of input 0, and forward does nothing
  bool training_only = false;       ///< in evaluation the output is input 0
};

/// Takes the declarations of one node.
class Declarations {
 public:
  Declarations(Node& node, std::uint32_t& next_stream, bool only_the_loss_reads)
      : node_(node), next_stream_(next_stream), only_the_loss_reads_(only_the_loss_reads) {}

  /// Declares the parameter NODE/PART, where PART is the name in the specification. Its number for NodePass::weight,
  /// and for ParameterSpec::frozen_with of further parameters of the node.
  std::size_t parameter(ParameterSpec spec);
  /// Declares an activation that forward writes and backward reads. Its number for NodePass::saved.
  std::size_t saved(ActivationSpec spec);
  /// Declares memory for backward alone. Its number for NodePass::scratch.
  std::size_t scratch(ActivationSpec spec);
  /// A stream of random draws of its own.
  std::uint32_t dropout_stream() noexcept { return next_stream_++; }
  /// The node's passes sum over ranks (Pass::sum_over_ranks).
  void synchronizes() noexcept;
  /// Nothing but the loss reads the output: it may be padded.
  bool only_the_loss_reads() const noexcept { return only_the_loss_reads_; }

 private:
  Node& node_;
  std::uint32_t& next_stream_;
  bool only_the_loss_reads_;
};

/// A node for its line of the plan.
struct NodeView {
  const std::string& name;
  std::vector<ValueType> inputs;
  const ValueType& output;
  const ParameterTable& table;
  std::span<const std::size_t> parameters;  ///< indices in the table
  bool goes_on = false;                     ///< backward makes the gradient of an input

  /// FLOPs of the backward pass of a product of `product` FLOPs with parameter `weight` of the node: as many for its
  /// gradient and for the input's, if these are made.
  double backward_flops(double product, std::size_t weight) const {
    return (table[parameters[weight]].frozen ? 0 : product) + (goes_on ? product : 0);
  }
};

/// A node in a pass: its tensors. Activations have rows of the last extent: [batch * places, last].
class NodePass {
 public:
  NodePass(const Pass& whole, const Node& node, const NodePlaces& places, Accumulate accumulate = Accumulate::no)
      : pass(whole), node_(node), places_(places), accumulate_(accumulate) {}

  const Pass& pass;

  Tensor in(std::size_t i = 0) const;
  Tensor out() const;
  /// A tensor in rows of whole samples of `elements`.
  Tensor by_sample(const Tensor& tensor, std::int64_t elements) const { return tensor.reshaped(pass.batch, elements); }
  Tensor saved(std::size_t k) const;
  /// The parameter as Pass::weight has it; its gradient is absent if it is frozen.
  Tensor weight(std::size_t k) const;
  Tensor gradient(std::size_t k) const;
  Tensor vector(std::size_t k, std::int64_t columns) const;
  Tensor vector_gradient(std::size_t k, std::int64_t columns) const;
  bool is_frozen(std::size_t k) const;

  // Backward alone.

  Tensor d_out() const;
  Tensor scratch(std::size_t k) const;
  /// To be written; absent if nobody needs it.
  Tensor d_in(std::size_t i = 0) const;
  /// The sum that the gradient of this input is to be added to; absent if it is the first contribution
  /// (OperationNeeds::adds).
  Tensor sum_of(std::size_t i = 0) const;
  /// Parameter gradients are written, or added to.
  Accumulate accumulate() const noexcept { return accumulate_; }

 private:
  const Node& node_;
  const NodePlaces& places_;
  Accumulate accumulate_;
};

class Operation {
 public:
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// The output's type. Throws std::invalid_argument for inputs that it cannot read: shapes and remedy, as the end of a
  /// sentence that begins with the name of the node.
  virtual ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) = 0;
  virtual OperationNeeds needs() const = 0;
  /// Name, description and costs; nothing is asked of views.
  virtual LayerPlan plan(const NodeView& node) const = 0;
  virtual void forward(const NodePass& pass) const = 0;
  /// Called if a gradient of a parameter or of an input is needed, with the output's gradient.
  virtual void backward(const NodePass& pass) const = 0;

 protected:
  Operation() = default;
};

struct OperationKind {
  std::string_view name;     ///< as descriptions have it: "max-pool"
  std::string_view summary;  ///< one line
  /// An argument whose default value is not allowed must be given.
  std::vector<NetworkOption> arguments = {};
  std::size_t least_inputs = 1, most_inputs = 1;  ///< at most 32
  /// The call has an allowed value for each argument that is not automatic.
  std::unique_ptr<Operation> (*make)(const Call& call);
};

}  // namespace lockstep::model
