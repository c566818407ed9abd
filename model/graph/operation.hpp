/// \file
/// An operation of a network: the code of a call of a description. It owns no memory. It declares its parameters and
/// activations once, states what its backward pass needs, and works on the tensors of each pass.
///
/// Each kind of operation is one file, operations/NAME.cpp. It defines `const OperationKind NAME_operation` (with _ for
/// each - of its name) and no other visible name. CMake generates the list of kinds from the file names.
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
  std::int64_t padded_columns = 0;  ///< > 0: only the loss reads it, and in bfloat16 rows have this many columns
  std::int64_t vocabulary = 0;      ///< > 0: tokens in [0, vocabulary)
};

/// Memory that the passes of an operation use, besides reading inputs and writing the output. Bit i of a mask: input i.
struct OperationNeeds {
  std::uint32_t reads_inputs = 0;    ///< backward reads these inputs
  bool reads_output = false;         ///< backward reads the output
  bool overwrites_gradient = false;  ///< backward overwrites the output's gradient
  /// The gradient of these inputs is the gradient of the output; backward does not write it.
  std::uint32_t passes_on = 0;
  std::uint32_t in_place = 0;           ///< the output may share the memory of one of these inputs
  std::uint32_t gradient_in_place = 0;  ///< one of these inputs' gradients may share the memory of d_out()
  /// If the gradient of one of these inputs already has a contribution, backward itself adds to it
  /// (NodePass::sum_of()), with d_in() as scratch memory.
  std::uint32_t adds = 0;
  bool adds_in_place = false;       ///< `adds` needs no scratch memory, and d_in() is absent then
  std::uint32_t always_writes = 0;  ///< d_in() of these inputs is present even if it is not needed
  std::uint32_t keeps_inputs = 0;   ///< evaluation keeps these inputs between passes (NodePass::in_of_all_positions)
  bool is_view = false;             ///< the output is the memory of input 0, and forward does nothing
  bool training_only = false;       ///< in evaluation it is a view of input 0
  bool is_sum = false;              ///< the output is the sum of two inputs
  /// Forward can also compute input 0, if that is the sum of the previous call (NodePass::addend()).
  bool makes_sum = false;
  bool adds_in_product = false;  ///< forward can add another value in its product (NodePass::added())
  /// These inputs may be Holds::narrow, which a CPU stores in bf16. Their gradients are then narrow, too. A value is
  /// narrow only if all operations that write or read it allow that.
  std::uint32_t narrow_inputs = 0;
  bool narrow_output = false;
  bool narrow_alike = false;  ///< narrow_inputs and the output are all narrow, or none is
};

/// Receives the declarations of one node.
class Declarations {
 public:
  /// earlier: the nodes before this one.
  Declarations(Node& node, std::span<Node> earlier, std::uint32_t& next_stream, bool only_the_loss_reads)
      : node_(node), earlier_(earlier), next_stream_(next_stream), only_the_loss_reads_(only_the_loss_reads) {}

  /// Declares the parameter NODE/PART, where PART is the name in `spec`. Returns its number for NodePass::weight and
  /// for ParameterSpec::frozen_with of other parameters of the node.
  std::size_t parameter(ParameterSpec spec);
  /// Declares CALL/PART, a parameter of a fused part of the node.
  std::size_t parameter(const std::string& call, ParameterSpec spec);
  /// The parameter CALL/PART of an earlier node. `number` is for NodePass::weight.
  struct Shared {
    std::size_t number;
    std::vector<std::int64_t> shape;
  };
  Shared share(const std::string& call, const std::string& part);
  /// Gives a shared parameter at least this much padding.
  void pad_shared(std::size_t number, std::int64_t padding);
  /// Declares an activation that forward writes and backward reads. Returns its number for NodePass::saved.
  std::size_t saved(ActivationSpec spec);
  /// Declares memory for backward alone. Returns its number for NodePass::scratch.
  std::size_t scratch(ActivationSpec spec);
  /// Declares state that passes from batch to batch (Network::recurrent_state). Returns its number for NodePass::state.
  std::size_t state(ActivationSpec spec);
  /// Adds `rows` rows per sample before the output in its memory (NodePass::out_with_margin).
  void margin(std::int64_t rows) noexcept;
  /// Returns a new stream number for random draws.
  std::uint32_t dropout_stream() noexcept { return next_stream_++; }
  /// Declares that the node's training passes sum over ranks (Pass::sum_over_ranks).
  void synchronizes() noexcept;
  /// True if only the loss reads the output, which may then be padded.
  bool only_the_loss_reads() const noexcept { return only_the_loss_reads_; }

 private:
  Node& node_;
  std::span<Node> earlier_;
  std::uint32_t& next_stream_;
  bool only_the_loss_reads_;
};

/// Facts of a node for its line of the plan.
struct NodeView {
  const std::string& name;
  std::vector<ValueType> inputs;
  const ValueType& output;
  const ParameterTable& table;
  std::span<const std::size_t> parameters;  ///< indices in the table
  bool goes_on = false;                     ///< backward computes the gradient of an input

  /// Backward FLOPs of a product of `product` FLOPs with parameter `weight` of the node: `product` each for the
  /// gradients of the weight and of the input, if they are computed.
  double backward_flops(double product, std::size_t weight) const {
    return (table[parameters[weight]].frozen ? 0 : product) + (goes_on ? product : 0);
  }
};

