#include "app/plan/task.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/choices.hpp"
#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

/// Minimum number of classes for top-5 accuracy, which carries no information for fewer classes.
constexpr std::int64_t kFewClasses = 10;

/// Key of the accuracy of classes beside numbers; the metric of such a task is an error of the numbers.
constexpr const char* kClassAccuracy = "class_accuracy";

}  // namespace

const char* key_of(BestBy metric) noexcept {
  switch (metric) {
    case BestBy::usual:
      break;
    case BestBy::loss:
      return "loss";
    case BestBy::accuracy:
      return "accuracy";
    case BestBy::balanced_accuracy:
      return "balanced_accuracy";
    case BestBy::f1:
      return "f1";
    case BestBy::f1_macro:
      return "f1_macro";
    case BestBy::roc_auc:
      return "roc_auc";
    case BestBy::mean_absolute_error:
      return "mean_absolute_error";
    case BestBy::mean_iou:
      return "mean_iou";
  }
  return "";
}

Task::Task(model::LossKind loss, const model::Network& network, const BytesPerToken& bytes_per_token)
    : kind_(network.sample_shape().tokens                   ? Kind::language
            : model::chooses_class(loss)                    ? Kind::classification
            : loss == model::LossKind::binary_cross_entropy ? Kind::labels
                                                            : Kind::regression),
      loss_(loss),
      has_masks_(!network.sample_shape().grid.empty() && model::chooses_class(loss)),
      positions_(network.positions()),
      classes_(network.sample_shape().outputs),
      bytes_per_token_(bytes_per_token) {}

void Task::set_target_scale(const io::FeatureScale& targets) {
  if (targets.empty()) return;
  errors_are_deviations_ = targets.deviation.size() > 1;
  error_unit_ = errors_are_deviations_ ? 1 : targets.deviation[0];
}

void Task::choose(BestBy by) {
  using enum BestBy;
  const bool has_classes = kind_ == Kind::classification;
  const bool of_classes = by == accuracy || by == balanced_accuracy || by == f1_macro;
  const bool fits = by == usual || by == loss || (by == mean_absolute_error && kind_ == Kind::regression) ||
                    (by == accuracy && has_classes_beside()) ||
                    (has_classes && (of_classes || by == (has_masks_ ? mean_iou : roc_auc))) ||
                    (has_labels() && (by == f1 || by == f1_macro || by == roc_auc));
  if (!fits) {
    std::vector<std::string> others{"auto", "loss"};
    if (has_classes) others.insert(others.end(), {"accuracy", "balanced-accuracy"});
    if (has_labels()) others.emplace_back("f1");
    if (has_classes || has_labels()) others.emplace_back("f1-macro");
    if ((has_classes && !has_masks_) || has_labels()) others.emplace_back("roc-auc");
    if (has_masks_) others.emplace_back("mean-iou");
    if (kind_ == Kind::regression) others.emplace_back("mean-absolute-error");
    if (has_classes_beside()) others.emplace_back("accuracy");
    throw UsageError(fmt::format("--best-by {} is no metric of {}: give {}", word_of(by),
                                 has_masks_                  ? "masks"
                                 : has_classes               ? "classes"
                                 : has_labels()              ? "labels, any of which a sample has"
                                 : kind_ == Kind::regression ? "numbers to predict"
                                                             : "text",
                                 fmt::join(others, ", ")));
  }
  best_by_ = by == usual && has_masks_ ? mean_iou : by;
}

void Task::set_losses(const std::vector<model::LossTerm>& losses, const std::vector<std::string>& names) {
  losses_ = losses;
  loss_names_ = names;
  loss_keys_.clear();
  for (const std::string& name : names) {
    std::string key = "loss_" + name;
    std::ranges::replace_if(
        key, [](char c) { return c == ' ' || c == '-'; }, '_');
    loss_keys_.push_back(std::move(key));
  }
  counted_.assign(losses.empty() ? 0 : static_cast<std::size_t>(classes_), false);
  has_classes_beside_ =
      std::ranges::any_of(losses, [](const model::LossTerm& term) { return term.share.accuracy > 0; });
  for (const model::LossTerm& term : losses) {
    if (term.share.metric == 0) continue;
    std::fill_n(counted_.begin() + static_cast<std::ptrdiff_t>(term.first), term.columns, true);
  }
}

/// Returns the divisor of the sum of a loss. The Dice loss is a mean over samples, but its sum counts each position.
double Task::divisor(model::LossKind loss, double samples, double rows) const noexcept {
  return loss == model::LossKind::soft_dice ? samples * static_cast<double>(positions_) : rows;
}

Score Task::score(const model::LossSums& sums, double samples, bool trained, std::span<const double> losses) const {
  return score(sums, samples, samples * static_cast<double>(positions_), trained, losses);
}

Score Task::score(const model::LossSums& sums, double samples, double rows, bool trained,
                  std::span<const double> losses) const {
  Score score{.loss = sums.loss / divisor(loss_, samples, rows),
              .metric = sums.metric / rows,
              .samples = std::llround(samples)};
  if (!losses.empty() && !losses_.empty()) score.loss = 0;
  for (std::size_t i = 0; i < std::min(losses.size(), losses_.size()); ++i) {
    const double own = losses[i] / divisor(losses_[i].kind, samples, rows);
    score.loss += losses_[i].share.loss * own;
    score.losses.push_back(shown(own));
  }
  if (kind_ == Kind::regression) score.metric *= error_unit_;
  if (kind_ == Kind::language) {
    score.metric = std::exp(score.loss);
    const double bytes = trained ? bytes_per_token_.trained : bytes_per_token_.evaluated;
    if (bytes > 0) score.bits_per_byte = score.loss / std::numbers::ln2 / bytes;
  }
  if (has_classes_beside() && !trained) score.accuracy = sums.found / rows;
  if (!needs_answers() && best_by_ != BestBy::f1) score.best = best_by_ == BestBy::loss ? score.loss : score.metric;
  if (has_classes_beside() && best_by_ == BestBy::accuracy) {
    score.best = trained ? std::numeric_limits<double>::quiet_NaN() : score.accuracy;
  }
  if (kind_ == Kind::classification && !has_masks_ && !trained && classes_ >= kFewClasses)
    score.top5 = sums.found / rows;
  if (kind_ == Kind::labels && !trained) {
    const double there_or_said = 2 * sums.found + (rows - sums.metric);
    if (there_or_said > 0) score.f1 = 2 * sums.found / there_or_said;
    if (best_by_ == BestBy::f1) score.best = std::max(0.0, score.f1);
  }
  score.loss = shown(score.loss);
  score.metric = shown(score.metric);
  return score;
}

