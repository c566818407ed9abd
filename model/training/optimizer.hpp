/// \file
/// Computes new parameters from gradients that are already summed over the ranks: L2, norm, clipping, the rule, the
/// average. If ranks share the update (ParameterStateOptions::owned), each rank updates the parts that it owns, and the
/// caller gathers the parameters afterwards. Nothing here communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "model/backend.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/scalars.hpp"
#include "model/state/step_status_buffer.hpp"
#include "model/update_rule.hpp"

namespace lockstep::model {

/// Reports that part `index` of ParameterStateOptions::owned is final.
using PartUpdated = std::function<void(std::size_t index)>;

/// One step: prepare(), finish_gradients(), the all-reduce of the status, update(). All but prepare() may be recorded
/// (Backend::repeat). The host never waits for a result: an update that must not happen (a rank failed, a number is not
/// finite) changes nothing.
class Optimizer {
 public:
  /// backend, parameters and status must outlive the optimiser. Throws std::invalid_argument without gradients, and for
  /// shared updates with lars or lamb, which need whole parameters.
  Optimizer(Backend& backend, ParameterState& parameters, StepStatusBuffer& status, const OptimizerOptions& options);

  /// True if ranks share the update.
  bool is_partitioned() const noexcept { return !parameters_.owned().whole(); }
  /// Enqueues the write of the rule of update `number` (0-based).
  void prepare(double learning_rate, std::int64_t number) { prepare(update_rule(options_, learning_rate, number)); }
  void prepare(const UpdateRule& rule);
  /// Adds the L2 gradient (if any), and writes the sum of squares of the weights' gradients to the status. Both for the
  /// owned parts.
  void finish_gradients();
  /// Like finish_gradients(), without the L2 gradient: for gradients that are one term of a sum.
  void sum_squares();
  /// Updates the owned parts, unless the status forbids it or the gradients are not finite. If the update is shared,
  /// calls `updated` once for each owned part, in their order; it may be empty.
  void update(const PartUpdated& updated = {});
  /// Returns l2/2 |w|^2 over the trained, decayed parameters: the term of the loss that depends on no sample.
  /// Synchronises.
  double l2_loss();

 private:
  Backend& backend_;
  ParameterState& parameters_;
  StepStatusBuffer& status_;
  OptimizerOptions options_;
  Arena rule_, norms_;
  Scalars l2_squares_;
};

}  // namespace lockstep::model
