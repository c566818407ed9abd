/// \file
/// What a trained network says of samples: the scores that predict writes and eval --report judges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

#include "app/evaluate/trained_model.hpp"

namespace lockstep::app {

class Scorer {
 public:
  /// Numbers to predict: of the data, or standardised as the network learnt them.
  enum class Units { of_data, as_learnt };
  /// For at most `most` samples at once; `subject` must outlive it.
  Scorer(TrainedModel& subject, std::int64_t most, Units units = Units::of_data);

  /// Of a sample: classes or labels, whose scores are their probabilities, or numbers.
  std::size_t outputs() const noexcept { return outputs_; }
  /// Samples from `first` on, as many as `scores` [samples, outputs] hold. `targets` get what the data say of them, an
  /// int32 (classes) or `outputs` float32 each; nothing where the data have none. Throws io::FileError.
  void score(std::int64_t first, std::span<float> scores, std::span<std::byte> targets);

 private:
  TrainedModel& subject_;
  Units units_;
  std::size_t outputs_;
  std::vector<std::int64_t> samples_;
  std::vector<double> powers_;
  std::pmr::vector<std::byte> x_, y_;
};

}  // namespace lockstep::app
