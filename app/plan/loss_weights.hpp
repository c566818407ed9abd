/// \file
/// Weights of the losses of training samples: by class, and by sample.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Weights whose mean over the training data is 1. The loss of a step is therefore still a mean over its samples, at
/// any number of ranks and micro-steps, and a learning rate has the same effect as without weights.
class LossWeights {
 public:
  LossWeights() = default;  ///< all weights are 1
  /// Takes a weight for each class and for each training sample; an empty vector means that all weights are 1. The mean
  /// of their products over the training data must be 1.
  LossWeights(std::vector<float> of_classes, std::vector<float> of_samples)
      : of_classes_(std::move(of_classes)), of_samples_(std::move(of_samples)) {}

  bool empty() const noexcept { return of_classes_.empty() && of_samples_.empty(); }
  std::span<const float> of_classes() const noexcept { return of_classes_; }
  std::span<const float> of_samples() const noexcept { return of_samples_; }
  /// Writes the weights of the training samples with the numbers `samples`. `labels`: their y, int32; read only if
  /// classes have weights.
  void write(std::span<const std::int64_t> samples, std::span<const std::byte> labels, std::span<float> to) const;

 private:
  std::vector<float> of_classes_, of_samples_;
};

/// Collective. Counts the samples of each class, for masks the positions of each class. Each rank reads a part of the
/// labels. Throws comm::ConsensusError if reading fails.
std::vector<std::int64_t> count_classes(comm::Communicator& communicator, const io::Dataset& data);

/// Returns the "balanced" weights of scikit-learn: samples / (number of classes with samples * samples of the class); 0
/// for a class without samples.
std::vector<double> balanced_weights(std::span<const std::int64_t> samples_of_classes);

/// Collective. Returns the weights that the options request for `training`. Throws UsageError if options and data do
/// not fit, and comm::ConsensusError if reading fails; the same on all ranks.
LossWeights gather_loss_weights(comm::Communicator& communicator, const LossOptions& options,
                                const io::Dataset& training);

}  // namespace lockstep::app
