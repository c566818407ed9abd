/// \file
/// A network on a backend, with its parameters: forward, backward, evaluation, prediction. All memory is taken in the
/// constructor.
///
/// A training pass is: stage() a batch, forward(), backward(), release_batch(). All of it is enqueued, and nothing
/// depends on a number that the host would have to wait for.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>

#include "model/backend.hpp"
#include "model/batch.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/recurrent_state.hpp"
#include "model/state/scalars.hpp"

namespace lockstep::model {

class Model {
 public:
  /// backend, network and parameters must outlive the model. It trains where the parameters have gradients.
  Model(Backend& backend, const Network& network, ParameterState& parameters, const ModelOptions& options);

  const Network& network() const noexcept { return network_; }
  RecurrentState& recurrent_state() noexcept { return recurrent_state_; }
  /// For batches: copies from there to a device are the fastest.
  std::pmr::memory_resource* host_memory() const noexcept { return backend_.host_memory(); }

  /// The batch that forward() works on next. Its memory must stay until wait_staged() on a device, and until the step
  /// is over on a host. A device copies it beside the computation: the next batch may be staged as soon as the one
  /// before has been released.
  void stage(const Batch& batch);
  /// No host memory given to stage() is needed by a device any more.
  void wait_staged() { stage_.wait(); }
  /// The slot of the batch that forward() works on next: recorded work differs by it.
  int slot() const noexcept { return stage_.current_slot(); }

  /// What backward needs of its forward pass.
  struct Forward {
    Pass pass;
    Tensor d_output;  ///< the gradient of the loss by the network's output
    Accumulate accumulate;
  };
  /// Forward and loss on the staged batch. Gradients will be those of the loss times `scale` (1 / global batch, folded
  /// in here and nowhere else; where a sample has several positions, so is the mean over them). The sums of loss and
  /// metric are written (Accumulate::no) or added, and so will the gradients be. `sums`: where these are; absent: in
  /// loss_sums().
  Forward forward(double scale, Accumulate accumulate, const Tensor& sums = {});
  /// Calls `ready` (which may be empty) as gradients become final. A batch of 0 samples zeroes the gradients
  /// (Accumulate::no) and calls ready as any other.
  void backward(const Forward& forward, const GradientReady& ready);
  /// What has been enqueued is the last to read the staged batch, but for locate_not_finite. Outside recorded work,
  /// after every backward.
  void release_batch() { stage_.release_current(); }
  /// The LossSums of the batches since Accumulate::no, in the backend's memory.
  Tensor loss_sums() const noexcept { return training_sums_.tensor(); }
  /// Sums over the rows (samples, or positions of samples) of the batch, whose weights do not count; `outputs`: where
  /// the network's outputs for the rows go, as predict() says them; empty: nowhere. Synchronises.
  LossSums evaluate(const Batch& batch, Weights weights = Weights::current, std::span<float> outputs = {});
  /// For generating text: the network's output for the last of the positions [first, end) of a sample, a row of the
  /// batch's one sample; y may be nullptr. Only these positions are computed where the calls before have computed the
  /// earlier ones of the same tokens, with the same weights, and nothing else has been done since (continues()); else
  /// all of them, whatever `first` is. Synchronises.
  void predict(const Batch& batch, Weights weights, Pass::Positions positions, std::span<float> out);
  /// Whether predict() makes do with the new positions.
  bool continues() const noexcept { return network_.reuses_positions() && backend_.is_host(); }
  /// The outputs for all rows of the batch, [rows, outputs]; y may not be nullptr, but nothing reads it. Synchronises.
  void predict(const Batch& batch, Weights weights, std::span<float> out);

  /// Runs forward and backward once more on the batch that was released last, and says where the first non-finite
  /// number appears, in the order of the computation: "input", "parameter dense_1/weight", "layer dense_2 (forward)",
  /// "loss", "gradient of dense_1/weight", or "" if all is finite here. Overwrites the gradients.
  std::string locate_not_finite();

 private:
  Pass pass(const BatchStage::Staged& batch, Weights weights, Purpose purpose);
  LossOptions loss_options(double scale, const BatchStage::Staged& batch) const;
  void loss(const Pass& pass, const Tensor& output, const Tensor& y, const LossOptions& options, const Tensor& sums);
  template <class Use>
  void evaluate_output(const Batch& batch, Weights weights, Pass::Positions positions, const Use& use);
  void download_rows(const Tensor& output, std::span<float> out);
  void require_training(const char* operation) const;

  Backend& backend_;
  const Network& network_;
  ParameterState& parameters_;
  ModelOptions options_;
  ActivationLayout layout_;
  Arena activations_;
  RecurrentState recurrent_state_;
  BatchStage stage_;
  Scalars training_sums_, evaluation_sums_;
};

}  // namespace lockstep::model
