/// \file
/// The order in which a graph computes, and its memory. Both are decided before any memory is allocated.
///
/// With n nodes, node i runs forward at tick i, the loss at tick n, and node i backward at tick 2n - i. Each tensor is
/// needed over an interval of ticks:
/// - output of node i: from i to the last forward or backward that reads it;
/// - activation that node i saves: from i to 2n - i;
/// - gradient of a value: from its first contribution to the backward of the value's node.
///
/// At a branch, several nodes read a value, and each contributes to its gradient: in the order of backward, and within
/// a node in the order of its inputs. The first contribution is written. Each further one is added (Backend::add) after
/// the call that computes it. A contribution may be the gradient of the node's output itself (of a sum, a view). It
/// then costs nothing, unless one of the two changes while the other is still needed; then it is copied.
///
/// Evaluation has only the forward ticks, and skips operations that only train.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "model/graph/graph.hpp"

namespace lockstep::model {

/// Indices of a node's tensors in the program's table of activations, or one of these two constants.
inline constexpr std::size_t kAbsent = std::numeric_limits<std::size_t>::max();
inline constexpr std::size_t kNetworkInput = kAbsent - 1;
struct NodePlaces {
  std::vector<std::size_t> inputs;
  std::size_t output = kAbsent;
  std::vector<std::size_t> saved, scratch;
  std::size_t d_output = kAbsent;
  std::vector<std::size_t> d_inputs, sums;
  std::vector<std::size_t> addends;  ///< operands of input 0, if that is a sum that this node computes
  /// On devices with Backend::fuses_sums(), this node adds this operand in its product, in place of the node with
  /// `addends`. The sum then has the memory of this node's output.
  std::size_t added = kAbsent;
  bool product_makes_sum = false;    ///< for a node with `addends`: one of them is the output of a node with `added`
  std::vector<const Shape*> shapes;  ///< shapes of the inputs, then of the output
  std::uint64_t written = 0;         ///< bit k: later nodes have already written the gradient of parameter k
  /// During its backward, the node may report gradients as final up to this element: no later step finishes any before
  /// it.
  std::size_t others_begin = kAbsent;
};

class Program {
 public:
  /// graph and parameters must outlive the program. Freezing parameters makes it invalid.
  Program(const Graph& graph, const ParameterTable& parameters, Purpose purpose);

  const ActivationTable& activations() const noexcept { return activations_; }
  /// True if the node is a sum that the next node computes (OperationNeeds::makes_sum).
  bool is_made_behind(std::size_t node) const noexcept {
    return node + 1 < places_.size() && !places_[node + 1].addends.empty();
  }
  std::int32_t loss_tick() const noexcept { return static_cast<std::int32_t>(graph_.nodes().size()); }
  /// Number of gradients that backward copies; 0 for most networks.
  std::size_t copied_gradients() const noexcept { return copied_gradients_; }
  /// Returns the targets in the order of the output's rows.
  Tensor targets(const Pass& pass, const Tensor& y) const;

  /// Runs forward and returns the output. In training the loss may overwrite it with its gradient.
  Tensor forward(const Pass& pass) const;
  /// Runs backward, and calls `ready` as ranges of gradients become final.
  void backward(const Pass& pass, Accumulate accumulate, const GradientReady& ready) const;

 private:
  class Planning;
  /// A contribution to a gradient that is added or copied after the call that computes it.
  struct Contribution {
    std::size_t from, to;
    bool is_added;  ///< else copied
  };
  struct Step {
    std::size_t node;
    std::vector<Contribution> contributions = {};
    std::size_t final_end = 0;  ///< gradients before it are final after this step; 0: no new ones
  };
  void report_call(const Pass& pass, std::size_t tick, std::size_t node, bool forward) const;

  const Graph& graph_;
  const ParameterTable& parameters_;
  ActivationTable activations_;
  std::vector<NodePlaces> places_;    ///< by node
  std::vector<std::size_t> forward_;  ///< nodes that run
  std::vector<Step> backward_;
  std::size_t copied_output_ = kAbsent;  ///< forward returns this copy if backward reads the output itself
  std::size_t copied_gradients_ = 0;
  std::size_t targets_ = kAbsent;  ///< time-major targets
};

}  // namespace lockstep::model
