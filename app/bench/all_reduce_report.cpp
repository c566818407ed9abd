#include "app/bench/all_reduce_report.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "app/report/record_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {
namespace {

constexpr const char* kMpi = "mpi";
constexpr const char* kIallreduce = "iallreduce";

/// Formats microseconds with a suitable number of digits, in 10 columns.
std::string microseconds(double seconds) {
  const double us = 1e6 * seconds;
  return us < 1000 ? fmt::format("{:.2f}", us) : us < 1e5 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

/// Formats GB/s with a suitable number of digits, in 7 columns.
std::string gigabytes(double bandwidth) {
  const double gb = bandwidth / 1e9;
  return fmt::format("{:.{}f}", gb, gb < 10 ? 4 : gb < 1000 ? 2 : 0);
}

/// "8 B", "32 KiB", "1.5 MiB"
std::string size_text(double bytes) { return format_axis_number(bytes, AxisNumbers::bytes); }

/// The full name, for a chart.
std::string chart_name(const std::string& algorithm) {
  if (algorithm == kMpi) return "MPI_Allreduce";
  if (algorithm == kIallreduce) return "MPI_Iallreduce";
  if (algorithm == "shared-memory") return "shared memory";
  return algorithm == "nccl" ? "NCCL" : algorithm;
}

}  // namespace

// The links -----------------------------------------------------------------------------------------------------------

std::optional<LinkBound> link_bound(std::span<const std::string> hosts, double gbit_per_s) {
  std::map<std::string, int> sends, receives;  // per host: number of its ranks' neighbours on other hosts
  std::map<std::string, int> ranks;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string &from = hosts[rank], &to = hosts[(rank + 1) % hosts.size()];
    ++ranks[from];
    if (from == to) continue;
    ++sends[from];
    ++receives[to];
  }
  if (ranks.size() < 2) return std::nullopt;
  int most = 0;
  for (const auto* crossings : {&sends, &receives}) {
    for (const auto& [host, count] : *crossings) most = std::max(most, count);
  }
  const auto share = [](std::size_t members) {
    return 2 * (static_cast<double>(members) - 1) / static_cast<double>(members);
  };
  return LinkBound{.gbit_per_s = gbit_per_s,
                   .hosts = static_cast<int>(ranks.size()),
                   .least_share = share(ranks.size()),
                   .ring_share = share(hosts.size()) * most};
}

std::string describe(const LinkBound& bound) {
  std::string text = fmt::format("bound: at {:g} Gbit/s each way, {:.4g} times the data over each of {} hosts' links",
                                 bound.gbit_per_s, bound.least_share, bound.hosts);
  if (bound.ring_share > bound.least_share * 1.0001) {
    text += fmt::format("; the ring takes {:.4g} times and reaches {:.0f} % of the bound at best", bound.ring_share,
                        100 * bound.least_share / bound.ring_share);
  }
  return text;
}

// The table -----------------------------------------------------------------------------------------------------------

std::string format_head(bool bound) {
  return fmt::format(
      "{:>11}{:>11}{:>9}{:>7}  {:<13}{:>10}{:>9}{:>9}{:>8}{:>10}{:>10}{:>10}{}\n"
      "{:>11}{:>11}{:>9}{:>7}  {:<13}{:>10}{:>9}{:>9}{:>8}{:>10}{:>10}{:>10}{}",
      "size", "count", "type", "redop", "algorithm", "time", "algbw", "busbw", "#wrong", "p95", "p99", "max",
      bound ? fmt::format("{:>8}", "bound") : "", "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "",
      "(us)", "(us)", "(us)", bound ? fmt::format("{:>8}", "(%)") : "");
}

std::string format_row(const AllReduceRow& row) {
  return fmt::format("{:>11.0f}{:>11}{:>9}{:>7}  {:<13}{:>10}{:>9}{:>9}{:>8}{:>10}{:>10}{:>10}{}", row.bytes(),
                     row.count, "float32", "sum", row.algorithm, microseconds(row.seconds.median),
                     gigabytes(row.algorithm_bandwidth()), gigabytes(row.bus_bandwidth()), row.wrong,
                     microseconds(row.seconds.p95), microseconds(row.seconds.p99), microseconds(row.seconds.most),
                     row.bound ? fmt::format("{:>8.1f}", row.percent_of_bound()) : "");
}

std::string csv_head() {
  return "transport,ranks,bytes,count,type,time_us,time_us_min,algbw_gb_per_s,busbw_gb_per_s,wrong,way,redop,"
         "time_us_p95,time_us_p99,time_us_max,batches,sums_per_batch,hosts,wire,link_gbps,bound_us,percent_of_bound";
}

