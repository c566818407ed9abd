#include "app/evaluate/scorer.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>

#include "app/data/network_input.hpp"
#include "app/engine/answer_metric.hpp"

namespace lockstep::app {

Scorer::Scorer(TrainedModel& subject, std::int64_t most, Units units)
    : subject_(subject),
      units_(units),
      outputs_(static_cast<std::size_t>(subject.source().record().network.outputs)),
      positions_(static_cast<std::size_t>(subject.model().network().positions())),
      x_(static_cast<std::size_t>(most) * subject.dataset().x_bytes(), subject.model().host_memory()),
      masks_(subject.model().network(), subject.model().options(), most, subject.model().host_memory()) {}

std::size_t Scorer::target_bytes() const noexcept {
  const std::size_t stored = subject_.dataset().y_bytes();
  return model::chooses_class(subject_.loss()) && stored > 0 ? positions_ * sizeof(std::int32_t) : stored;
}

void Scorer::score(std::int64_t first, std::span<float> scores, std::span<std::byte> targets) {
  samples_.resize(scores.size() / outputs());
  std::iota(samples_.begin(), samples_.end(), first);
  const io::Dataset& data = units_ == Units::of_data ? subject_.dataset() : subject_.dataset_as_learnt();
  const std::span x = std::span(x_).first(samples_.size() * data.x_bytes());
  const bool of_probabilities = subject_.task().has_probabilities();
  if ((masks_.are_masks() || of_probabilities) && !targets.empty()) {
    stored_.resize(samples_.size() * data.y_bytes());
    data.read(samples_, io::kNoEpoch, x, stored_);
    if (of_probabilities) {
      choose_classes({reinterpret_cast<const float*>(stored_.data()), stored_.size() / sizeof(float)},
                     {reinterpret_cast<std::int32_t*>(targets.data()), samples_.size()});
    } else {
      std::ranges::copy(std::as_bytes(masks_.labels(stored_, {})), targets.begin());
    }
  } else {
    data.read(samples_, io::kNoEpoch, x, targets);
  }
  subject_.model().predict({.x = tensor_of(x, data.x_type(), std::ssize(samples_))}, subject_.weights(), scores);
  if (!subject_.losses().empty() && !model::chooses_class(subject_.loss())) return convert_columns(scores);
  switch (subject_.loss()) {
    case model::LossKind::softmax_cross_entropy:
    case model::LossKind::soft_cross_entropy:
    case model::LossKind::soft_dice:
      for (std::size_t row = 0; row < samples_.size() * positions_; ++row)
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

/// With several losses: converts the columns of each loss to its predictions.
void Scorer::convert_columns(std::span<float> scores) {
  if (units_ == Units::of_data) subject_.target_scale().undo(scores);
  std::set<std::int64_t> converted;  // first columns: several losses may judge one target
  for (const model::LossTerm& loss : subject_.losses()) {
    if (model::is_of_numbers(loss.kind) || !converted.insert(loss.first).second) continue;
    for (std::size_t row = 0; row < scores.size() / outputs_; ++row) {
      const std::span<float> own =
          scores.subspan(row * outputs_ + static_cast<std::size_t>(loss.first), static_cast<std::size_t>(loss.columns));
      if (loss.kind == model::LossKind::soft_cross_entropy) {
        softmax(own, powers_);
      } else {
        std::ranges::transform(own, own.begin(), sigmoid);
      }
    }
  }
}

}  // namespace lockstep::app
