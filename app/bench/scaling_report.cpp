#include "app/bench/scaling_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "app/report/chart.hpp"
#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

std::string describe(const ScalingCurve& curve) {
  const ScalingPoint& first = curve.points.front();
  return curve.kind == "weak"
             ? fmt::format("weak scaling: {} per rank and step", counted(first.samples / first.ranks, "sample"))
             : fmt::format("strong scaling: {} per step", counted(first.samples, "sample"));
}

/// Formats milliseconds with about four digits.
std::string milliseconds(double seconds) {
  const double value = 1e3 * seconds;
  return value < 10     ? fmt::format("{:.4f}", value)
         : value < 1000 ? fmt::format("{:.2f}", value)
                        : fmt::format("{:.0f}", value);
}

std::string row(const ScalingPoint& point, const ScalingPoint& base) {
  const bool alone = point.ranks == 1;
  const StepShare& share = point.share;
  return fmt::format("{:>6}{:>9}{:>10}{:>13}{:>8}{:>10}{:>9}{:>9}{:>9}{:>10}{:>10}{:>8}", point.ranks, point.samples,
                     milliseconds(share.step()), with_commas(std::llround(point.rate)),
                     fmt::format("{:.1f}", 100 * efficiency(point, base)), milliseconds(share.compute),
                     milliseconds(share.input), milliseconds(share.communication), milliseconds(share.waiting),
                     alone ? "-" : milliseconds(point.communication),
                     alone ? "-" : milliseconds(point.all_reduce_seconds),
                     alone ? "-" : fmt::format("{:.2f}", point.bus_bandwidth() / 1e9));
}

/// The numbers of a row, with their names in JSON and CSV.
io::MetricRecord figures(const ScalingCurve& curve, const ScalingPoint& point) {
  const ScalingPoint& base = curve.points.front();
  const StepShare gone = lost(point, base);
  const bool alone = point.ranks == 1;
  const Straggler* const worst = point.behind.empty() ? nullptr : &point.behind.front();
  const auto of_worst = [&](auto value) { return worst == nullptr ? io::MetricValue(kNotKnown) : value(*worst); };
  return {{"scaling", curve.kind},
          {"world", point.ranks},
          {"transport", point.transport},
          {"global_batch", point.samples},
          {"step_ms", 1e3 * point.share.step()},
          {"samples_per_second", point.rate},
          {"efficiency", efficiency(point, base)},
          {"compute_ms", 1e3 * point.share.compute},
          {"input_ms", 1e3 * point.share.input},
          {"exposed_ms", 1e3 * point.share.communication},
          {"waiting_ms", 1e3 * point.share.waiting},
          {"communication_ms", alone ? kNotKnown : 1e3 * point.communication},
          {"gradient_sum_ms", alone ? kNotKnown : 1e3 * point.all_reduce_seconds},
          {"gradient_bytes", static_cast<std::int64_t>(point.gradient_bytes)},
          {"bus_bandwidth", alone ? kNotKnown : point.bus_bandwidth()},
          {"lost_compute", gone.compute},
          {"lost_input", gone.input},
          {"lost_communication", gone.communication},
          {"lost_waiting", gone.waiting},
          {"straggler_rank", of_worst([](const Straggler& rank) { return io::MetricValue(rank.rank); })},
          {"straggler_host",
           of_worst([&](const Straggler& rank) { return io::MetricValue(point.host_of_rank[rank.rank]); })},
          {"straggler_excess", of_worst([](const Straggler& rank) { return io::MetricValue(rank.excess); })},
          {"straggler_steps", of_worst([](const Straggler& rank) { return io::MetricValue(rank.late_steps); })},
          {"steps", of_worst([](const Straggler& rank) { return io::MetricValue(rank.steps); })}};
}

std::string csv_cell(const io::MetricValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
  const double real = std::get<double>(value);
  return std::isnan(real) ? std::string() : fmt::format("{:.9g}", real);
}

/// Title of the efficiency chart; it names the reference of 100 %: the fewest ranks.
std::string efficiency_title(const std::vector<ScalingCurve>& curves) {
  return fmt::format("samples/s per rank, of those on {}", counted(curves.front().points.front().ranks, "rank"));
}

Chart efficiency_chart(const std::vector<ScalingCurve>& curves, const std::string& subtitle) {
  Chart chart{.title = "Efficiency",
              .subtitle = subtitle,
              .x = {.title = "ranks", .scale = AxisScale::logarithmic},
              .y = {.title = efficiency_title(curves), .numbers = AxisNumbers::percent},
              .series = {}};
  ChartSeries ideal{.name = "ideal", .points = {}, .reference = true};
  for (const ScalingCurve& curve : curves) {
    ChartSeries series{.name = curve.kind, .points = {}};
    for (const ScalingPoint& point : curve.points) {
      series.points.push_back({static_cast<double>(point.ranks), 100 * efficiency(point, curve.points.front())});
      if (&curve != &curves.front()) continue;
      chart.x.ticks.push_back(point.ranks);
      ideal.points.push_back({static_cast<double>(point.ranks), 100});
    }
    chart.series.push_back(std::move(series));
  }
  chart.series.push_back(std::move(ideal));
  return chart;
}

