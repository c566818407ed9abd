/// \file
/// Scores samples with a trained network: predict writes the scores, and eval --report evaluates them.
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
  /// Units of predicted numbers: the data's, or the standardised units of training.
  enum class Units { of_data, as_learnt };
  /// Scores at most `most` samples at once; `subject` must outlive it.
  Scorer(TrainedModel& subject, std::int64_t most, Units units = Units::of_data);

  /// Number of outputs per sample: probabilities of classes or labels, or numbers; for masks, the classes of each
  /// position.
  std::size_t outputs() const noexcept { return outputs_ * positions_; }
  /// Rows of outputs per sample: 1, or the number of positions of a mask.
  std::size_t positions() const noexcept { return positions_; }
  /// Bytes of a sample's targets; 0 if the data have none.
  std::size_t target_bytes() const noexcept;
  /// Scores as many samples from `first` on as `scores` [samples, outputs] holds. Fills `targets` with the data's
  /// labels: an int32 class per sample or position (the likeliest class if the data store probabilities), or `outputs`
  /// float32 per sample. `targets` is empty if the data have none. Throws io::FileError.
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
  std::vector<std::byte> stored_;  ///< masks or probabilities, as stored in the data
};

}  // namespace lockstep::app