std::string csv_row(const AllReduceRow& row) {
  return fmt::format(
      "{},{},{:.0f},{},float32,{:.3f},{:.3f},{},{},{},sum,{:.3f},{:.3f},{:.3f},{},{},{},{},{}", row.transport,
      row.ranks, row.bytes(), row.count, 1e6 * row.seconds.median, 1e6 * row.seconds.least,
      row.ranks > 1 ? fmt::format("{:.6f},{:.6f}", row.algorithm_bandwidth() / 1e9, row.bus_bandwidth() / 1e9) : ",",
      row.wrong, row.algorithm, 1e6 * row.seconds.p95, 1e6 * row.seconds.p99, 1e6 * row.seconds.most, row.batches,
      row.sums, row.hosts, row.wire,
      row.bound
          ? fmt::format("{:g},{:.3f},{:.2f}", row.bound->gbit_per_s, 1e6 * row.bound_seconds(), row.percent_of_bound())
          : ",,");
}

io::MetricRecord to_record(const AllReduceRow& row) {
  const auto known = [](bool is, double value) { return is ? value : kNotKnown; };
  const bool sums = row.ranks > 1;
  return {{"bench", "all-reduce"},
          {"transport", row.transport},
          {"world", row.ranks},
          {"type", "float32"},
          {"count", row.count},
          {"bytes", static_cast<std::int64_t>(row.bytes())},
          {"time_us", 1e6 * row.seconds.median},
          {"time_us_min", 1e6 * row.seconds.least},
          {"sums_per_batch", row.sums},
          {"algorithm_bandwidth", known(sums, row.algorithm_bandwidth())},
          {"bus_bandwidth", known(sums, row.bus_bandwidth())},
          {"wrong", row.wrong},
          {"way", row.algorithm},
          {"redop", "sum"},
          {"time_us_p95", 1e6 * row.seconds.p95},
          {"time_us_p99", 1e6 * row.seconds.p99},
          {"time_us_max", 1e6 * row.seconds.most},
          {"batches", row.batches},
          {"hosts", row.hosts},
          {"wire", row.wire},
          {"schedule", row.schedule.empty() ? io::MetricValue(kNotKnown) : io::MetricValue(row.schedule)},
          {"link_gbps", row.bound ? row.bound->gbit_per_s : kNotKnown},
          {"bound_us", known(row.bound.has_value(), 1e6 * row.bound_seconds())},
          {"percent_of_bound", known(row.bound.has_value(), row.percent_of_bound())}};
}

// The summary ---------------------------------------------------------------------------------------------------------

