#include "app/train/report.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <vector>

#include <fmt/format.h>

#include "app/plan/constant_predictor.hpp"
#include "app/report/figures.hpp"
#include "app/report/text_table.hpp"

namespace lockstep::app {

namespace {

constexpr double kSecondsBetweenLines = 1.0;
constexpr double kSecondsBetweenBars = 0.1;

/// Runs of more epochs show lines by the clock only, not at the ends of epochs.
constexpr std::int64_t kMaxEpochsReported = 100;

/// "2026-11-24 23:20:08 UTC".
std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text.data();
}

}  // namespace

Reporter::Reporter(Console& console, const ReportOptions& options, const WorkPlan& work, const Task& task, int world,
                   std::int64_t first_step)
    : console_(console),
      options_(options),
      work_(work),
      task_(task),
      world_(world),
      first_step_(first_step),
      last_step_(first_step) {}

void Reporter::Sums::add(const StepFigures& figures, std::int64_t made) {
  loss += figures.loss_sum;
  metric += figures.metric_sum;
  for (std::size_t i = 0; i < losses.size(); ++i) losses[i] += figures.losses[i];
  samples += figures.samples;
  steps += made;
}

Score Reporter::score_of(const Sums& sums) const {
  return task_.score({.loss = sums.loss, .metric = sums.metric}, sums.samples, true, sums.losses);
}

bool Reporter::is_due(const StepFigures& figures) const {
  const auto passed = [&](const Interval& every) { return every.lies_between(last_step_, figures.step); };
  if (figures.step == work_.total_steps) return true;
  if (options_.every > 0) return passed({.steps = options_.every});
  const bool few_epochs = work_.total_steps <= kMaxEpochsReported * work_.steps_per_epoch;
  return since_line_.seconds() >= kSecondsBetweenLines ||
         (few_epochs && passed({.steps = work_.steps_per_epoch, .shift = work_.epoch_shift}));
}

bool Reporter::collect(const StepFigures& figures, const TimeSplit& split) {
  interval_.add(figures, figures.step - last_step_);
  since_validation_.add(figures, figures.step - last_step_);
  const bool due = is_due(figures);
  last_step_ = figures.step;
  if (due || since_bar_.seconds() < kSecondsBetweenBars) return due;
  since_bar_.lap();
  if (!console_.shows_progress()) return false;
  const double seconds = std::max(1e-9, split.total - interval_start_.total);
  console_.progress(
      static_cast<double>(figures.step) / static_cast<double>(work_.total_steps),
      fmt::format("step {}/{}  loss {:.4f}  {} samples/s", figures.step, work_.total_steps, score_of(interval_).loss,
                  with_commas(static_cast<std::int64_t>(interval_.samples / seconds))));
  return false;
}

void Reporter::start(std::int64_t step, double epoch) {
  check_owner();
  io::MetricRecord record{
      {"kind", "start"}, {"step", step}, {"epoch", epoch}, {"ranks", std::int64_t{world_}}, {"time", time_now()}};
  if (!validation_data_.empty()) record.emplace_back("validation_data", validation_data_);
  if (validation_files_ != validation_data_) record.emplace_back("validation_files", validation_files_);
  write(record);
}