Chart split_chart(const ScalingCurve& curve, const std::string& subtitle) {
  Chart chart{.title = "Time of a step, " + describe(curve),
              .subtitle = subtitle,
              .x = {.title = "ranks"},
              .y = {.title = "mean over the ranks", .numbers = AxisNumbers::seconds},
              .series = {{.name = "compute"},
                         {.name = "input"},
                         {.name = "exposed communication"},
                         {.name = "waiting for the slowest"}}};
  for (const ScalingPoint& point : curve.points) {
    const auto bar = static_cast<double>(chart.bars.size());
    chart.bars.push_back(fmt::format("{}", point.ranks));
    const double values[] = {point.share.compute, point.share.input, point.share.communication, point.share.waiting};
    for (std::size_t i = 0; i < chart.series.size(); ++i) chart.series[i].points.push_back({bar, values[i]});
  }
  return chart;
}

}  // namespace

std::string format_setting(const ScalingSetting& setting) {
  return fmt::format(
      "{}, {}, input: {}\n{}\n{}, each of {} after {} to warm up; the table has the median one", setting.network,
      setting.optimizer, setting.input, setting.backend, counted(setting.rounds, "visit"),
      setting.repeat > 0 ? counted(setting.repeat, "step") : "about a second", counted(setting.warmup, "step"));
}

std::string format_table(const ScalingCurve& curve) {
  std::string text = fmt::format(
      "{}\n{:>6}{:>9}{:>10}{:>13}{:>8}{:>10}{:>9}{:>9}{:>9}{:>10}{:>10}{:>8}\n"
      "{:>6}{:>9}{:>10}{:>13}{:>8}{:>10}{:>9}{:>9}{:>9}{:>10}{:>10}{:>8}\n",
      describe(curve), "ranks", "samples", "step", "samples/s", "effic.", "compute", "input", "exposed", "waiting",
      "comm", "bound", "busbw", "", "", "(ms)", "", "(%)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(ms)", "(GB/s)");
  const ScalingPoint& base = curve.points.front();
  for (const ScalingPoint& point : curve.points) text += row(point, base) + "\n";
  for (const ScalingPoint& point : curve.points) {
    if (const std::string late = name_stragglers(point); !late.empty()) {
      text += fmt::format("Of {}: {}.\n", counted(point.ranks, "rank"), late);
    }
  }
  for (const ScalingPoint& point : curve.points) {
    if (&point != &base) text += explain(point, base) + "\n";
  }
  if (curve.points.size() == 1) text += "One number of ranks alone has nothing to be compared with.\n";
  text.pop_back();
  return text;
}

std::string format_csv(const std::vector<ScalingCurve>& curves) {
  std::string text;
  for (const ScalingCurve& curve : curves) {
    for (const ScalingPoint& point : curve.points) {
      std::string head, line;
      for (const auto& [name, value] : figures(curve, point)) {
        head += (head.empty() ? "" : ",") + name;
        line += (line.empty() ? "" : ",") + csv_cell(value);
      }
      if (text.empty()) text = head + "\n";
      text += line + "\n";
    }
  }
  return text;
}

std::vector<io::MetricRecord> to_records(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting) {
  std::vector<io::MetricRecord> records;
  for (const ScalingCurve& curve : curves) {
    for (const ScalingPoint& point : curve.points) {
      io::MetricRecord& record = records.emplace_back(io::MetricRecord{{"bench", "scale"},
                                                                       {"network", setting.network},
                                                                       {"backend", setting.backend},
                                                                       {"optimizer", setting.optimizer},
                                                                       {"input", setting.input},
                                                                       {"rounds", setting.rounds}});
      for (const auto& figure : figures(curve, point)) record.push_back(figure);
      record.emplace_back("hosts", name_hosts(point.host_of_rank));
      record.emplace_back("late", name_stragglers(point));
      const bool base = &point == &curve.points.front();
      record.emplace_back("explanation", base ? std::string() : explain(point, curve.points.front()));
    }
  }
  return records;
}

std::string format_svg(const std::vector<ScalingCurve>& curves, const ScalingSetting& setting) {
  const std::string subtitle = fmt::format("{}, input: {}", setting.network, setting.input);
  std::vector<Chart> charts{efficiency_chart(curves, subtitle)};
  for (const ScalingCurve& curve : curves) charts.push_back(split_chart(curve, subtitle));
  return to_svg(charts);
}

}  // namespace lockstep::app
