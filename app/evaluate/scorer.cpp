#include "app/evaluate/scorer.hpp"

#include <algorithm>
#include <numeric>

#include "app/engine/answer_metric.hpp"
#include "app/plan/workload.hpp"

namespace lockstep::app {

Scorer::Scorer(TrainedModel& subject, std::int64_t most, Units units)
    : subject_(subject),
      units_(units),
      outputs_(static_cast<std::size_t>(subject.source().record().network.outputs)),
      x_(static_cast<std::size_t>(most) * subject.dataset().x_bytes(), subject.model().host_memory()),
      y_(static_cast<std::size_t>(most) * std::max(subject.dataset().y_bytes(), outputs_ * sizeof(float)),
         subject.model().host_memory()) {}

void Scorer::score(std::int64_t first, std::span<float> scores, std::span<std::byte> targets) {
  samples_.resize(scores.size() / outputs_);
  std::iota(samples_.begin(), samples_.end(), first);
  const io::Dataset& data = units_ == Units::of_data ? subject_.dataset() : subject_.dataset_as_learnt();
  const std::span<std::byte> y = std::span(y_).first(targets.size());
  data.read(samples_, io::kNoEpoch, std::span(x_).first(samples_.size() * data.x_bytes()), y);
  std::copy(y.begin(), y.end(), targets.begin());
  subject_.model().predict({.x = x_.data(),
                            .x_type = element_type(data.x_type()),
                            .y = y_.data(),
                            .count = static_cast<std::int64_t>(samples_.size())},
                           subject_.weights(), scores);
  switch (subject_.loss()) {
    case model::LossKind::softmax_cross_entropy:
      for (std::size_t row = 0; row < samples_.size(); ++row)
        softmax(scores.subspan(row * outputs_, outputs_), powers_);
      return;
    case model::LossKind::mean_squared_error:
    case model::LossKind::mean_absolute_error:
    case model::LossKind::huber:
      if (units_ == Units::of_data) subject_.target_scale().undo(scores);
      return;
    case model::LossKind::binary_cross_entropy:
      std::transform(scores.begin(), scores.end(), scores.begin(), sigmoid);
  }
}

}  // namespace lockstep::app
