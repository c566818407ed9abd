#include "app/engine/answer_metric.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace lockstep::app {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Number>
Number number_in(std::span<const std::byte> bytes, std::size_t index) {
  Number number{};
  std::memcpy(&number, &bytes[index * sizeof number], sizeof number);
  return number;
}

}  // namespace

void softmax(std::span<float> scores, std::vector<double>& powers) {
  const double greatest = *std::max_element(scores.begin(), scores.end());
  powers.clear();
  for (const float score : scores) powers.push_back(std::exp(score - greatest));
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  std::transform(powers.begin(), powers.end(), scores.begin(),
                 [sum](double power) { return static_cast<float>(power / sum); });
}

float sigmoid(float logit) noexcept { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logit)))); }

void choose_classes(std::span<const float> scores, std::span<std::int32_t> classes) {
  const std::size_t each = scores.size() / std::max<std::size_t>(1, classes.size());
  for (std::size_t row = 0; row < classes.size(); ++row) {
    const std::span<const float> own = scores.subspan(row * each, each);
    classes[row] = static_cast<std::int32_t>(std::ranges::max_element(own) - own.begin());
  }
}

double area_under_roc(std::span<std::uint64_t> samples) {
  // The bits of non-negative floats sort like the floats.
  const auto score_of = [](std::uint64_t sample) { return sample & (kPositive - 1); };
  std::ranges::sort(samples, {}, score_of);
  std::uint64_t positives = 0, negatives = 0, twice = 0;
  for (std::size_t at = 0; at < samples.size();) {
    std::uint64_t equal_positives = 0, equal = 0;
    for (const std::uint64_t score = score_of(samples[at]); at < samples.size() && score_of(samples[at]) == score;
         ++at) {
      equal_positives += samples[at] >= kPositive ? 1 : 0;
      ++equal;
    }
    const std::uint64_t equal_negatives = equal - equal_positives;
    twice += equal_positives * (2 * negatives + equal_negatives);
    positives += equal_positives;
    negatives += equal_negatives;
  }
  if (positives == 0 || negatives == 0) return kNan;
  return static_cast<double>(twice) / (2 * static_cast<double>(positives) * static_cast<double>(negatives));
}

AnswerMetric::AnswerMetric(const Task& task)
    : by_(task.best_by()), labels_(task.has_labels()), outputs_(static_cast<std::size_t>(task.outputs())) {
  if (by_ == BestBy::roc_auc) {
    columns_.resize(!labels_ && outputs_ == 2 ? 1 : outputs_);
  } else {
    counts_.resize(3 * outputs_);
  }
}

void AnswerMetric::add(std::span<const float> logits, std::span<const std::byte> targets) {
  has_nan_ = has_nan_ || std::ranges::any_of(logits, [](float logit) { return std::isnan(logit); });
  if (has_nan_) return;
  if (by_ == BestBy::roc_auc) {
    add_scores(logits, targets);
  } else {
    add_counts(logits, targets);
  }
}

void AnswerMetric::add_counts(std::span<const float> logits, std::span<const std::byte> targets) {
  const auto count = [this](std::size_t output, bool there, bool said) {
    counts_[3 * output] += there ? 1 : 0;
    counts_[3 * output + 1] += said ? 1 : 0;
    counts_[3 * output + 2] += there && said ? 1 : 0;
  };
  for (std::size_t row = 0; row < logits.size() / outputs_; ++row) {
    const auto answers = logits.subspan(row * outputs_, outputs_);
    if (labels_) {
      for (std::size_t o = 0; o < outputs_; ++o) {
        count(o, number_in<float>(targets, row * outputs_ + o) > 0.5f, answers[o] > 0);
      }
      continue;
    }
    const std::int32_t label = number_in<std::int32_t>(targets, row);
    if (label == model::kNoClass) continue;
    const auto target = static_cast<std::size_t>(label);
    const auto said = static_cast<std::size_t>(std::ranges::max_element(answers) - answers.begin());
    count(target, true, said == target);
    if (said != target) count(said, false, true);
  }
}

void AnswerMetric::add_scores(std::span<const float> logits, std::span<const std::byte> targets) {
  std::vector<float> scores(outputs_);
  std::vector<double> powers;
  const std::size_t first = columns_.size() < outputs_ ? 1 : 0;
  for (std::size_t row = 0; row < logits.size() / outputs_; ++row) {
    const auto answers = logits.subspan(row * outputs_, outputs_);
    if (labels_) {
      std::ranges::transform(answers, scores.begin(), sigmoid);
    } else {
      std::ranges::copy(answers, scores.begin());
      softmax(scores, powers);
    }
    for (std::size_t column = 0; column < columns_.size(); ++column) {
      const std::size_t output = column + first;
      const bool positive = labels_ ? number_in<float>(targets, row * outputs_ + output) > 0.5f
                                    : number_in<std::int32_t>(targets, row) == static_cast<std::int32_t>(output);
      columns_[column].push_back(std::bit_cast<std::uint32_t>(scores[output]) + (positive ? kPositive : 0));
    }
  }
}

