#include "app/plan/task.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

/// The five likeliest of so few classes say nothing.
constexpr std::int64_t kFewClasses = 10;

}  // namespace

Task::Task(model::LossKind loss, const model::Network& network, double bytes_per_token)
    : kind_(network.sample_shape().tokens                    ? Kind::language
            : loss == model::LossKind::softmax_cross_entropy ? Kind::classification
            : loss == model::LossKind::binary_cross_entropy  ? Kind::labels
                                                             : Kind::regression),
      positions_(network.positions()),
      classes_(network.sample_shape().outputs),
      bytes_per_token_(bytes_per_token) {}

void Task::set_target_scale(const io::FeatureScale& targets) {
  if (targets.empty()) return;
  errors_are_deviations_ = targets.deviation.size() > 1;
  error_unit_ = errors_are_deviations_ ? 1 : targets.deviation[0];
}

Score Task::score(const model::LossSums& sums, double samples, bool trained) const {
  const double rows = samples * static_cast<double>(positions_);
  Score score{.loss = sums.loss / rows, .metric = sums.metric / rows, .samples = std::llround(samples)};
  if (kind_ == Kind::regression) score.metric *= error_unit_;
  if (kind_ == Kind::language) score.metric = std::exp(score.loss);
  if (kind_ == Kind::classification && !trained && classes_ >= kFewClasses) score.top5 = sums.found / rows;
  if (kind_ == Kind::labels && !trained) {
    const double there_or_said = 2 * sums.found + (rows - sums.metric);
    if (there_or_said > 0) score.f1 = 2 * sums.found / there_or_said;
  }
  score.loss = shown(score.loss);
  score.metric = shown(score.metric);
  return score;
}

const char* Task::metric_key() const noexcept { return metric_keys()[static_cast<std::size_t>(kind_)]; }

/// Of the text: nats per token, in bits, over the bytes that a token stands for.
double Task::bits_per_byte(const Score& score) const { return score.loss / std::numbers::ln2 / bytes_per_token_; }

std::vector<std::string> Task::figures(const Score& score) const {
  std::vector<std::string> figures;
  switch (kind_) {
    case Kind::classification:
      figures.push_back(fmt::format("accuracy {:.2f} %", 100 * score.metric));
      if (score.top5 >= 0) figures.push_back(fmt::format("top-5 {:.2f} %", 100 * score.top5));
      break;
    case Kind::labels:
      figures.push_back(fmt::format("label accuracy {:.2f} %", 100 * score.metric));
      if (score.f1 >= 0) figures.push_back(fmt::format("F1 {:.4f}", score.f1));
      break;
    case Kind::regression:
      figures.push_back(fmt::format("mean absolute error {:.6g}{}", score.metric,
                                    errors_are_deviations_ ? " (standard deviations)" : ""));
      break;
    case Kind::language:
      figures.push_back(fmt::format("perplexity {:.5g}", score.metric));
      if (bytes_per_token_ > 0) figures.push_back(fmt::format("bits per byte {:.4f}", bits_per_byte(score)));
      break;
  }
  return figures;
}

std::string Task::format(const Score& score) const { return fmt::format("{}", fmt::join(figures(score), "  ")); }

std::string Task::format_count(const Score& score) const {
  return counted(score.samples * positions_, is_language() ? "token" : "sample");
}

std::string Task::metric_words() const {
  std::string words = metric_key();
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string Task::format_metric(double metric) const {
  return is_share() ? fmt::format("{:.2f} %", 100 * metric) : fmt::format("{:.6g}", metric);
}

std::string Task::format_evaluation(const Score& score) const {
  return fmt::format("loss {:.6g}  {}  ({})", score.loss, format(score), format_count(score));
}

io::MetricRecord Task::record(const Score& score) const {
  io::MetricRecord record{{"loss", score.loss}, {metric_key(), score.metric}};
  if (score.top5 >= 0) record.emplace_back("top5_accuracy", score.top5);
  if (score.f1 >= 0) record.emplace_back("f1", score.f1);
  if (is_language() && bytes_per_token_ > 0) record.emplace_back("bits_per_byte", bits_per_byte(score));
  return record;
}

}  // namespace lockstep::app