double mean_bus_bandwidth(std::span<const AllReduceRow> rows, const std::string& algorithm) {
  double sum = 0, count = 0;
  for (const AllReduceRow& row : rows) {
    if (row.algorithm != algorithm) continue;
    sum += row.bus_bandwidth();
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

std::vector<std::string> algorithms_of(std::span<const AllReduceRow> rows) {
  std::vector<std::string> algorithms;
  for (const AllReduceRow& row : rows) {
    if (std::find(algorithms.begin(), algorithms.end(), row.algorithm) == algorithms.end())
      algorithms.push_back(row.algorithm);
  }
  return algorithms;
}

std::optional<comm::AllReduceLimits> best_limits(std::span<const AllReduceRow> rows) {
  std::map<std::int64_t, std::map<std::string, double>> sizes;  // seconds of each schedule
  for (const AllReduceRow& row : rows) {
    if (row.algorithm == "doubling" || row.algorithm == "halving" || row.algorithm == "ring-only") {
      sizes[row.count][row.algorithm] = row.seconds.median;
    }
  }
  std::vector<comm::ScheduleSeconds> schedules;
  for (const auto& [count, seconds] : sizes) {
    if (seconds.size() < 3) return std::nullopt;
    schedules.push_back({.bytes = static_cast<std::size_t>(count) * sizeof(float),
                         .seconds = {seconds.at("doubling"), seconds.at("halving"), seconds.at("ring-only")}});
  }
  return sizes.empty() ? std::nullopt : std::optional(comm::best_limits(schedules));
}

std::optional<FastestTransport> fastest_transport(std::span<const AllReduceRow> rows) {
  constexpr double kOfGradients = 1 << 20, kAsFast = 1.03;
  const std::map<std::string, std::string> words{
      {"ring", "ring"}, {"two-level", "two-level"}, {"shared-memory", "shared-memory"}, {kIallreduce, "mpi"}};
  const bool large = std::ranges::any_of(rows, [](const AllReduceRow& row) { return row.bytes() >= kOfGradients; });
  // Per transport: logarithm of the seconds for each size.
  std::map<std::string, std::map<std::int64_t, double>> logarithms;
  std::size_t sizes = 0;
  for (const AllReduceRow& row : rows) {
    const auto word = words.find(row.algorithm);
    if (word == words.end() || (large && row.bytes() < kOfGradients) || !(row.seconds.median > 0)) continue;
    logarithms[word->second][row.count] = std::log(row.seconds.median);
    sizes = std::max(sizes, logarithms[word->second].size());
  }
  std::vector<std::pair<double, std::string>> order;  // the means, the fastest first
  for (const auto& [word, seconds] : logarithms) {
    if (seconds.size() < sizes) continue;
    double sum = word == "mpi" ? std::log(kAsFast) * static_cast<double>(sizes) : 0;
    for (const auto& [count, value] : seconds) sum += value;
    order.emplace_back(sum / static_cast<double>(sizes), word);
  }
  if (order.size() < 2) return std::nullopt;
  std::ranges::sort(order);
  const auto mean = [&](std::size_t i) { return order[i].first - (order[i].second == "mpi" ? std::log(kAsFast) : 0); };
  return FastestTransport{.word = order[0].second, .second = order[1].second, .times = std::exp(mean(1) - mean(0))};
}

std::string to_text(const FastestTransport& fastest) {
  return fmt::format(
      "--transport {} ({:.2f} times as fast as {}{})", fastest.word, fastest.times, fastest.second,
      fastest.word == "mpi" ? "; its sums repeat bit for bit only where the library's order is fixed" : "");
}

std::string format_summary(std::span<const AllReduceRow> rows) {
  const std::vector<std::string> algorithms = algorithms_of(rows);
  if (algorithms.size() < 2) return "";
  const bool has_mpi = std::find(algorithms.begin(), algorithms.end(), kMpi) != algorithms.end();
  const std::string yardstick = has_mpi ? kMpi : algorithms.front();
  std::string text = fmt::format("fastest algorithm, and how many times as fast as {} each is\n{:>11}  {:<13}",
                                 has_mpi ? "MPI_Allreduce" : yardstick, "size", "fastest");
  for (const std::string& algorithm : algorithms)
    text += algorithm == yardstick ? "" : fmt::format("{:>15}", algorithm);
  std::map<std::int64_t, std::map<std::string, const AllReduceRow*>> sizes;
  for (const AllReduceRow& row : rows) sizes[row.count][row.algorithm] = &row;
  for (const auto& [count, by_algorithm] : sizes) {
    const auto fastest = std::min_element(by_algorithm.begin(), by_algorithm.end(), [](const auto& a, const auto& b) {
      return a.second->seconds.median < b.second->seconds.median;
    });
    text += fmt::format("\n{:>11}  {:<13}", size_text(fastest->second->bytes()), fastest->first);
    const auto base = by_algorithm.find(yardstick);
    for (const std::string& algorithm : algorithms) {
      if (algorithm == yardstick) continue;
      const auto row = by_algorithm.find(algorithm);
      const bool known = row != by_algorithm.end() && base != by_algorithm.end() && row->second->seconds.median > 0;
      text += known ? fmt::format("{:>14.2f}x", base->second->seconds.median / row->second->seconds.median)
                    : fmt::format("{:>15}", "-");
    }
  }
  return text;
}

Chart bandwidth_chart(std::span<const AllReduceRow> rows, const std::string& subtitle) {
  Chart chart{.title = "All-reduce: bus bandwidth",
              .subtitle = subtitle,
              .x = {.title = "size", .scale = AxisScale::logarithmic, .numbers = AxisNumbers::bytes},
              .y = {.title = "bus bandwidth, GB/s"}};
  for (const std::string& algorithm : algorithms_of(rows)) {
    ChartSeries& series = chart.series.emplace_back(ChartSeries{.name = chart_name(algorithm)});
    for (const AllReduceRow& row : rows) {
      if (row.algorithm == algorithm) series.points.push_back({row.bytes(), row.bus_bandwidth() / 1e9});
    }
  }
  std::map<std::string, std::map<std::int64_t, const AllReduceRow*>> wires;  // each wire format has its own bound
  for (const AllReduceRow& row : rows) {
    if (row.bound) wires[row.wire][row.count] = &row;
  }
  for (const auto& [wire, sizes] : wires) {
    ChartSeries& series = chart.series.emplace_back(
        ChartSeries{.name = "bound of the links" + (wire == "fp32" ? "" : ", " + wire), .reference = true});
    for (const auto& [count, row] : sizes) {
      series.points.push_back({row->bytes(), row->bytes() * row->bus_factor() / row->bound_seconds() / 1e9});
    }
  }
  chart.x.ticks = ticks_at_points(chart.series);
  chart.y.scale = scale_of_values(chart.series);
  return chart;
}

}  // namespace lockstep::app