const char* Task::metric_key() const noexcept { return metric_keys()[static_cast<std::size_t>(kind_)]; }

const char* Task::best_key() const noexcept {
  if (has_classes_beside() && best_by_ == BestBy::accuracy) return kClassAccuracy;
  const char* const key = key_of(best_by_);
  return *key != '\0' ? key : metric_key();
}

bool Task::is_better(double a, double b) const noexcept {
  const bool is_accuracy = best_by_ == BestBy::accuracy;
  return needs_answers() || is_accuracy || (is_share() && best_by_ != BestBy::loss) ? a > b : a < b;
}

std::vector<std::string> Task::figures(const Score& score) const {
  std::vector<std::string> figures;
  for (std::size_t i = 0; i < score.losses.size(); ++i) {
    figures.push_back(fmt::format("{} {:.6g}", loss_names_[i], score.losses[i]));
  }
  switch (kind_) {
    case Kind::classification:
      figures.push_back(fmt::format("accuracy {:.2f} %", 100 * score.metric));
      if (score.top5 >= 0) figures.push_back(fmt::format("top-5 {:.2f} %", 100 * score.top5));
      if (score.mean_iou >= 0) figures.push_back(fmt::format("mean IoU {:.4f}", score.mean_iou));
      break;
    case Kind::labels:
      figures.push_back(fmt::format("label accuracy {:.2f} %", 100 * score.metric));
      if (score.f1 >= 0) figures.push_back(fmt::format("F1 {:.4f}", score.f1));
      break;
    case Kind::regression:
      figures.push_back(fmt::format("mean absolute error {:.6g}{}", score.metric,
                                    errors_are_deviations_ ? " (standard deviations)" : ""));
      if (score.accuracy >= 0) figures.push_back(fmt::format("class accuracy {:.2f} %", 100 * score.accuracy));
      break;
    case Kind::language:
      figures.push_back(fmt::format("perplexity {:.5g}", score.metric));
      if (score.bits_per_byte >= 0) figures.push_back(fmt::format("bits per byte {:.4f}", score.bits_per_byte));
      break;
  }
  if (!std::isnan(score.best)) {
    if (best_by_ == BestBy::balanced_accuracy)
      figures.push_back(fmt::format("balanced accuracy {:.2f} %", 100 * score.best));
    if (best_by_ == BestBy::f1_macro) figures.push_back(fmt::format("F1 (macro) {:.4f}", score.best));
    if (best_by_ == BestBy::roc_auc) figures.push_back(fmt::format("ROC AUC {:.4f}", score.best));
  }
  return figures;
}

std::string Task::format(const Score& score) const { return fmt::format("{}", fmt::join(figures(score), "  ")); }

std::string Task::format_count(const Score& score) const {
  return is_language() ? counted(score.samples * positions_, "token") : counted(score.samples, "sample");
}

std::string Task::metric_words() const {
  if (best_by_ == BestBy::f1) return "F1";
  if (best_by_ == BestBy::f1_macro) return "F1 (macro)";
  if (best_by_ == BestBy::roc_auc) return "ROC AUC";
  if (best_by_ == BestBy::mean_iou) return "mean IoU";
  std::string words = best_key();
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

std::string Task::format_metric(double metric) const {
  const bool share = best_by_ == BestBy::balanced_accuracy || best_by_ == BestBy::accuracy ||
                     (is_share() && best_key() == std::string_view(metric_key()));
  return share ? fmt::format("{:.2f} %", 100 * metric) : fmt::format("{:.6g}", metric);
}

std::string Task::format_evaluation(const Score& score) const {
  return fmt::format("loss {:.6g}  {}  ({})", score.loss, format(score), format_count(score));
}

io::MetricRecord Task::record(const Score& score) const {
  io::MetricRecord record{{"loss", score.loss}};
  for (std::size_t i = 0; i < score.losses.size(); ++i) record.emplace_back(loss_keys_[i], score.losses[i]);
  record.emplace_back(metric_key(), score.metric);
  if (score.top5 >= 0) record.emplace_back("top5_accuracy", score.top5);
  if (score.accuracy >= 0) record.emplace_back(kClassAccuracy, score.accuracy);
  if (score.f1 >= 0) record.emplace_back("f1", score.f1);
  if (score.mean_iou >= 0) record.emplace_back(key_of(BestBy::mean_iou), score.mean_iou);
  for (std::size_t i = 0; i < score.ious.size(); ++i) {
    if (!std::isnan(score.ious[i])) record.emplace_back(fmt::format("iou_{}", i), score.ious[i]);
  }
  if (needs_answers() && best_by_ != BestBy::mean_iou && !std::isnan(score.best))
    record.emplace_back(best_key(), score.best);
  if (score.bits_per_byte >= 0) record.emplace_back("bits_per_byte", score.bits_per_byte);
  return record;
}

}  // namespace lockstep::app