/// The tensors of a node in a pass. Activations are [batch * places, last extent].
class NodePass {
 public:
  NodePass(const Pass& whole, const Node& node, const NodePlaces& places) : pass(whole), node_(node), places_(places) {}
  /// For backward. tell: receives the ends of final gradients.
  NodePass(const Pass& whole, const Node& node, const NodePlaces& places, Accumulate accumulate,
           const GradientReady& gradient_ready)
      : pass(whole), node_(node), places_(places), accumulate_(accumulate), gradient_ready_(&gradient_ready) {}

  const Pass& pass;

  Tensor in(std::size_t i = 0) const;
  Tensor out() const;
  /// Rows of all positions, even if the pass computes only some (OperationNeeds::keeps_inputs).
  Tensor in_of_all_positions(std::size_t i = 0) const;
  Tensor out_of_all_positions() const;
  /// The two operands of input 0, if forward must compute that sum (OperationNeeds::makes_sum); else absent.
  Tensor addend(std::size_t i) const;
  /// Value that forward must add to the output (OperationNeeds::adds_in_product); else absent.
  Tensor added() const;
  /// The output with the rows before it (Declarations::margin).
  Tensor out_with_margin() const;
  /// The tensor with one row of `elements` per sample.
  Tensor by_sample(const Tensor& tensor, std::int64_t elements) const { return tensor.reshaped(pass.batch, elements); }
  Tensor saved(std::size_t k) const;
  Tensor saved_of_all_positions(std::size_t k) const;
  Tensor state(std::size_t k) const;
  /// Parameter k as in Pass::weight. The gradient of a frozen parameter is absent.
  Tensor weight(std::size_t k) const;
  Tensor gradient(std::size_t k) const;
  /// The same with `rows` rows. The surplus rows lie in the parameter's padding.
  Tensor weight(std::size_t k, std::int64_t rows) const;
  Tensor gradient(std::size_t k, std::int64_t rows) const;
  Tensor vector(std::size_t k, std::int64_t columns) const;
  Tensor vector_gradient(std::size_t k, std::int64_t columns) const;
  bool is_frozen(std::size_t k) const;

  // For backward only.

  Tensor d_out() const;
  Tensor scratch(std::size_t k) const;
  /// Gradient of an input, which backward writes; absent if it is not needed.
  Tensor d_in(std::size_t i = 0) const;
  /// The sum to which backward must add the gradient of this input; absent for the first contribution
  /// (OperationNeeds::adds).
  Tensor sum_of(std::size_t i = 0) const;
  /// Selects whether parameter gradients are written or added.
  Accumulate accumulate() const noexcept { return accumulate_; }
  /// The same for parameter k, which later nodes may share and have already written.
  Accumulate accumulate(std::size_t k) const noexcept;
  /// Reports, before the end of the node's backward, that the gradients of parameter k and of the node's later
  /// parameters are final.
  void is_final(std::size_t k) const;

 private:
  const Node& node_;
  const NodePlaces& places_;
  Accumulate accumulate_ = Accumulate::no;
  const GradientReady* gradient_ready_ = nullptr;
};

/// Receives a result of a node and the name of the part that computed it.
using TakeResult = std::function<void(std::string_view name, const Tensor& result)>;

class Operation {
 public:
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Returns the output's type. Throws std::invalid_argument for inputs that it cannot read; the text has shapes and
  /// remedy, as the end of a sentence that begins with the name of the node.
  virtual ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) = 0;
  virtual OperationNeeds needs() const = 0;
  /// True if forward can compute a subset of a sample's positions (Pass::positions): rows are positions, and none
  /// depends on later ones.
  virtual bool takes_positions() const { return false; }
  /// True if each position of the output depends only on the same and earlier positions of the inputs. Networks that
  /// predict the next token need this of all operations. Call it after declare().
  virtual bool is_causal() const { return takes_positions(); }
  /// Returns name, description and costs. Not called for views.
  virtual LayerPlan plan(const NodeView& node) const = 0;
  /// Returns the lines of the plan, for nodes that do not have exactly one.
  virtual std::vector<LayerPlan> lines(const NodeView& node) const { return {plan(node)}; }
  virtual void forward(const NodePass& pass) const = 0;
  /// Called if the gradient of a parameter or of an input is needed.
  virtual void backward(const NodePass& pass) const = 0;
  /// Calls `take` for the results of forward, for messages: the output, or the results of the parts.
  virtual void results(const std::string& name, const NodePass& pass, const TakeResult& take) const {
    take(name, pass.out());
  }

 protected:
  Operation() = default;
};

/// Order of rows that an operation reads. `steps`: a recurrent operation, which reads time-major rows in networks of
/// tokens and sample-major rows in networks of numbers.
enum class ReadsRows { sample_major, time_major, either, steps };
/// True if the operation reads tokens in time-major order.
constexpr bool reads_time_major(ReadsRows rows) noexcept {
  return rows == ReadsRows::time_major || rows == ReadsRows::steps;
}

struct OperationKind {
  std::string_view name;     ///< as in descriptions: "max-pool"
  std::string_view summary;  ///< one line
  /// An argument must be given if its default is not an allowed value.
  std::vector<NetworkOption> arguments = {};
  std::size_t least_inputs = 1, most_inputs = 1;  ///< at most 32
  Holds reads = Holds::activations;               ///< or tokens
  std::uint32_t token_inputs = 0;                 ///< bit i: input i holds tokens, whatever `reads` is
  ReadsRows rows = ReadsRows::sample_major;
  bool is_fused = false;  ///< only rewrites make it (Call::parts)
  /// Makes an operation. The call and its parts must have an allowed value for each argument that is not automatic.
  std::unique_ptr<Operation> (*make)(const Call& call);
};

}  // namespace lockstep::model
