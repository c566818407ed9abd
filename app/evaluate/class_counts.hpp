/// \file
/// Quality of classifications by class, and calibration of their probabilities.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::app {

/// Counts over classified samples. All are whole numbers, so their sums do not depend on how samples are spread over
/// ranks.
class ClassCounts {
 public:
  /// Number of bins of the confidence, which is the probability of the likeliest class. Bin b holds (b / kBins, (b + 1)
  /// / kBins].
  static constexpr int kBins = 15;
  /// Limits the memory: each pair of classes has a count.
  static constexpr std::int64_t kMaxClasses = 2048;

  explicit ClassCounts(std::int64_t classes);

  /// Adds a sample. `probabilities`: one per class; among equal ones the first class counts. 0 <= target < classes.
  /// Throws std::invalid_argument, also if a probability is NaN.
  void add(std::span<const float> probabilities, std::int32_t target);
  /// All counts, to be summed over ranks.
  std::span<double> numbers() noexcept { return numbers_; }

  std::int64_t classes() const noexcept { return classes_; }
  /// Number of samples of class `target` that were predicted as class `predicted`.
  std::int64_t confused(std::int64_t target, std::int64_t predicted) const;
  struct Bin {
    std::int64_t samples = 0, right = 0;
    double confidence = 0;  ///< mean; 0 without samples
    double accuracy() const { return samples > 0 ? static_cast<double>(right) / static_cast<double>(samples) : 0; }
  };
  Bin bin(int index) const;

 private:
  /// Unit of sums of confidences: any float32 from 0.5 to 1 is a multiple of 2^-24.
  static constexpr double kConfidenceUnit = 1.0 / (1 << 24);
  std::size_t bin_at(int index) const;

  std::int64_t classes_;
  std::vector<double> numbers_;  ///< classes_ * classes_ counts by target, then samples, right, confidence of each bin
};

/// Figures of a class; NaN for 0 / 0.
struct ClassScore {
  std::int64_t samples = 0;    ///< samples of the class
  std::int64_t predicted = 0;  ///< samples predicted as the class
  double precision = 0;        ///< share of samples of the class among `predicted`
  double recall = 0;           ///< share of samples predicted as the class among `samples`
  double f1 = 0;               ///< harmonic mean of the two: 2 right / (samples + predicted)
  double iou = 0;              ///< intersection over union: right / (samples + predicted - right)
};

/// Computes the figures. `samples`: samples of the class; `predicted`: samples predicted as the class; `right`: samples
/// that are both.
ClassScore class_score(std::int64_t samples, std::int64_t predicted, std::int64_t right);

/// All classes and their means. In a mean, NaN counts as 0; a class without samples and predictions is left out.
struct ClassReport {
  std::vector<ClassScore> classes;
  ClassScore macro;     ///< mean over the classes
  ClassScore weighted;  ///< mean over the samples
  std::int64_t samples = 0, right = 0;
  double confidence = 0;  ///< mean confidence
  /// Mean of |accuracy - confidence| over the bins, weighted by samples, and the greatest such value (Naeini et al.
  /// 2015, Guo et al. 2017).
  double calibration_error = 0, greatest_calibration_error = 0;
  struct Confusion {
    std::int64_t target = 0, predicted = 0, samples = 0;
  };
  std::vector<Confusion> confusions;  ///< pairs of classes, the most frequent first
};
ClassReport report_of(const ClassCounts& counts);

}  // namespace lockstep::app
