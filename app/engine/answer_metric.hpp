/// \file
/// Metrics that are not sums over samples: balanced accuracy, F1, the area under the ROC curve. The numbers do not
/// depend on the number of ranks: counts are whole numbers, and the scores of all ranks are ranked together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/plan/task.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Converts logits of classes to probabilities: exp(s_i - max) / sum, in float64. `powers` is scratch memory.
void softmax(std::span<float> scores, std::vector<double>& powers);
/// The probability of a label, from its logit.
float sigmoid(float logit) noexcept;

/// Chooses the likeliest class of each row of scores; among equal ones, the first.
void choose_classes(std::span<const float> scores, std::span<std::int32_t> classes);

/// Returns the area under the ROC curve (Mann and Whitney's U): the share of pairs of a positive and a negative sample
/// in which the positive one has the higher score. A tie counts half. The result is a quotient of whole numbers. Sorts
/// `samples`. Each sample is the bits of a score >= 0, plus kPositive for a positive sample. NaN if all samples are of
/// one kind.
inline constexpr std::uint64_t kPositive = std::uint64_t{1} << 32;
double area_under_roc(std::span<std::uint64_t> samples);

class AnswerMetric {
 public:
  /// `task` selects the metric; it must need answers (Task::needs_answers) or have masks.
  explicit AnswerMetric(const Task& task);

  /// Adds rows of logits with their labels: int32 classes, or one float32 label per logit.
  void add(std::span<const float> logits, std::span<const std::byte> targets);
  /// Collective: returns the metric over the rows of all ranks. NaN if it is not defined (the area: all samples are of
  /// one class), or if an answer is NaN.
  double over_all(comm::Communicator& communicator);
  /// After over_all() of a metric that counts classes: the mean of right / (samples + answers - right) over the classes
  /// that have samples or answers.
  double mean_iou() const;
  /// The same value for each class; NaN for a class without samples and answers.
  std::vector<double> ious() const;
  double rows() const;

 private:
  void add_counts(std::span<const float> logits, std::span<const std::byte> targets);
  void add_scores(std::span<const float> logits, std::span<const std::byte> targets);
  double from_counts(BestBy by) const;
  double area_over_all(comm::Communicator& communicator) const;

  BestBy by_;
  bool labels_;
  std::size_t outputs_;
  bool has_nan_ = false;        ///< an answer is NaN
  bool is_defined_ = false;     ///< over_all() has found no NaN
  std::vector<double> counts_;  ///< three per class or label: samples, answers, correct answers
  /// This rank's samples for the area, column by column, in the form of area_under_roc(). Two classes are one column.
  std::vector<std::vector<std::uint64_t>> columns_;
};

}  // namespace lockstep::app
