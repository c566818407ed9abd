/// \file
/// Metrics of all answers of a network, which are no sums over its samples: balanced accuracy, F1, the area under the
/// ROC curve. The same numbers at any number of ranks: whole numbers are counted, and every rank's scores are ranked
/// together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Probabilities of classes, from their logits: exp(s_i - max) / sum, in float64. `powers` is room.
void softmax(std::span<float> scores, std::vector<double>& powers);
/// The probability of a label, from its logit.
float sigmoid(float logit) noexcept;

/// Twice the number of pairs of a positive and a negative sample in which the positive one has the higher score, a tie
/// counting half, over twice the number of pairs: Mann and Whitney's U. Sorts `samples`, each of which is the bits of a
/// score of 0 or more, and kPositive besides. NaN where all samples are alike.
inline constexpr std::uint64_t kPositive = std::uint64_t{1} << 32;
double area_under_roc(std::span<std::uint64_t> samples);

class AnswerMetric {
 public:
  /// `task` says which; it must need answers (Task::needs_answers).
  explicit AnswerMetric(const Task& task);

  /// Rows of logits, and what the data say of them: int32 classes, or float32 labels, as many as there are logits.
  void add(std::span<const float> logits, std::span<const std::byte> targets);
  /// Collective: over the rows of all ranks. NaN where it is not defined (of the area: every sample is of one class),
  /// or an answer is no number.
  double over_all(comm::Communicator& communicator);

 private:
  void add_counts(std::span<const float> logits, std::span<const std::byte> targets);
  void add_scores(std::span<const float> logits, std::span<const std::byte> targets);
  double from_counts() const;
  double area_over_all(comm::Communicator& communicator) const;

  BestBy by_;
  bool labels_;
  std::size_t outputs_;
  bool spoilt_ = false;         ///< an answer is no number
  std::vector<double> counts_;  ///< three of each class or label: samples, answers, right ones
  /// This rank's samples for the area, column by column, as area_under_roc() takes them. Two classes are one column.
  std::vector<std::vector<std::uint64_t>> columns_;
};

}  // namespace lockstep::app
