/// \file
/// The steps between the gradients, summed over the ranks, and new parameters: L2, norm, clipping, the rule, the
/// average. Ranks that share the update (ParameterStateOptions::owned) own parts of the parameters; each rank updates
/// its own ones, and the ranks gather the parameters afterwards.
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

/// One step: prepare(), finish_gradients(), the all-reduce of the status, update(). All but prepare() may be recorded.
/// The host never waits for a number: an update that must not happen (a rank failed, a number is not finite) does
/// nothing.
class Optimizer {
 public:
  /// All three must outlive the optimiser. Throws std::invalid_argument if a rule that looks at whole parameters (lars,
  /// lamb) is to update parts, and if there are no gradients.
  Optimizer(Backend& backend, ParameterState& parameters, StepStatusBuffer& status, const OptimizerOptions& options);

  /// True if ranks share the update.
  bool is_partitioned() const noexcept { return !parameters_.owned().whole(); }
  /// Writes the numbers of update `number` (0-based), in the order of the operations.
  void prepare(double learning_rate, std::int64_t number) { prepare(update_rule(options_, learning_rate, number)); }
  void prepare(const UpdateRule& rule);
  /// Adds the L2 gradient (if any), and adds the sum of squares to the status; both over the owned parts.
  void finish_gradients();
  /// The same without the L2 gradient: for gradients that are one term of a sum.
  void sum_squares();
  /// Updates the owned parts, unless the status forbids it or the gradients are not finite. If the update is shared,
  /// `updated` is called once for each owned part, in their order; it may be empty.
  void update(const PartUpdated& updated = {});
  /// l2/2 |w|^2 over the decayed parameters that are trained: the loss term that belongs to no sample. Synchronises.
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
