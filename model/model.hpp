/// \file
/// A network on a backend, with its parameters: forward, backward, evaluation, prediction. The constructor allocates
/// all memory.
///
/// A training pass is: stage() a batch, forward(), backward(), release_batch(). All of it is enqueued; the host waits
/// for no result.
#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>

#include "model/backend.hpp"
#include "model/batch.hpp"
#include "model/loss.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"
#include "model/state/scalars.hpp"

namespace lockstep::model {

/// Sums of an evaluation. With several losses, `losses` has the unweighted sum of each.
struct EvaluationSums : LossSums {
  std::array<double, kMaxLosses> losses = {};
};

class Model {
 public:
  /// backend, network and parameters must outlive the model. It can train if the parameters have gradients.
  Model(Backend& backend, const Network& network, ParameterState& parameters, const ModelOptions& options);

  const Network& network() const noexcept { return network_; }
  const ModelOptions& options() const noexcept { return options_; }
  RecurrentState& recurrent_state() noexcept { return recurrent_state_; }
  /// Memory for batches, from which copies to a device are fastest.
  std::pmr::memory_resource* host_memory() const noexcept { return backend_.host_memory(); }

  /// Sets the batch of the next forward(). Its memory must stay valid until wait_staged() on a device, and until the
  /// step is over on a host. A device copies it concurrently with computation, so the next batch may be staged as soon
  /// as the previous one has been released.
  void stage(const Batch& batch);
  /// Waits until no device reads the host memory passed to stage() any more.
  void wait_staged() { stage_.wait(); }
  /// Slot of the staged batch. Recorded work depends on it.
  int slot() const noexcept { return stage_.current_slot(); }

  /// State that backward() needs from its forward pass.
  struct Forward {
    Pass pass;
    Accumulate accumulate;
  };
  /// Runs forward and loss on the staged batch. backward() will give the gradients of the loss times `scale` (1 /
  /// global batch; it includes the mean over a sample's positions). No other place applies this factor. The sums of
  /// loss and metric are written (Accumulate::no) or added, and so will the gradients be. `sums`: tensor for these
  /// sums; absent: loss_sums().
  Forward forward(double scale, Accumulate accumulate, const Tensor& sums = {});
  /// Calls `ready` (which may be empty) as gradients become final. A batch of 0 samples zeroes the gradients
  /// (Accumulate::no) and calls `ready` like any other batch.
  void backward(const Forward& forward, const GradientReady& ready);
  /// Marks the work enqueued so far as the last that reads the staged batch, except locate_not_finite(). Call it after
  /// every backward(), outside recorded work.
  void release_batch() { stage_.release_current(); }
  /// LossSums of all batches since the last forward() with Accumulate::no, in the backend's memory. With several
  /// losses, the unweighted sum of each follows.
  Tensor loss_sums() const noexcept { return training_sums_.tensor(); }
  /// Number of elements of loss_sums().
  std::size_t loss_sum_count() const noexcept { return static_cast<std::size_t>(kLossSums) + options_.losses.size(); }
  /// Returns sums over the rows (samples, or positions of samples) of the batch. The batch's weights count only for
  /// masks. `outputs` receives the network's outputs for the rows, in the layout of predict(); empty: not stored.
  /// Synchronises.
  EvaluationSums evaluate(const Batch& batch, Weights weights = Weights::current, std::span<float> outputs = {});
  /// For generating text: writes to `out` the network's output for the last of `positions`. The batch has one sample;
  /// its y is not read. If continues(), computes only these positions: earlier calls must have computed the earlier
  /// positions of the same tokens with the same weights, and the model must have done no other work since. Otherwise
  /// computes all positions. Synchronises.
  void predict(const Batch& batch, Weights weights, Pass::Positions positions, std::span<float> out);
  /// True if predict() computes only the new positions.
  bool continues() const noexcept { return network_.reuses_positions() && backend_.is_host(); }
  /// Writes the outputs for all rows of the batch to `out`, [rows, outputs]; the batch's y is not read. Synchronises.
  void predict(const Batch& batch, Weights weights, std::span<float> out);

  /// Repeats forward and backward on the batch released last, and returns the place where the first non-finite number
  /// appears, in the order of computation: "input", "parameter dense_1/weight", "layer dense_2 (forward)", "loss",
  /// "gradient of dense_1/weight", or "" if all is finite here. Overwrites the gradients.
  std::string locate_not_finite();

 private:
  Pass pass(const Batch& batch, Weights weights, Purpose purpose);
  LossOptions loss_options(double scale, const Batch& batch) const;
  Tensor weights_of_rows(const Batch& batch) const;
  template <class Use>
  void evaluate_output(const Batch& batch, Weights weights, Pass::Positions positions, const Use& use);
  void download_rows(const Tensor& output, std::span<float> out);
  void require_training(const char* operation) const;

  Backend& backend_;
  const Network& network_;
  ParameterState& parameters_;
  ModelOptions options_;
  ActivationLayout training_layout_, evaluation_layout_;  ///< two layouts of the same memory
  Arena activations_;
  RecurrentState recurrent_state_;
  BatchStage stage_;
  Loss loss_;
  Scalars training_sums_, evaluation_sums_;
};

}  // namespace lockstep::model
