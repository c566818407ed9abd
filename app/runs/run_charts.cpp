#include "app/runs/run_charts.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "app/runs/run_ranking.hpp"

namespace lockstep::app {
namespace {

constexpr std::size_t kMaxPoints = 400;  ///< points per line
constexpr std::size_t kMaxIntervals = 12;

class Drawing {
 public:
  Drawing(const std::vector<RunHistory>& runs, const ChartFrame& frame, Progress along)
      : runs_(runs),
        names_(short_names(runs)),
        along_(along == Progress::automatic ? progress_of(runs) : along),
        frame_(frame),
        shown_(ranking_of(runs)) {
    shown_.resize(std::min(shown_.size(), kMaxRuns));
    if (runs.size() > 1 && runs.size() <= kMaxRuns) std::sort(shown_.begin(), shown_.end());
  }

  std::vector<RunChart> all() {
    const std::string metric = runs_.empty() ? "" : runs_[shown_[0]].metric;
    beside("loss", "loss", "loss", AxisNumbers::plain);
    for (const std::string& key : keys_of_losses()) beside(key, metric_words(key), key, AxisNumbers::plain);
    if (!metric.empty() && metric != "perplexity") {
      beside(metric, metric_words(metric), metric,
             metric.ends_with("accuracy") ? AxisNumbers::percent : AxisNumbers::plain);
    } else if (!metric.empty()) {
      lines("perplexity", "Validation perplexity", "perplexity", of_runs("validation", metric), AxisNumbers::plain);
    }
    lines("learning-rate", "Learning rate", "learning rate", of_runs("train", "learning_rate"), AxisNumbers::plain);
    lines("gradient-norm", "Gradient norm", "norm of the last step's gradient", of_runs("train", "gradient_norm"),
          AxisNumbers::plain);
    const bool tokens = !of_runs("train", "tokens_per_second").empty();
    lines("throughput", "Throughput", tokens ? "tokens per second" : "samples per second",
          of_runs("train", tokens ? "tokens_per_second" : "samples_per_second"), AxisNumbers::plain, true);
    runs_.size() == 1 ? time_of_intervals() : time_of_runs();
    return std::move(charts_);
  }

 private:
  bool alone() const { return runs_.size() == 1; }

  /// Returns keys like "loss_dice" for networks with several losses, from the first run that has some.
  std::vector<std::string> keys_of_losses() const {
    std::vector<std::string> keys;
    for (const std::size_t i : shown_) {
      for (const io::MetricRecord& record : runs_[i].records) {
        if (string_of(record, "kind") != "train") continue;
        for (const auto& [key, value] : record) {
          if (key.starts_with("loss_")) keys.push_back(key);
        }
        break;
      }
      if (!keys.empty()) break;
    }
    return keys;
  }

  /// Returns a line for each run; a single run's line is called `name`.
  std::vector<ChartSeries> of_runs(std::string_view kind, const std::string& key, const std::string& name = "") const {
    std::vector<ChartSeries> series;
    for (const std::size_t i : shown_) {
      std::vector<ChartPoint> points = thinned(curve_of(runs_[i], kind, key, along_), kMaxPoints);
      if (points.empty()) continue;
      const bool validation = kind == "validation";
      series.push_back({.name = alone() ? name : names_[i],
                        .points = std::move(points),
                        .markers = validation ? std::size_t{40}
                                   : alone()  ? 0
                                              : std::size_t{8}});
    }
    return series;
  }

  /// The score of the constant predictor as a horizontal line. All runs of a chart validate on the same data.
  ChartSeries constant_of(const std::string& key) const {
    ChartSeries series{.name = "constant", .points = {}, .reference = true};
    for (const std::size_t i : shown_) {
      for (const ChartPoint& point : curve_of(runs_[i], "validation", "constant_" + key, along_)) {
        if (series.points.size() < 2) {
          series.points.push_back(point);
        } else {
          series.points[0].x = std::min(series.points[0].x, point.x);
          series.points[1].x = std::max(series.points[1].x, point.x);
        }
      }
    }
    return series;
  }

  /// Adds training and validation: in one chart for a single run, in two charts for several.
  void beside(const std::string& id, std::string title, const std::string& key, AxisNumbers numbers) {
    if (alone()) {
      std::vector<ChartSeries> series = of_runs("train", key, "training");
      for (ChartSeries& each : of_runs("validation", key, "validation")) series.push_back(std::move(each));
      if (ChartSeries constant = constant_of(key); !constant.points.empty()) series.push_back(std::move(constant));
      title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
      return lines(id, title, metric_words(key), std::move(series), numbers);
    }
    std::vector<ChartSeries> validation = of_runs("validation", key);
    if (ChartSeries constant = constant_of(key); !validation.empty() && !constant.points.empty()) {
      validation.push_back(std::move(constant));
    }
    lines("validation-" + id, "Validation " + title, metric_words(key), std::move(validation), numbers);
    lines("training-" + id, "Training " + title, metric_words(key), of_runs("train", key), numbers);
  }

