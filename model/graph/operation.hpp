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
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph/description.hpp"
#include "model/graph/shape.hpp"
#include "model/layer_plan.hpp"
#include "model/network_options.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

struct Node;
struct NodePlaces;

/// A value between operations.
struct ValueType {
  Shape shape;
  Holds holds = Holds::activations;  ///< or tokens
  RowOrder order = RowOrder::sample_major;
  std::int64_t padded_columns = 0;  ///< > 0: only the loss reads it, and rows have so many columns in bfloat16
  std::int64_t vocabulary = 0;      ///< > 0: tokens, which are below it
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
  bool adds_in_place = false;       ///< `adds` needs no scratch memory: d_in() is then absent
  std::uint32_t always_writes = 0;  ///< d_in() of these inputs is present even if nobody needs it
  std::uint32_t keeps_inputs = 0;   ///< evaluation keeps these inputs from pass to pass: NodePass::in_of_all_positions
  bool is_view = false;             ///< the output is the memory of input 0, and forward does nothing
  bool training_only = false;       ///< in evaluation the output is input 0
  bool is_sum = false;              ///< the output is the sum of two inputs
  /// Forward can also make input 0, if that is a sum that the call before it leaves to it: NodePass::addend().
  bool makes_sum = false;
  bool adds_in_product =
      false;  ///< forward can add another value in the product that makes its output: NodePass::added()
  /// These inputs may be Holds::narrow, which the CPU stores in bf16; the same of the output. Their gradients are then,
  /// too. What of them is stored so depends on the other operations that make and read them.
  std::uint32_t narrow_inputs = 0;
  bool narrow_output = false;
  bool narrow_alike = false;  ///< narrow_inputs and the output are all stored so, or none is
};

/// Takes the declarations of one node.
class Declarations {
 public:
  /// earlier: the nodes before this one.
  Declarations(Node& node, std::span<Node> earlier, std::uint32_t& next_stream, bool only_the_loss_reads)
      : node_(node), earlier_(earlier), next_stream_(next_stream), only_the_loss_reads_(only_the_loss_reads) {}

  /// Declares the parameter NODE/PART, where PART is the name in the specification. Its number for NodePass::weight,
  /// and for ParameterSpec::frozen_with of further parameters of the node.
  std::size_t parameter(ParameterSpec spec);
  /// The same for a part of the node: CALL/PART.
  std::size_t parameter(const std::string& call, ParameterSpec spec);
  /// A parameter of an earlier node: CALL/PART. It gets at least this much padding. Its number for NodePass::weight.
  struct Shared {
    std::size_t number;
    std::vector<std::int64_t> shape;
  };
  Shared share(const std::string& call, const std::string& part);
  void pad_shared(std::size_t number, std::int64_t padding);
  /// Declares an activation that forward writes and backward reads. Its number for NodePass::saved.
  std::size_t saved(ActivationSpec spec);
  /// Declares memory for backward alone. Its number for NodePass::scratch.
  std::size_t scratch(ActivationSpec spec);
  /// Declares state that passes from batch to batch (Network::recurrent_state). Its number for NodePass::state.
  std::size_t state(ActivationSpec spec);
  /// The output's memory has so many rows per sample before the first one: NodePass::out_with_margin.
  void margin(std::int64_t rows) noexcept;
  /// A stream of random draws of its own.
  std::uint32_t dropout_stream() noexcept { return next_stream_++; }
  /// The node's passes sum over ranks (Pass::sum_over_ranks).
  void synchronizes() noexcept;
  /// Nothing but the loss reads the output: it may be padded.
  bool only_the_loss_reads() const noexcept { return only_the_loss_reads_; }

 private:
  Node& node_;
  std::span<Node> earlier_;
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
  NodePass(const Pass& whole, const Node& node, const NodePlaces& places) : pass(whole), node_(node), places_(places) {}
  /// In backward. tell: takes the ends of final gradients.
  NodePass(const Pass& whole, const Node& node, const NodePlaces& places, Accumulate accumulate,
           const GradientReady& tell)
      : pass(whole), node_(node), places_(places), accumulate_(accumulate), tell_(&tell) {}

  const Pass& pass;

