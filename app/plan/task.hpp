/// \file
/// The task and its metrics: the only file that knows which metric belongs to which kind of data.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "app/options/train_options.hpp"
#include "io/runs/metrics_log.hpp"
#include "io/shards/feature_scale.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// Loss and metric of a run, a step or an evaluation: means over samples, or over tokens for a language model.
struct Score {
  double loss = 0;       ///< without the L2 term
  double metric = 0;     ///< value of Task::metric_key()
  double top5 = -1;      ///< share of samples whose class is among the five likeliest; negative: not counted
  double accuracy = -1;  ///< mean accuracy of targets with classes beside numbers; negative: not counted
  /// Value of Task::best_key(), by which validations are compared; NaN: not defined, or not counted, as in training
  /// steps.
  double best = std::numeric_limits<double>::quiet_NaN();
  double f1 = -1;                 ///< F1 over all labels: 2 found / (present + predicted); negative: not counted
  double mean_iou = -1;           ///< masks: mean of intersection / union over occurring classes; negative: not counted
  std::vector<double> ious = {};  ///< masks: IoU of each class; NaN: it does not occur; empty: not counted
  std::vector<double> losses = {};  ///< each of several losses, without its weight
  double bits_per_byte = -1;        ///< loss of a language model per byte of the text; negative: unknown
  std::int64_t samples = 0;
};

/// Mean numbers of text bytes per token; 0: unknown.
struct BytesPerToken {
  double trained = 0, evaluated = 0;
};

/// Returns the key of a metric in metrics.jsonl; "" for BestBy::usual, whose metric depends on the task.
const char* key_of(BestBy metric) noexcept;

class Task {
 public:
  Task(model::LossKind loss, const model::Network& network, const BytesPerToken& bytes_per_token = {});

  /// Sets several losses, whose sum is the loss. `names`: a name for each, "dice" or "flags huber".
  void set_losses(const std::vector<model::LossTerm>& losses, const std::vector<std::string>& names);
  /// Returns the keys of several losses in metrics.jsonl: "loss_dice".
  const std::vector<std::string>& loss_keys() const noexcept { return loss_keys_; }
  /// True if the metric includes this column of the outputs. For numbers beside labels only the numbers count.
  bool counts(std::size_t output) const noexcept { return counted_.empty() || counted_[output]; }

  /// Sets the scale of standardised targets, so that errors are reported in the units of the data. Errors of several
  /// targets stay in standard deviations, because the targets may have different units.
  void set_target_scale(const io::FeatureScale& targets);

  /// Selects the metric that compares validations. Throws UsageError if such data have no such metric.
  void choose(BestBy by);
  BestBy best_by() const noexcept { return best_by_; }
  /// True if the chosen metric is not a sum over samples. Evaluations then compute it from all answers
  /// (answer_metric.hpp).
  bool needs_answers() const noexcept {
    return best_by_ == BestBy::balanced_accuracy || best_by_ == BestBy::f1_macro || best_by_ == BestBy::roc_auc ||
           best_by_ == BestBy::mean_iou;
  }
  /// True if each position of a sample has a class. Evaluations then count the answers for any metric.
  bool has_masks() const noexcept { return has_masks_; }
  /// True if targets are probabilities of the classes. The class of a sample is then the first one with the highest
  /// probability.
  bool has_probabilities() const noexcept { return loss_ == model::LossKind::soft_cross_entropy; }
  /// Returns the score for sums over `samples` samples. `trained`: the sums are those of a training step, which have
  /// only loss and metric. `losses`: sum of each of several losses, without its weight; empty if unknown.
  Score score(const model::LossSums& sums, double samples, bool trained, std::span<const double> losses = {}) const;
  /// Returns the score for sums over `rows` rows: positions of masks that have a class. The Dice loss is still a mean
  /// over samples.
  Score score(const model::LossSums& sums, double samples, double rows, bool trained,
              std::span<const double> losses = {}) const;
  /// Returns "accuracy", "mean_absolute_error", "perplexity" or "label_accuracy": the key of the metric in
  /// metrics.jsonl, and of validation/KEY in TensorBoard.
  const char* metric_key() const noexcept;
  /// Returns all metric keys, in the order of Kind.
  static constexpr std::array<const char*, 4> metric_keys() {
    return {"accuracy", "mean_absolute_error", "perplexity", "label_accuracy"};
  }
  /// Returns the key of the chosen metric: metric_key() unless choose() selects another one, as "f1_macro".
  const char* best_key() const noexcept;
  /// Returns the metric of a network that is always right.
  double best_possible() const noexcept { return is_share() || is_language() ? 1 : 0; }
  /// True if `a` is a better value of metric_key() than `b`.
  bool has_better_metric(double a, double b) const noexcept { return is_share() ? a > b : a < b; }
  /// True if `a` is a better value of best_key() (Score::best) than `b`.
  bool is_better(double a, double b) const noexcept;
  /// Returns the figures besides the loss: "accuracy 88.41 %" and "top-5 99.70 %", or "perplexity 6.51" and "bits per
  /// byte 2.70".
  std::vector<std::string> figures(const Score& score) const;
  /// Returns figures() in one line.
  std::string format(const Score& score) const;
  /// Returns "10,000 samples"; for a language model the number of tokens.
  std::string format_count(const Score& score) const;
  /// Name and value of the chosen metric for a table: "accuracy" and "88.41 %", "mean absolute error" and "0.3214".
  std::string metric_words() const;
  std::string format_metric(double metric) const;
  /// Returns "loss 0.3312  accuracy 88.41 %  top-5 99.70 %  (10,000 samples)".
  std::string format_evaluation(const Score& score) const;
  /// Returns loss, metric and related figures for metrics.jsonl.
  io::MetricRecord record(const Score& score) const;
  /// Returns the number of tokens or labelled positions per sample; 1 for other samples.
  std::int64_t positions() const noexcept { return positions_; }
  bool is_language() const noexcept { return kind_ == Kind::language; }
  bool has_labels() const noexcept { return kind_ == Kind::labels; }
  std::int64_t outputs() const noexcept { return classes_; }

 private:
  enum class Kind { classification, regression, language, labels };
  bool has_classes_beside() const noexcept { return kind_ == Kind::regression && has_classes_beside_; }
  bool is_share() const noexcept { return kind_ == Kind::classification || kind_ == Kind::labels; }

  double divisor(model::LossKind loss, double samples, double rows) const noexcept;

  Kind kind_;
  model::LossKind loss_;
  std::vector<model::LossTerm> losses_;
  std::vector<std::string> loss_names_, loss_keys_;
  std::vector<bool> counted_;
  bool has_classes_beside_ = false;  ///< regression: some targets are classes
  bool has_masks_;
  std::int64_t positions_;
  std::int64_t classes_;
  BytesPerToken bytes_per_token_;
  BestBy best_by_ = BestBy::usual;
  double error_unit_ = 1;  ///< error in units of the data per unit of the network
  bool errors_are_deviations_ = false;
};

}  // namespace lockstep::app