void Reporter::report(const StepFigures& figures, const TimeSplit& split, double l2_loss) {
  check_owner();
  const TimeSplit part = split - interval_start_;
  const double seconds = std::max(1e-9, part.total);
  const Score score = score_of(interval_);
  const double rate = interval_.samples / seconds;
  const double positions = task_.is_language() ? static_cast<double>(task_.positions()) : 1;
  // The remaining steps include their share of evaluations and checkpoints.
  const double left = since_start_.seconds() / static_cast<double>(figures.step - first_step_) *
                      static_cast<double>(work_.total_steps - figures.step);
  const char* const counted_in = task_.is_language() ? "tokens" : "samples";
  std::vector<LineField> line{
      {fmt::format("step {:>{}}/{}", figures.step, fmt::formatted_size("{}", work_.total_steps), work_.total_steps), 9,
       LineStyle::strong},
      {fmt::format("epoch {:.2f}", figures.epoch), 6},
      {fmt::format("loss {:.5f}", score.loss), 8}};
  if (l2_loss != 0) line.push_back({fmt::format("L2 {:.4g}", l2_loss), 4});
  line.push_back({task_.format(score), 7});
  line.push_back({fmt::format("lr {:.3g}", figures.learning_rate), 2});
  line.push_back({fmt::format("gradient norm {:.3g}", shown(figures.gradient_norm)), 3});
  line.push_back({fmt::format("{} {}/s", with_commas(static_cast<std::int64_t>(rate * positions)), counted_in), 5});
  line.push_back({fmt::format("({}/rank)", with_commas(static_cast<std::int64_t>(rate * positions / world_))), 1});
  line.push_back({format_split(part), 0, LineStyle::quiet});
  line.push_back({fmt::format("left {}", format_duration(left)), 6, LineStyle::quiet});
  console_.info(line);
  io::MetricRecord record{{"kind", "train"}, {"step", figures.step}, {"epoch", figures.epoch}};
  for (auto& entry : task_.record(score)) record.push_back(std::move(entry));
  if (l2_loss != 0) record.emplace_back("l2_loss", l2_loss);
  record.insert(record.end(), {{"learning_rate", figures.learning_rate},
                               {"gradient_norm", figures.gradient_norm},
                               {"samples_per_second", rate},
                               {"samples_per_second_per_rank", rate / world_},
                               {"step_seconds", seconds / static_cast<double>(interval_.steps)},
                               {"input_seconds", part.input},
                               {"compute_seconds", part.compute},
                               {"communication_seconds", part.communication},
                               {"other_seconds", std::max(0.0, part.other())}});
  if (task_.is_language()) record.emplace_back("tokens_per_second", rate * positions);
  write(record);
  scalar("train/loss", figures.step, score.loss);
  for (std::size_t i = 0; i < score.losses.size(); ++i) {
    scalar(fmt::format("train/{}", task_.loss_keys()[i]), figures.step, score.losses[i]);
  }
  if (l2_loss != 0) scalar("train/l2_loss", figures.step, l2_loss);
  scalar(fmt::format("train/{}", task_.metric_key()), figures.step, score.metric);
  scalar("train/learning_rate", figures.step, figures.learning_rate);
  scalar("train/gradient_norm", figures.step, figures.gradient_norm);
  scalar("speed/samples_per_second", figures.step, rate);
  if (files_.tensorboard) files_.tensorboard->flush();
  if (!validated_) seen_ = score, seen_at_ = figures.step;
  interval_ = {};
  interval_start_ = split;
  since_line_.lap();
}

void Reporter::evaluation(std::int64_t step, double epoch, const Score& score, bool averaged,
                          const EvaluationTime& time) {
  check_owner();
  const bool better = !best_ || task_.is_better(score.best, *best_);
  if (better) best_ = score.best;
  const LineStyle style = better ? LineStyle::good : LineStyle::plain;
  std::vector<LineField> line{
      {fmt::format("validation at step {}{}: loss {:.6g}", step, averaged ? " (averaged weights)" : "", score.loss), 9,
       style}};
  for (const std::string& figure : task_.figures(score)) line.push_back({figure, line.size() == 1 ? 8 : 3, style});
  line.push_back({fmt::format("({})", task_.format_count(score)), 2, style});
  line.push_back({fmt::format("in {:.2f} s", time.seconds), 0, LineStyle::quiet});
  io::MetricRecord record{{"kind", "validation"}, {"step", step}, {"epoch", epoch}};
  for (auto& entry : task_.record(score)) record.push_back(std::move(entry));
  record.emplace_back("samples", score.samples);
  if (!time.counts) record.emplace_back(kNotCounted, std::int64_t{1});
  if (console_.speaks()) history_ += io::to_json_line(record) + "\n";  // no times: equal runs have equal checkpoints
  record.emplace_back("seconds", time.seconds);
  record.emplace_back("training_seconds", time.training);
  if (since_validation_.steps > 0) {  // false if this launch has made no steps since
    seen_ = score_of(since_validation_);
    seen_at_ = step;
    line.push_back({fmt::format("training in the {}: loss {:.6g}  {}",
                                since_validation_.steps == 1 ? std::string("step before")
                                                             : with_commas(since_validation_.steps) + " steps before",
                                seen_->loss, task_.format(*seen_)),
                    1});
    for (auto& [key, value] : task_.record(*seen_)) record.emplace_back("training_" + key, value);
    since_validation_ = {};
  }
  if (constant_) add_constant(*constant_, task_, record);
  validated_ = true;
  console_.info(line);
  write(record);
  scalar("validation/loss", step, score.loss);
  for (std::size_t i = 0; i < score.losses.size(); ++i) {
    scalar(fmt::format("validation/{}", task_.loss_keys()[i]), step, score.losses[i]);
  }
  scalar(fmt::format("validation/{}", task_.metric_key()), step, score.metric);
  if (score.top5 >= 0) scalar("validation/top5_accuracy", step, score.top5);
  if (score.f1 >= 0) scalar("validation/f1", step, score.f1);
  if (score.mean_iou >= 0) scalar("validation/mean_iou", step, score.mean_iou);
  if (task_.needs_answers() && task_.best_by() != BestBy::mean_iou)
    scalar(fmt::format("validation/{}", task_.best_key()), step, score.best);
  if (files_.tensorboard) files_.tensorboard->flush();
}