  Tensor in(std::size_t i = 0) const;
  Tensor out() const;
  /// Rows of all positions, even if the pass has only some (OperationNeeds::keeps_inputs).
  Tensor in_of_all_positions(std::size_t i = 0) const;
  Tensor out_of_all_positions() const;
  /// Input 0 is the sum of these two, and forward makes it (OperationNeeds::makes_sum); else absent.
  Tensor addend(std::size_t i) const;
  /// To be added to the output (OperationNeeds::adds_in_product); else absent.
  Tensor added() const;
  /// The output with the rows before it (Declarations::margin).
  Tensor out_with_margin() const;
  /// A tensor in rows of whole samples of `elements`.
  Tensor by_sample(const Tensor& tensor, std::int64_t elements) const { return tensor.reshaped(pass.batch, elements); }
  Tensor saved(std::size_t k) const;
  Tensor saved_of_all_positions(std::size_t k) const;
  Tensor state(std::size_t k) const;
  /// The parameter as Pass::weight has it; its gradient is absent if it is frozen.
  Tensor weight(std::size_t k) const;
  Tensor gradient(std::size_t k) const;
  /// The same in a view of more rows: the surplus lies in the parameter's padding.
  Tensor weight(std::size_t k, std::int64_t rows) const;
  Tensor gradient(std::size_t k, std::int64_t rows) const;
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
  /// The same for a parameter that other nodes may share: those behind this one have gone backward.
  Accumulate accumulate(std::size_t k) const noexcept;
  /// The gradients of parameter k and of the node's later ones are final, before the node's whole backward is.
  void is_final(std::size_t k) const;

 private:
  const Node& node_;
  const NodePlaces& places_;
  Accumulate accumulate_ = Accumulate::no;
  const GradientReady* tell_ = nullptr;
};

/// Takes a result of a node and the name of the part that it belongs to.
using TakeResult = std::function<void(std::string_view name, const Tensor& result)>;

class Operation {
 public:
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// The output's type. Throws std::invalid_argument for inputs that it cannot read: shapes and remedy, as the end of a
  /// sentence that begins with the name of the node.
  virtual ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) = 0;
  virtual OperationNeeds needs() const = 0;
  /// True if forward can compute some of a sample's positions (Pass::positions): rows are positions, and none depends
  /// on later ones.
  virtual bool takes_positions() const { return false; }
  /// True if each place of the output depends on the same and on earlier places of the inputs alone, as all operations
  /// of a network that predicts the next token must. Asked after declare().
  virtual bool is_causal() const { return takes_positions(); }
  /// Name, description and costs; nothing is asked of views.
  virtual LayerPlan plan(const NodeView& node) const = 0;
  /// The lines of a node with several, or with none.
  virtual std::vector<LayerPlan> lines(const NodeView& node) const { return {plan(node)}; }
  virtual void forward(const NodePass& pass) const = 0;
  /// Called if a gradient of a parameter or of an input is needed, with the output's gradient.
  virtual void backward(const NodePass& pass) const = 0;
  /// The results of forward by name, for messages: the output, or those of its parts.
  virtual void results(const std::string& name, const NodePass& pass, const TakeResult& take) const {
    take(name, pass.out());
  }

 protected:
  Operation() = default;
};

/// The order of rows that an operation reads. `steps`: recurrent, time-major from tokens and sample-major from numbers.
enum class ReadsRows { sample_major, time_major, either, steps };
/// True if the operation reads tokens in time-major order.
constexpr bool reads_time_major(ReadsRows rows) noexcept {
  return rows == ReadsRows::time_major || rows == ReadsRows::steps;
}

struct OperationKind {
  std::string_view name;     ///< as descriptions have it: "max-pool"
  std::string_view summary;  ///< one line
  /// An argument whose default value is not allowed must be given.
  std::vector<NetworkOption> arguments = {};
  std::size_t least_inputs = 1, most_inputs = 1;  ///< at most 32
  Holds reads = Holds::activations;               ///< or tokens
  std::uint32_t token_inputs = 0;                 ///< bit i: input i holds tokens whatever `reads` says
  ReadsRows rows = ReadsRows::sample_major;
  bool is_fused = false;  ///< made by rewrites alone: Call::parts
  /// The call, and so its parts, has an allowed value for each argument that is not automatic.
  std::unique_ptr<Operation> (*make)(const Call& call);
};

}  // namespace lockstep::model
