/// \file
/// The order of work of a graph and its memory, decided before any is taken.
///
/// With n nodes, node i runs forward at tick i, the loss at tick n, and node i backward at tick 2n - i. So each tensor
/// is needed over an interval of ticks:
///
///   output of node i            from i to its last reader forward, and to the
///   latest backward that reads it activation that i saves     from i to 2n - i
///   gradient of a value         from its first contribution to the backward of
///   the value's node
///
/// A value is read by several nodes where the network branches, and each contributes to its gradient: in the order of
/// backward, and within a node in the order of its inputs. The first contribution is written, each further one is added
/// (Backend::add) behind the call that makes it. A contribution that is the gradient of the node's output (of a sum, a
/// view) costs nothing, unless one of the two changes while the other is still needed: then it is a copy.
///
/// In evaluation there are the forward ticks alone, and operations of training are left out.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "model/graph/graph.hpp"

namespace lockstep::model {

/// Places of a node's tensors: indices in the program's table of activations, or one of these.
inline constexpr std::size_t kAbsent = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kNetworkInput = kAbsent - 1;
struct NodePlaces {
  std::vector<std::size_t> inputs;
  std::size_t output = kAbsent;
  std::vector<std::size_t> saved, scratch;
  std::size_t d_output = kAbsent;
  std::vector<std::size_t> d_inputs, sums;
  std::vector<std::size_t> addends;  ///< operands of the sum that is input 0, if this node makes it
  /// The other operand of a sum in the memory of this node's output: on devices that prefer it (Backend::fuses_sums)
  /// this node makes the sum, and not the one that has the addends.
  std::size_t added = kAbsent;
  bool product_makes_sum = false;    ///< the node of `addends`: one of them is the output of a node with `added`
  std::vector<const Shape*> shapes;  ///< shapes of the inputs and the output, for those that are the network's input
  std::uint64_t written = 0;         ///< bit k: nodes behind it have written the gradient of parameter k
  /// Before this element the node's own gradients are the last to become final.
  std::size_t others_begin = kAbsent;
};

class Program {
 public:
  /// graph and parameters must outlive the program, which holds until parameters are frozen.
  Program(const Graph& graph, const ParameterTable& parameters, Purpose purpose);

  const ActivationTable& activations() const noexcept { return activations_; }
  /// True if the node is a sum that the one behind it makes (OperationNeeds::makes_sum).
  bool is_made_behind(std::size_t node) const noexcept {
    return node + 1 < places_.size() && !places_[node + 1].addends.empty();
  }
  std::int32_t loss_tick() const noexcept { return static_cast<std::int32_t>(graph_.nodes().size()); }
  /// Sums of gradients at branches that are copies: 0 for a network that can do without.
  std::size_t copied_gradients() const noexcept { return copied_gradients_; }
  /// The targets in the order of the output's rows.
  Tensor targets(const Pass& pass, const Tensor& y) const;

  /// The output; in training the loss may turn it into its gradient.
  Tensor forward(const Pass& pass) const;
  /// Tells ranges of gradients as they become final.
  void backward(const Pass& pass, Accumulate accumulate, const GradientReady& ready) const;

 private:
  class Planning;
  /// A contribution that a call leaves elsewhere.
  struct Contribution {
    std::size_t from, to;
    bool is_added;  ///< else copied
  };
  struct Step {
    std::size_t node;
    std::vector<Contribution> contributions = {};
    std::size_t final_end = 0;  ///< gradients before it are final behind this step; 0: no more than before it
  };
  void tell(const Pass& pass, std::size_t tick, std::size_t node, bool forward) const;

  const Graph& graph_;
  const ParameterTable& parameters_;
  ActivationTable activations_;
  std::vector<NodePlaces> places_;    ///< by node
  std::vector<std::size_t> forward_;  ///< nodes with work to do
  std::vector<Step> backward_;
  std::size_t copied_output_ = kAbsent;  ///< returned by forward if backward needs the output itself
  std::size_t copied_gradients_ = 0;
  std::size_t targets_ = kAbsent;  ///< time-major targets
};

}  // namespace lockstep::model
