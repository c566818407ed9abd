/// \file
/// Factors of the losses of training samples: weights of their classes and of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/dataset.hpp"

namespace lockstep::app {

/// Weights whose mean over the training data is 1. The loss of a step therefore stays a mean over its samples, at any
/// number of ranks and micro-steps, and a learning rate has the same effect as without weights.
class LossWeights {
 public:
  LossWeights() = default;  ///< 1 each
  /// Weights of each class, and of each training sample; either may be empty: 1 each. Their product has the mean 1.
  LossWeights(std::vector<float> of_classes, std::vector<float> of_samples)
      : of_classes_(std::move(of_classes)), of_samples_(std::move(of_samples)) {}

  bool empty() const noexcept { return of_classes_.empty() && of_samples_.empty(); }
  std::span<const float> of_classes() const noexcept { return of_classes_; }
  std::span<const float> of_samples() const noexcept { return of_samples_; }
  /// Writes the weights of the training samples with these numbers; `labels`: their y, int32 if classes have weights.
  void write(std::span<const std::int64_t> samples, std::span<const std::byte> labels, std::span<float> to) const;

 private:
  std::vector<float> of_classes_, of_samples_;
};

/// Collective. Counts the samples of each class: every rank reads the labels of a part. Throws comm::ConsensusError for
/// errors of reading.
std::vector<std::int64_t> count_classes(comm::Communicator& communicator, const io::Dataset& data);

/// scikit-learn's "balanced": samples / (classes that have samples * samples of the class); 0 for a class without any.
std::vector<double> balanced_weights(std::span<const std::int64_t> samples_of_classes);

/// Collective. The weights that the options request for these training data. Throws UsageError if options and data do
/// not fit together, and comm::ConsensusError, both alike on all ranks.
LossWeights gather_loss_weights(comm::Communicator& communicator, const LossOptions& options,
                                const io::Dataset& training);

}  // namespace lockstep::app