  void lines(const std::string& id, const std::string& title, const std::string& words, std::vector<ChartSeries> series,
             AxisNumbers numbers, bool from_zero = false) {
    if (series.empty()) return;
    if (numbers == AxisNumbers::percent) {
      for (ChartSeries& each : series) {
        for (ChartPoint& point : each.points) point.y *= 100;
      }
    }
    const AxisScale scale = numbers == AxisNumbers::percent || from_zero || (alone() && id == "learning-rate")
                                ? AxisScale::linear
                                : scale_of_values(series);
    Chart chart{.title = title,
                .subtitle = subtitle(),
                .x = {.title = axis_of(along_),
                      .numbers = along_ == Progress::time ? AxisNumbers::seconds : AxisNumbers::plain},
                .y = {.title = words, .scale = scale, .numbers = numbers, .from_zero = from_zero},
                .series = std::move(series),
                .frame = frame_};
    if (alone()) chart.marks = marks();
    charts_.push_back({id, std::move(chart)});
  }

  std::string subtitle() const {
    if (alone()) return runs_[0].name;
    return runs_.size() > shown_.size() ? fmt::format("the best {} of {} runs", shown_.size(), runs_.size())
                                        : fmt::format("{} runs", runs_.size());
  }

  /// Marks launches after the first, and returns to a checkpoint.
  std::vector<ChartMark> marks() const {
    std::vector<ChartMark> marks;
    bool first = true;
    double seconds = 0;
    for (const io::MetricRecord& record : runs_[0].records) {
      seconds += seconds_of(record);
      const std::string kind = string_of(record, "kind");
      const bool restart = kind == "start" && !std::exchange(first, first && kind != "start");
      const std::optional<double> x = along_ == Progress::time ? seconds : number_of(record, axis_of(along_));
      if (x && (restart || kind == "roll_back")) marks.push_back({*x, restart ? "restart" : "roll-back"});
    }
    return marks;
  }

  /// Shares of the time in steps, in percent.
  Chart shares(const std::string& x_title) const {
    Chart chart{.title = "Time in steps",
                .subtitle = subtitle(),
                .x = {.title = x_title},
                .y = {.title = "share of the time", .numbers = AxisNumbers::percent},
                .frame = frame_};
    for (const char* part : {"compute", "communication", "input", "other"}) chart.series.push_back({.name = part});
    return chart;
  }
  static void add_bar(Chart& chart, const std::string& name, const TimeSplit& split) {
    const double x = static_cast<double>(chart.bars.size()), percent = 100 / split.total;
    chart.bars.push_back(name);
    const double parts[] = {split.compute, split.communication, split.input, std::max(0.0, split.other())};
    for (std::size_t i = 0; i < 4; ++i) chart.series[i].points.push_back({x, parts[i] * percent});
  }

  void time_of_runs() {
    Chart chart = shares("run");
    for (const std::size_t i : shown_) {
      const TimeSplit split = summary_of(runs_[i]).split;
      if (split.total > 0) add_bar(chart, names_[i], split);
    }
    if (!chart.bars.empty()) charts_.push_back({"time", std::move(chart)});
  }

  void time_of_intervals() {
    std::vector<const io::MetricRecord*> reports;
    for (const io::MetricRecord& record : runs_[0].records) {
      if (string_of(record, "kind") == "train") reports.push_back(&record);
    }
    if (reports.empty()) return;
    Chart chart = shares("up to step");
    const std::size_t intervals = std::min(reports.size(), kMaxIntervals);
    for (std::size_t i = 0; i < intervals; ++i) {
      TimeSplit split;
      const std::size_t end = reports.size() * (i + 1) / intervals;
      for (std::size_t j = reports.size() * i / intervals; j < end; ++j) {
        const auto seconds = [&](std::string_view key) { return number_of(*reports[j], key).value_or(0); };
        split.input += seconds("input_seconds");
        split.compute += seconds("compute_seconds");
        split.communication += seconds("communication_seconds");
        split.total += seconds("other_seconds");
      }
      split.total += split.input + split.compute + split.communication;
      const auto step = static_cast<std::int64_t>(number_of(*reports[end - 1], "step").value_or(0));
      if (split.total > 0) add_bar(chart, with_commas(step), split);
    }
    if (!chart.bars.empty()) charts_.push_back({"time", std::move(chart)});
  }

  const std::vector<RunHistory>& runs_;
  std::vector<std::string> names_;
  Progress along_;
  ChartFrame frame_;
  std::vector<std::size_t> shown_;
  std::vector<RunChart> charts_;
};

}  // namespace

std::vector<RunChart> charts_of(const std::vector<RunHistory>& runs, const ChartFrame& frame, Progress along) {
  return Drawing(runs, frame, along).all();
}

std::vector<std::string> short_names(const std::vector<RunHistory>& runs) {
  std::vector<std::string> names;
  for (const RunHistory& run : runs) names.push_back(run.name);
  for (;;) {
    if (names.size() < 2) return names;
    const std::string folder = names[0].substr(0, names[0].find('/') + 1);
    const auto lies_inside = [&](const std::string& name) {
      return name.starts_with(folder) && name.size() > folder.size();
    };
    if (folder.empty() || !std::all_of(names.begin(), names.end(), lies_inside)) return names;
    for (std::string& name : names) name.erase(0, folder.size());
  }
}

std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t most) {
  if (points.size() <= most) return points;
  std::vector<ChartPoint> kept{points.front()};
  const std::size_t intervals = most / 2;
  for (std::size_t i = 0; i < intervals; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / intervals);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (i + 1) / intervals);
    const auto lower = [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; };
    auto [first, second] = std::minmax_element(begin, end, lower);
    if (second < first) std::swap(first, second);
    if (first != points.begin()) kept.push_back(*first);
    if (second != first && second + 1 != points.end()) kept.push_back(*second);
  }
  kept.push_back(points.back());
  return kept;
}

}  // namespace lockstep::app
