/// \file
/// How good a network is that says of each label whether a sample has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "app/evaluate/class_counts.hpp"

namespace lockstep::app {

/// Counts over samples; whole numbers, so that their sums are the same however the samples are shared out over ranks.
class LabelCounts {
 public:
  explicit LabelCounts(std::int64_t labels);

  /// The probability of each label of one sample, above 1/2: it is said to have it; and 1 for those that it has. Throws
  /// std::invalid_argument where a probability is no number.
  void add(std::span<const float> probabilities, std::span<const float> targets);
  /// Everything, to be added up over ranks.
  std::span<double> numbers() noexcept { return numbers_; }

  std::int64_t labels() const noexcept { return labels_; }
  std::int64_t samples() const noexcept { return static_cast<std::int64_t>(numbers_[0]); }
  /// All labels of which are right.
  std::int64_t right() const noexcept { return static_cast<std::int64_t>(numbers_[1]); }
  /// Samples that have the label, are said to, and both.
  std::int64_t there(std::int64_t label) const { return count(label, 0); }
  std::int64_t said(std::int64_t label) const { return count(label, 1); }
  std::int64_t found(std::int64_t label) const { return count(label, 2); }

 private:
  std::int64_t count(std::int64_t label, std::size_t which) const;

  std::int64_t labels_;
  std::vector<double> numbers_;  ///< samples, right, then three for each label
};

/// The usual figures of each label, and over all of them.
struct LabelReport {
  std::vector<ClassScore> labels;
  ClassScore macro;  ///< the mean over the labels; a label that nothing has or is said to have is in none
  ClassScore micro;  ///< of the answers about all labels together
};
LabelReport report_of(const LabelCounts& counts);

}  // namespace lockstep::app
