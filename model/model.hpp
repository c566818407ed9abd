/// \file
/// A network on a backend, with its parameters: forward, backward, evaluation, prediction. All memory is taken in the
/// constructor.
///
/// A training pass is: stage() a batch, forward(), backward(), release_batch(). All of it is enqueued, and nothing
/// depends on a number that the host would have to wait for.
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

/// Sums of an evaluation, and of several losses the sum of each without its weight.
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
  /// Memory for batches: copies from it to a device are fastest.
  std::pmr::memory_resource* host_memory() const noexcept { return backend_.host_memory(); }

  /// Sets the batch that forward() works on next. Its memory must stay until wait_staged() on a device, and until the
  /// step is over on a host. A device copies it concurrently with the computation: the next batch may be staged as soon
  /// as the previous one has been released.
  void stage(const Batch& batch);
  /// Waits until no device needs the host memory passed to stage() any more.
  void wait_staged() { stage_.wait(); }
  /// The slot of the batch that forward() works on next: recorded work depends on it.
  int slot() const noexcept { return stage_.current_slot(); }

  /// State that backward() needs from its forward pass.
  struct Forward {
    Pass pass;
    Accumulate accumulate;
  };
  /// Forward and loss on the staged batch. Gradients will be those of the loss times `scale` (1 / global batch, applied
  /// here and nowhere else; it includes the mean over a sample's positions). The sums of loss and metric are written
  /// (Accumulate::no) or added, and so will the gradients be. `sums`: tensor for these sums; absent: loss_sums().
  Forward forward(double scale, Accumulate accumulate, const Tensor& sums = {});
  /// Calls `ready` (which may be empty) as gradients become final. A batch of 0 samples zeroes the gradients
  /// (Accumulate::no) and calls ready as any other.
  void backward(const Forward& forward, const GradientReady& ready);
  /// Marks the work enqueued so far as the last that reads the staged batch, except locate_not_finite. Call it after
  /// every backward, outside recorded work.
  void release_batch() { stage_.release_current(); }
  /// The LossSums of all batches since the last one with Accumulate::no, in the backend's memory; behind them, of
  /// several losses the sum of each without its weight.
  Tensor loss_sums() const noexcept { return training_sums_.tensor(); }
  /// Numbers of loss_sums().
  std::size_t loss_sum_count() const noexcept { return static_cast<std::size_t>(kLossSums) + options_.losses.size(); }
  /// Sums over the rows (samples, or positions of samples) of the batch; of masks with its weights. `outputs`: receives
  /// the network's outputs for the rows, in the layout of predict(); empty: not stored. Synchronises.
  EvaluationSums evaluate(const Batch& batch, Weights weights = Weights::current, std::span<float> outputs = {});
  /// For generating text: the network's output for the last of the positions [first, end) of the batch's one
  /// sample; nothing reads y. Computes only these positions if continues() and the preceding calls have computed the
  /// earlier positions of the same tokens, with the same weights and without other work in between. Otherwise computes
  /// all positions, whatever `first` is. Synchronises.
  void predict(const Batch& batch, Weights weights, Pass::Positions positions, std::span<float> out);
  /// Tells whether predict() can compute the new positions alone.
  bool continues() const noexcept { return network_.reuses_positions() && backend_.is_host(); }
  /// The outputs for all rows of the batch, [rows, outputs]; nothing reads y. Synchronises.
  void predict(const Batch& batch, Weights weights, std::span<float> out);

  /// Runs forward and backward once more on the batch that was released last, and says where the first non-finite
  /// number appears, in the order of the computation: "input", "parameter dense_1/weight", "layer dense_2 (forward)",
  /// "loss", "gradient of dense_1/weight", or "" if all is finite here. Overwrites the gradients.
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
  ActivationLayout training_layout_, evaluation_layout_;  ///< two plans for the same memory
  Arena activations_;
  RecurrentState recurrent_state_;
  BatchStage stage_;
  Loss loss_;
  Scalars training_sums_, evaluation_sums_;
};

}  // namespace lockstep::model
