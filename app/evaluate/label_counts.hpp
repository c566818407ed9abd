/// \file
/// Quality of a network that predicts for each label if a sample has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/evaluate/class_counts.hpp"

namespace lockstep::app {

/// Counts over samples. They are whole numbers, so their sums do not depend on how samples are spread over ranks.
class LabelCounts {
 public:
  explicit LabelCounts(std::int64_t labels);

  /// Adds a sample. `probabilities`: one per label; above 1/2 predicts the label. `targets`: 1 for labels that the
  /// sample has. Throws std::invalid_argument if a probability is NaN.
  void add(std::span<const float> probabilities, std::span<const float> targets);
  /// All counts, to be summed over ranks.
  std::span<double> numbers() noexcept { return numbers_; }

  std::int64_t labels() const noexcept { return labels_; }
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(numbers_[0]); }
  /// Number of samples with all labels right.
  std::int64_t right() const noexcept { return static_cast<std::int64_t>(numbers_[1]); }
  /// Number of samples that have the label, that are predicted to have it, and both.
  std::int64_t there(std::int64_t label) const { return count(label, 0); }
  std::int64_t said(std::int64_t label) const { return count(label, 1); }
  std::int64_t found(std::int64_t label) const { return count(label, 2); }

 private:
  std::int64_t count(std::int64_t label, std::size_t which) const;

  std::int64_t labels_;
  std::vector<double> numbers_;  ///< samples, right, then three for each label
};

/// Figures of each label, and of all labels.
struct LabelReport {
  std::vector<ClassScore> labels;
  ClassScore macro;  ///< mean over the labels; leaves out labels that no sample has or is predicted to have
  ClassScore micro;  ///< figures over the predictions of all labels together
};
LabelReport report_of(const LabelCounts& counts);

}  // namespace lockstep::app
