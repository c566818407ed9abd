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

/// Loss and metric of a run, a step or an evaluation; means over samples, or over the tokens of a language model.
struct Score {
  double loss = 0;       ///< without the L2 term
  double metric = 0;     ///< value of Task::metric_key()
  double top5 = -1;      ///< share of samples whose class is among the five likeliest; negative: not counted
  double accuracy = -1;  ///< mean over the classes beside numbers; negative: not counted
  /// Value of Task::best_key(), which compares validations; NaN: not counted, as in training steps, or not defined.
  double best = std::numeric_limits<double>::quiet_NaN();
  double f1 = -1;        ///< F1 of all labels together: 2 found / (present + predicted); negative: not counted
  double mean_iou = -1;  ///< masks: mean over the classes that occur of intersection / union; negative: not counted
  std::vector<double> ious = {};    ///< masks: of each class; NaN for one that does not occur; empty: not counted
  std::vector<double> losses = {};  ///< each of several losses, without its weight
  std::int64_t samples = 0;
};

/// Key in metrics.jsonl; "" for BestBy::usual, which depends on the task.
const char* key_of(BestBy metric) noexcept;

class Task {
 public:
  /// bytes_per_token: length of the text behind a token; 0: unknown.
  Task(model::LossKind loss, const model::Network& network, double bytes_per_token);

  /// Several losses: their sum is the loss. names: of each, "dice" or "flags huber".
  void set_losses(const std::vector<model::LossTerm>& losses, const std::vector<std::string>& names);
  /// Keys of several losses in metrics.jsonl: "loss_dice".
  const std::vector<std::string>& loss_keys() const noexcept { return loss_keys_; }
  /// True if the metric looks at this column of the outputs: of numbers beside labels only those of the numbers.
  bool counts(std::size_t output) const noexcept { return counted_.empty() || counted_[output]; }

  /// Errors are reported in the units of the data if the network learns standardised targets. Several targets may have
  /// several units, so their errors stay in standard deviations.
  void set_target_scale(const io::FeatureScale& targets);

  /// Selects the metric that compares validations. Throws UsageError if such data have no such metric.
  void choose(BestBy by);
  BestBy best_by() const noexcept { return best_by_; }
  /// True if the metric is no sum over samples: evaluations compute it from the answers (answer_metric.hpp).
  bool needs_answers() const noexcept {
    return best_by_ == BestBy::balanced_accuracy || best_by_ == BestBy::f1_macro || best_by_ == BestBy::roc_auc ||
           best_by_ == BestBy::mean_iou;
  }
  /// True if each position of a sample has a class: evaluations count the answers, whatever metric is chosen.
  bool has_masks() const noexcept { return has_masks_; }
  /// True if targets are probabilities of the classes: the class of a sample is the first likeliest.
  bool has_probabilities() const noexcept { return loss_ == model::LossKind::soft_cross_entropy; }
  /// losses: of several losses the sum of each without its weight, if they are known.
  /// The score from sums over `samples` samples. `trained`: the sums of a training step, which have loss and metric
  /// only.
  Score score(const model::LossSums& sums, double samples, bool trained, std::span<const double> losses = {}) const;
  /// The same if the sums are over `rows` rows, as those of masks some of whose positions have no class. The Dice loss
  /// stays one of samples.
  Score score(const model::LossSums& sums, double samples, double rows, bool trained,
              std::span<const double> losses = {}) const;
  /// "accuracy", "mean_absolute_error", "perplexity" or "label_accuracy": in metrics.jsonl, and as validation/KEY in
  /// TensorBoard.
  const char* metric_key() const noexcept;
  /// All metric keys, in the order of the kinds.
  static constexpr std::array<const char*, 4> metric_keys() {
    return {"accuracy", "mean_absolute_error", "perplexity", "label_accuracy"};
  }
  /// Key of the chosen metric, which is metric_key() unless choose() selects another: "f1_macro".
  const char* best_key() const noexcept;
  /// The metric of a network that is always right.
  double best_possible() const noexcept { return is_share() || is_language() ? 1 : 0; }
  /// Compares two values of metric_key().
  bool has_better_metric(double a, double b) const noexcept { return is_share() ? a > b : a < b; }
  /// Compares two values of best_key(), Score::best.
  bool is_better(double a, double b) const noexcept;
  /// "accuracy 88.41 %" and "top-5 99.70 %", "perplexity 6.51" and "bits per byte 2.70": without the loss.
  std::vector<std::string> figures(const Score& score) const;
  /// The same in one line.
  std::string format(const Score& score) const;
  /// "10,000 samples"; for a language model a number of tokens.
  std::string format_count(const Score& score) const;
  /// "accuracy" and "88.41 %", "mean absolute error" and "0.3214": the chosen metric, for a table.
  std::string metric_words() const;
  std::string format_metric(double metric) const;
  /// "loss 0.3312  accuracy 88.41 %  top-5 99.70 %  (10,000 samples)"
  std::string format_evaluation(const Score& score) const;
  /// Loss, metric and related figures, for metrics.jsonl.
  io::MetricRecord record(const Score& score) const;
  /// Tokens or labelled positions per sample; 1 for other samples.
  std::int64_t positions() const noexcept { return positions_; }
  bool is_language() const noexcept { return kind_ == Kind::language; }
  bool has_labels() const noexcept { return kind_ == Kind::labels; }
  std::int64_t outputs() const noexcept { return classes_; }

 private:
  enum class Kind { classification, regression, language, labels };
  bool has_classes_beside() const noexcept { return kind_ == Kind::regression && has_classes_beside_; }
  bool is_share() const noexcept { return kind_ == Kind::classification || kind_ == Kind::labels; }
  double bits_per_byte(const Score& score) const;

  double divisor(model::LossKind loss, double samples, double rows) const noexcept;

  Kind kind_;
  model::LossKind loss_;
  std::vector<model::LossTerm> losses_;
  std::vector<std::string> loss_names_, loss_keys_;
  std::vector<bool> counted_;
  bool has_classes_beside_ = false;  ///< numbers
  bool has_masks_;
  std::int64_t positions_;
  std::int64_t classes_;
  double bytes_per_token_;
  BestBy best_by_ = BestBy::usual;
  double error_unit_ = 1;  ///< the data's unit per unit of the network's errors
  bool errors_are_deviations_ = false;
};

}  // namespace lockstep::app
