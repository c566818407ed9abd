#include "app/train/report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "app/report/figures.hpp"

namespace lockstep::app {

namespace {

constexpr double kSecondsBetweenLines = 1.0;
constexpr double kSecondsBetweenBars = 0.1;

model::LossSums sums(const StepFigures& figures) { return {.loss = figures.loss_sum, .metric = figures.metric_sum}; }

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

bool Reporter::collect(const StepFigures& figures, const TimeSplit& split) {
  interval_.loss_sum += figures.loss_sum;
  interval_.metric_sum += figures.metric_sum;
  interval_.samples += figures.samples;
  interval_steps_ += figures.step - last_step_;
  const bool last = figures.step == work_.total_steps;
  const bool due = options_.every > 0 ? figures.step / options_.every > last_step_ / options_.every
                                      : since_line_.seconds() >= kSecondsBetweenLines;
  last_step_ = figures.step;
  if (!due && !last && since_bar_.seconds() >= kSecondsBetweenBars) {
    since_bar_.lap();
    if (!console_.shows_progress()) return false;
    const double seconds = std::max(1e-9, split.total - interval_start_.total);
    console_.progress(static_cast<double>(figures.step) / static_cast<double>(work_.total_steps),
                      fmt::format("step {}/{}  loss {:.4f}  {} samples/s", figures.step, work_.total_steps,
                                  task_.score(sums(interval_), interval_.samples, true).loss,
                                  with_commas(static_cast<std::int64_t>(interval_.samples / seconds))));
  }
  return due || last;
}

void Reporter::report(const StepFigures& figures, const TimeSplit& split, double l2_loss) {
  check_owner();
  const TimeSplit part = split - interval_start_;
  const double seconds = std::max(1e-9, part.total);
  const Score score = task_.score(sums(interval_), interval_.samples, true);
  const double loss = score.loss + l2_loss;
  const double rate = interval_.samples / seconds;
  const auto positions = static_cast<double>(task_.positions());
  // Evaluations and checkpoints of the steps to come take their time, too.
  const double left = since_start_.seconds() / static_cast<double>(figures.step - first_step_) *
                      static_cast<double>(work_.total_steps - figures.step);
  console_.info(fmt::format(
      "step {:>{}}/{}  epoch {:.2f}  loss {:.5f}  {}  lr {:.3g}  gradient norm {:.3g}  {} {}/s ({}/rank)  {}  "
      "left {}",
      figures.step, fmt::formatted_size("{}", work_.total_steps), work_.total_steps, figures.epoch, loss,
      task_.format(score), figures.learning_rate, figures.gradient_norm,
      with_commas(static_cast<std::int64_t>(rate * positions)), task_.is_language() ? "tokens" : "samples",
      with_commas(static_cast<std::int64_t>(rate * positions / world_)), format_split(part), format_duration(left)));
  Score with_l2 = score;
  with_l2.loss = loss;
  io::MetricRecord record{{"kind", "train"}, {"step", figures.step}, {"epoch", figures.epoch}};
  for (auto& entry : task_.record(with_l2)) record.push_back(std::move(entry));
  record.insert(record.end(), {{"learning_rate", figures.learning_rate},
                               {"gradient_norm", figures.gradient_norm},
                               {"samples_per_second", rate},
                               {"samples_per_second_per_rank", rate / world_},
                               {"step_seconds", seconds / static_cast<double>(interval_steps_)},
                               {"input_seconds", part.input},
                               {"compute_seconds", part.compute},
                               {"communication_seconds", part.communication},
                               {"other_seconds", std::max(0.0, part.other())}});
  if (task_.is_language()) record.emplace_back("tokens_per_second", rate * positions);
  write(record);
  scalar("train/loss", figures.step, loss);
  scalar(fmt::format("train/{}", task_.metric_key()), figures.step, score.metric);
  scalar("train/learning_rate", figures.step, figures.learning_rate);
  scalar("train/gradient_norm", figures.step, figures.gradient_norm);
  scalar("speed/samples_per_second", figures.step, rate);
  if (logs_.tensorboard) logs_.tensorboard->flush();
  interval_ = {};
  interval_steps_ = 0;
  interval_start_ = split;
  since_line_.lap();
}

void Reporter::evaluation(std::int64_t step, double epoch, const Score& score, bool averaged,
                          const EvaluationTime& time) {
  check_owner();
  console_.info(fmt::format("validation at step {}{}: {}  in {:.2f} s", step, averaged ? " (averaged weights)" : "",
                            task_.format_evaluation(score), time.seconds));
  io::MetricRecord record{{"kind", "validation"}, {"step", step}, {"epoch", epoch}};
  for (auto& entry : task_.record(score)) record.push_back(std::move(entry));
  record.emplace_back("samples", score.samples);
  if (console_.speaks()) history_ += io::to_json_line(record) + "\n";  // nothing of the clock: equal runs, equal bytes
  record.emplace_back("seconds", time.seconds);
  record.emplace_back("training_seconds", time.training);
  write(record);
  scalar("validation/loss", step, score.loss);
  scalar(fmt::format("validation/{}", task_.metric_key()), step, score.metric);
  if (score.top5 >= 0) scalar("validation/top5_accuracy", step, score.top5);
  if (logs_.tensorboard) logs_.tensorboard->flush();
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

void Reporter::note(const io::MetricRecord& record) {
  check_owner();
  if (console_.speaks()) history_ += io::to_json_line(record) + "\n";
  write(record);
}

void Reporter::end(std::int64_t step, const std::string& how) {
  check_owner();
  write({{"kind", "end"}, {"step", step}, {"how", how}});
}

void Reporter::histogram(const std::string& tag, std::int64_t step, std::span<const float> values) {
  if (logs_.tensorboard) logs_.tensorboard->histogram(tag, step, values);
}

/// Before the first write of each line: two jobs in one folder must not mix theirs.
void Reporter::check_owner() const {
  if (logs_.still_owner) logs_.still_owner();
}

void Reporter::write(const io::MetricRecord& record) {
  if (logs_.metrics) logs_.metrics->write(record);
}

void Reporter::scalar(const std::string& tag, std::int64_t step, double value) {
  if (logs_.tensorboard) logs_.tensorboard->scalar(tag, step, value);
}

}  // namespace lockstep::app