double AnswerMetric::over_all(comm::Communicator& communicator) {
  double has_nan = has_nan_ ? 1 : 0;
  communicator.all_reduce(std::span(&has_nan, 1));
  communicator.all_reduce(std::span(counts_));
  communicator.wait("counting answers");
  is_defined_ = has_nan == 0;
  if (!is_defined_) return kNan;
  return by_ == BestBy::roc_auc ? area_over_all(communicator) : from_counts(by_);
}

/// The mean recall of the classes with samples, or the mean F1 or IoU of the classes with samples or answers. An F1 of
/// 0 / 0 is 0.
double AnswerMetric::from_counts(BestBy by) const {
  double sum = 0, counted = 0;
  for (std::size_t o = 0; o < counts_.size(); o += 3) {
    const double samples = counts_[o], answers = counts_[o + 1], right = counts_[o + 2];
    const double whole = by == BestBy::balanced_accuracy ? samples
                         : by == BestBy::mean_iou        ? samples + answers - right
                                                         : samples + answers;
    if (whole == 0) continue;
    sum += (by == BestBy::f1_macro ? 2 * right : right) / whole;
    counted += 1;
  }
  return counted > 0 ? sum / counted : kNan;
}

double AnswerMetric::mean_iou() const { return is_defined_ ? from_counts(BestBy::mean_iou) : kNan; }

std::vector<double> AnswerMetric::ious() const {
  std::vector<double> ious;
  for (std::size_t o = 0; is_defined_ && o < counts_.size(); o += 3) {
    const double whole = counts_[o] + counts_[o + 1] - counts_[o + 2];
    ious.push_back(whole > 0 ? counts_[o + 2] / whole : kNan);
  }
  return ious;
}

double AnswerMetric::rows() const {
  double rows = 0;
  for (std::size_t o = 0; o < counts_.size(); o += 3) rows += counts_[o];
  return rows;
}

/// The mean area of the columns that have both positive and negative samples. The ranks exchange their parts of several
/// columns at a time, and one rank ranks each column.
double AnswerMetric::area_over_all(comm::Communicator& communicator) const {
  constexpr std::size_t kNumbersAtOnce = std::size_t{1} << 22;
  const auto rank = static_cast<std::size_t>(communicator.rank()), size = static_cast<std::size_t>(communicator.size());
  std::vector<double> counts(size, 0.0), areas(columns_.size(), 0.0);
  counts[rank] = static_cast<double>(columns_.front().size());
  communicator.all_reduce(std::span(counts));
  communicator.wait("ranking scores");
  const auto before =
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.begin() + communicator.rank(), 0.0));
  const auto samples = static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), 0.0));
  const std::size_t at_once =
      std::clamp<std::size_t>(kNumbersAtOnce / std::max<std::size_t>(samples, 1), 1, columns_.size());
  std::vector<double> together;  // whole numbers below 2^33, exact in double; the other ranks add zeros
  std::vector<std::uint64_t> sorted(samples);
  for (std::size_t first = 0; first < columns_.size(); first += at_once) {
    const std::size_t end = std::min(first + at_once, columns_.size());
    together.assign((end - first) * samples, 0.0);
    for (std::size_t column = first; column < end; ++column) {
      std::ranges::transform(columns_[column],
                             together.begin() + static_cast<std::ptrdiff_t>((column - first) * samples + before),
                             [](std::uint64_t sample) { return static_cast<double>(sample); });
    }
    communicator.all_reduce(std::span(together));
    communicator.wait("ranking scores");
    for (std::size_t column = first; column < end; ++column) {
      if (column % size != rank) continue;
      const auto own = std::span(together).subspan((column - first) * samples, samples);
      std::ranges::transform(own, sorted.begin(), [](double sample) { return static_cast<std::uint64_t>(sample); });
      areas[column] = area_under_roc(sorted);
    }
  }
  // In the sum, 2 stands for a column without an area; no area is greater than 1.
  for (double& area : areas) area = std::isnan(area) ? 2 : area;
  communicator.all_reduce(std::span(areas));
  communicator.wait("ranking scores");
  const auto defined = std::ranges::remove_if(areas, [](double area) { return area > 1; });
  areas.erase(defined.begin(), defined.end());
  return areas.empty() ? kNan : std::accumulate(areas.begin(), areas.end(), 0.0) / static_cast<double>(areas.size());
}

}  // namespace lockstep::app
