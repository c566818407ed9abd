#include "app/bench/agree_report.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "app/report/chart.hpp"
#include "app/report/figures.hpp"
#include "app/report/statistics.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double last_loss(const AgreeTraining& training) {
  return training.diverged || training.validations.empty() ? kNever : training.validations.back().loss;
}

double seconds_to_target(const AgreeTraining& training, const AgreeSetting& setting) {
  const AgreeValidation* const there = reached(training, setting);
  return there == nullptr ? kNever : there->seconds;
}

/// Rank of a training: less is better; the second number breaks ties.
std::array<double, 2> merit(const AgreeTraining& training, const AgreeSetting& setting) {
  return {setting.target ? seconds_to_target(training, setting) : last_loss(training), last_loss(training)};
}

std::vector<const AgreeTraining*> of_mode(const std::vector<AgreeTraining>& trainings, std::size_t mode) {
  std::vector<const AgreeTraining*> its;
  for (const AgreeTraining& training : trainings) {
    if (training.mode == mode) its.push_back(&training);
  }
  return its;
}

/// The median training in the order of merit; `trainings` not empty.
const AgreeTraining* middle_of(std::vector<const AgreeTraining*> trainings, const AgreeSetting& setting) {
  std::ranges::stable_sort(trainings, [&](const AgreeTraining* a, const AgreeTraining* b) {
    return merit(*a, setting) < merit(*b, setting);
  });
  return trainings[trainings.size() / 2];
}

/// "3.71 (3.5 to 4.02)"; the value alone if there is only one.
std::string spread(std::vector<double> values, int digits) {
  const auto [least, most] = std::ranges::minmax(values);
  const auto text = [&](double value) {
    return value == kNever ? std::string("never") : fmt::format("{:.{}f}", value, digits);
  };
  const std::string middle = text(median(values));
  return values.size() == 1 ? middle : fmt::format("{} ({} to {})", middle, text(least), text(most));
}

std::string row(const AgreeSetting& setting, std::size_t mode, const std::vector<const AgreeTraining*>& its,
                double first_merit) {
  std::vector<double> merits, samples, losses, metrics;
  for (const AgreeTraining* const training : its) {
    merits.push_back(merit(*training, setting)[0]);
    const AgreeValidation* const there = setting.target ? reached(*training, setting) : nullptr;
    samples.push_back(there != nullptr ? there->samples : kNever);
    losses.push_back(last_loss(*training));
    metrics.push_back(training->validations.empty() ? kNever : training->validations.back().metric);
  }
  std::vector<double> seconds;
  for (const AgreeTraining* const training : its) {
    seconds.push_back(training->validations.empty() ? kNever : training->validations.back().seconds);
  }
  const double own = median(merits);
  const std::string ratio = own == kNever || first_merit == kNever ? "-" : fmt::format("{:.3f}", own / first_merit);
  const std::string head = fmt::format("{:<30}  {:>8.3g}", setting.modes[mode], its.front()->rate);
  if (setting.target) {
    return fmt::format("{}  {:>24}  {:>12}  {:>7}", head, spread(merits, 2),
                       median(samples) == kNever ? "never" : with_commas(static_cast<std::int64_t>(median(samples))),
                       ratio);
  }
  return fmt::format("{}  {:>27}  {:>10.5g}  {:>9.2f}  {:>7}", head, spread(losses, 4), median(metrics),
                     median(seconds), ratio);
}

io::MetricRecord record_of(const AgreeTraining& training, const AgreeValidation& at, const AgreeSetting& setting,
                           bool chosen) {
  return {{"bench", "agree"},
          {"mode", setting.modes[training.mode]},
          {"learning_rate", training.rate},
          {"seed", training.seed},
          {"chosen", chosen ? std::int64_t{1} : std::int64_t{0}},
          {"step", at.step},
          {"samples", at.samples},
          {"seconds", at.seconds},
          {"loss", at.loss},
          {setting.metric, at.metric}};
}

bool is_among(const AgreeTraining& training, const std::vector<AgreeTraining>& chosen) {
  return std::ranges::any_of(chosen, [&](const AgreeTraining& other) {
    return other.mode == training.mode && other.rate == training.rate && other.seed == training.seed;
  });
}

/// Calls visit(training, validation, true if it is chosen).
template <class Visit>
void for_each_row(const std::vector<AgreeTraining>& all, const std::vector<AgreeTraining>& chosen, Visit visit) {
  for (const AgreeTraining& training : all) {
    for (const AgreeValidation& at : training.validations) visit(training, at, is_among(training, chosen));
  }
}

