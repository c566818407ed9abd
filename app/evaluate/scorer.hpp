/// \file
/// Scores of samples by a trained network, which predict writes and eval --report evaluates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "app/engine/mask_labels.hpp"
#include "app/evaluate/trained_model.hpp"

namespace lockstep::app {

class Scorer {
 public:
  /// Units of predicted numbers: the data's, or the standardised ones of training.
  enum class Units { of_data, as_learnt };
  /// Scores at most `most` samples at once; `subject` must outlive it.
  Scorer(TrainedModel& subject, std::int64_t most, Units units = Units::of_data);

  /// Outputs per sample: classes or labels, whose scores are their probabilities, or numbers. Of masks the classes of
  /// each position.
  std::size_t outputs() const noexcept { return outputs_ * positions_; }
  /// Rows of outputs per sample: 1, or the positions of a mask.
  std::size_t positions() const noexcept { return positions_; }
  /// Bytes of a sample's targets; 0: the data have none.
  std::size_t target_bytes() const noexcept;
  /// Scores samples from `first` on, as many as `scores` [samples, outputs] holds. `targets` gets the data's labels, an
  /// int32 (classes, also of each position; of probabilities the likeliest class) or `outputs` float32 each; nothing if
  /// the data have none. Throws io::FileError.
  void score(std::int64_t first, std::span<float> scores, std::span<std::byte> targets);

 private:
  void convert_columns(std::span<float> scores);

  TrainedModel& subject_;
  Units units_;
  std::size_t outputs_, positions_;
  std::vector<std::int64_t> samples_;
  std::vector<double> powers_;
  std::pmr::vector<std::byte> x_;
  MaskLabels masks_;
  std::vector<std::byte> stored_;  ///< masks or probabilities as in the data
};

}  // namespace lockstep::app