std::string Reporter::summary() const {
  std::vector<std::vector<std::string>> rows{{"", "step", "loss", task_.metric_words()}};
  const auto add = [&](const char* name, std::int64_t step, double loss, double metric) {
    rows.push_back({name, step < 0 ? "" : with_commas(step), fmt::format("{:.6g}", loss),
                    std::isnan(metric) ? "-" : task_.format_metric(metric)});
  };
  if (seen_) add("training", seen_at_, seen_->loss, seen_->best);
  const auto losses = io::numbers_by_step(history_, "validation", "loss");
  const auto metrics = io::numbers_by_step(history_, "validation", task_.best_key());
  if (!metrics.empty() && losses.size() == metrics.size()) {
    const auto best = std::min_element(metrics.begin(), metrics.end(), [&](const auto& a, const auto& b) {
      const bool equal = !task_.is_better(a.second, b.second) && !task_.is_better(b.second, a.second);
      return equal ? losses.at(a.first) < losses.at(b.first) : task_.is_better(a.second, b.second);
    });
    const auto& last = *metrics.rbegin();
    add("validation", last.first, losses.at(last.first), last.second);
    add("the best", best->first, losses.at(best->first), best->second);
    if (constant_) {
      add("a constant", -1, constant_->loss, constant_->best);
      if (!std::isfinite(constant_->loss)) rows.back()[2] = "-";
    }
  }
  return rows.size() > 1 ? format_table(rows, {1, 2, 3}) : "";
}

void Reporter::checkpoint(const WrittenCheckpoint& written) {
  console_.info(fmt::format("checkpoint {}  in {:.2f} s, {:.2f} s of them without training", written.file.string(),
                            written.seconds, written.stall));
  write({{"kind", "checkpoint"},
         {"step", written.step},
         {"file", written.file.filename().string()},
         {"seconds", written.seconds},
         {"stall_seconds", written.stall}});
}

void Reporter::add_event(const io::MetricRecord& record) {
  check_owner();
  if (console_.speaks()) history_ += io::to_json_line(record) + "\n";
  write(record);
}

void Reporter::end(std::int64_t step, const std::string& how) {
  check_owner();
  write({{"kind", "end"}, {"step", step}, {"how", how}});
}

void Reporter::histogram(const std::string& tag, std::int64_t step, std::span<const float> values) {
  if (files_.tensorboard) files_.tensorboard->histogram(tag, step, values);
}

/// Throws if another process owns the folder now. Call before the first write of each line, so that two jobs in one
/// folder do not mix their lines.
void Reporter::check_owner() const {
  if (files_.still_owner) files_.still_owner();
}

void Reporter::write(const io::MetricRecord& record) {
  if (files_.metrics) files_.metrics->write(record);
}

void Reporter::scalar(const std::string& tag, std::int64_t step, double value) {
  if (files_.tensorboard) files_.tensorboard->scalar(tag, step, value);
}

}  // namespace lockstep::app
