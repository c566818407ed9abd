/// \file
/// How good classifications are, class by class, and how far their probabilities can be believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::app {

/// Counts over classified samples. All of them are whole numbers, so that their sums are the same however the samples
/// are shared out over ranks.
class ClassCounts {
 public:
  /// Of the likeliest class' probability, the confidence: bin b holds those in (b / kBins, (b + 1) / kBins].
  static constexpr int kBins = 15;
  /// More would take too much memory: a count for each pair.
  static constexpr std::int64_t kMaxClasses = 2048;

  explicit ClassCounts(std::int64_t classes);

  /// `probabilities` of the classes; of equally likely ones the first counts. 0 <= target < classes. Throws
  /// std::invalid_argument, also where the probabilities are no numbers.
  void add(std::span<const float> probabilities, std::int32_t target);
  /// Everything, to be added up over ranks.
  std::span<double> numbers() noexcept { return numbers_; }

  std::int64_t classes() const noexcept { return classes_; }
  /// Samples of class `target` that were taken for class `predicted`.
  std::int64_t confused(std::int64_t target, std::int64_t predicted) const;
  struct Bin {
    std::int64_t samples = 0, right = 0;
    double confidence = 0;  ///< the mean; 0 where there are no samples
    double accuracy() const { return samples > 0 ? static_cast<double>(right) / static_cast<double>(samples) : 0; }
  };
  Bin bin(int index) const;

 private:
  /// In whole 2^-24: a float32 from 0.5 to 1 is such a number.
  static constexpr double kConfidenceUnit = 1.0 / (1 << 24);
  std::size_t bin_at(int index) const;

  std::int64_t classes_;
  std::vector<double> numbers_;  ///< classes_ * classes_ counts by target, then samples, right, confidence of each bin
};

/// The usual figures of a class. NaN where it is 0 / 0.
struct ClassScore {
  std::int64_t samples = 0;    ///< that are of the class
  std::int64_t predicted = 0;  ///< that were taken for it
  double precision = 0;        ///< of those taken for it, the share that is
  double recall = 0;           ///< of those that are, the share taken for it
  double f1 = 0;               ///< harmonic mean of the two: 2 right / (samples + predicted)
};

/// Of so many that are, that were taken for it, and that were so rightly.
ClassScore class_score(std::int64_t samples, std::int64_t predicted, std::int64_t right);

/// All classes, and their means. A NaN counts as 0 in a mean; a class that nothing is or was taken for is in none.
struct ClassReport {
  std::vector<ClassScore> classes;
  ClassScore macro;     ///< the mean over the classes
  ClassScore weighted;  ///< the mean over the samples
  std::int64_t samples = 0, right = 0;
  double confidence = 0;  ///< the mean
  /// Naeini et al. 2015, Guo et al. 2017: over the bins, the mean by samples of |accuracy - confidence|; the greatest.
  double calibration_error = 0, greatest_calibration_error = 0;
  struct Confusion {
    std::int64_t target = 0, predicted = 0, samples = 0;
  };
  std::vector<Confusion> confusions;  ///< of two classes, the most frequent first
};
ClassReport report_of(const ClassCounts& counts);

}  // namespace lockstep::app