/// A name as a field of CSV, which may contain commas.
std::string quoted(const std::string& text) {
  std::string inside;
  for (const char letter : text) inside += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return fmt::format("\"{}\"", inside);
}

}  // namespace

const AgreeValidation* reached(const AgreeTraining& training, const AgreeSetting& setting) {
  if (!setting.target || training.diverged) return nullptr;
  const auto there = std::ranges::find_if(
      training.validations, [&](const AgreeValidation& at) { return !setting.is_better(*setting.target, at.metric); });
  return there == training.validations.end() ? nullptr : &*there;
}

const AgreeTraining& best_of(const std::vector<AgreeTraining>& trainings, const AgreeSetting& setting) {
  return *std::ranges::min_element(
      trainings, [&](const AgreeTraining& a, const AgreeTraining& b) { return merit(a, setting) < merit(b, setting); });
}

std::string format_table(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting) {
  std::string text =
      fmt::format("{}; {} that train, {} samples per step{}\n", setting.network, counted(setting.workers, "rank"),
                  with_commas(setting.global_batch), setting.slow.empty() ? "" : "; " + setting.slow);
  const std::string head = fmt::format("{:<30}  {:>8}", "mode", "rate");
  if (setting.target) {
    text += fmt::format("{}  {:>24}  {:>12}  {:>7}", head,
                        fmt::format("s to {} {:.6g}", setting.metric, *setting.target), "samples", "ratio");
  } else {
    text += fmt::format("{}  {:>27}  {:>10}  {:>9}  {:>7}", head, "loss at the end", setting.metric.substr(0, 10),
                        "seconds", "ratio");
  }
  double first = kNever;
  for (std::size_t mode = 0; mode < setting.modes.size(); ++mode) {
    const std::vector<const AgreeTraining*> its = of_mode(chosen, mode);
    if (its.empty()) continue;
    if (mode == 0) {
      std::vector<double> merits;
      for (const AgreeTraining* const training : its) merits.push_back(merit(*training, setting)[0]);
      first = median(merits);
    }
    text += "\n" + row(setting, mode, its, first);
  }
  return text;
}

std::string format_csv(const std::vector<AgreeTraining>& all, const std::vector<AgreeTraining>& chosen,
                       const AgreeSetting& setting) {
  std::string text = fmt::format("mode,learning_rate,seed,chosen,step,samples,seconds,loss,{}\n", setting.metric);
  for_each_row(all, chosen, [&](const AgreeTraining& training, const AgreeValidation& at, bool is_chosen) {
    text += fmt::format("{},{},{},{},{},{},{:.6f},{},{}\n", quoted(setting.modes[training.mode]), training.rate,
                        training.seed, is_chosen ? 1 : 0, at.step, at.samples, at.seconds, at.loss, at.metric);
  });
  return text;
}

std::vector<io::MetricRecord> to_records(const std::vector<AgreeTraining>& all,
                                         const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting) {
  std::vector<io::MetricRecord> records;
  for_each_row(all, chosen, [&](const AgreeTraining& training, const AgreeValidation& at, bool is_chosen) {
    records.push_back(record_of(training, at, setting, is_chosen));
  });
  return records;
}

std::string format_svg(const std::vector<AgreeTraining>& chosen, const AgreeSetting& setting) {
  const std::string subtitle =
      fmt::format("{}, {} that train, {} samples per step{}", setting.network, counted(setting.workers, "rank"),
                  with_commas(setting.global_batch), setting.slow.empty() ? "" : ", " + setting.slow);
  std::array<Chart, 2> charts{Chart{.title = "Validation loss at equal samples",
                                    .subtitle = subtitle,
                                    .x = {.title = "samples"},
                                    .y = {.title = "loss", .from_zero = false}},
                              Chart{.title = "Validation loss at equal seconds of training",
                                    .subtitle = subtitle,
                                    .x = {.title = "time", .numbers = AxisNumbers::seconds},
                                    .y = {.title = "loss", .from_zero = false}}};
  for (std::size_t mode = 0; mode < setting.modes.size(); ++mode) {
    const std::vector<const AgreeTraining*> its = of_mode(chosen, mode);
    if (its.empty()) continue;
    const AgreeTraining* const typical = middle_of(its, setting);
    for (Chart& chart : charts) chart.series.push_back({.name = setting.modes[mode]});
    for (const AgreeValidation& at : typical->validations) {
      charts[0].series.back().points.push_back({at.samples, at.loss});
      charts[1].series.back().points.push_back({at.seconds, at.loss});
    }
  }
  return to_svg(charts);
}

}  // namespace lockstep::app
