#include "app/bench/scaling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"
#include "app/report/statistics.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {

namespace {

/// Smaller shares of a step are not reported.
constexpr double kNotable = 0.005;

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

/// Computes for each rank of a step the (lower) median of the others' work.
void medians_of_others(std::span<const RankStep> step, std::vector<double>& medians) {
  std::vector<std::pair<double, std::size_t>> sorted;
  for (std::size_t rank = 0; rank < step.size(); ++rank) sorted.emplace_back(step[rank].work(), rank);
  std::sort(sorted.begin(), sorted.end());
  const std::size_t middle = (step.size() - 2) / 2;
  for (std::size_t place = 0; place < sorted.size(); ++place) {
    medians[sorted[place].second] = sorted[middle < place ? middle : middle + 1].first;
  }
}

std::string name_waiting(const ScalingPoint& point) {
  if (point.behind.empty()) return "waiting for the slowest rank (not the same one from step to step)";
  const int rank = point.behind.front().rank;
  return fmt::format("waiting for rank {} on {}", rank, point.host_of_rank[rank]);
}

/// Returns the reason why computing takes longer than at the base, as far as the figures show.
std::string compute_reason(const ScalingPoint& point, const ScalingPoint& base) {
  const bool same_part = point.samples * base.ranks == base.samples * point.ranks;
  return same_part ? fmt::format("compute (slower than at {}: shared memory bandwidth, caches, clocks)",
                                 counted(base.ranks, "rank"))
                   : "compute (smaller parts of the batch are less efficient)";
}

}  // namespace

std::vector<int> world_sizes(int ranks, std::span<const std::int64_t> wanted) {
  std::set<int> sizes;
  for (const std::int64_t size : wanted) {
    if (size < 1 || size > ranks) {
      throw UsageError(fmt::format("--worlds: {} of {}: start the job with more (mpirun -np {})", counted(size, "rank"),
                                   ranks, size));
    }
    sizes.insert(static_cast<int>(size));
  }
  if (wanted.empty()) {
    for (std::int64_t size = 1; size < ranks; size *= 2) sizes.insert(static_cast<int>(size));
    sizes.insert(ranks);
  }
  return {sizes.begin(), sizes.end()};
}

StepShare split(const StepTimes& times) {
  StepShare sum;
  const double ranks = times.ranks;
  for (std::size_t i = 0; i < times.steps(); ++i) {
    double longest = 0, work = 0, input = 0, total = 0;
    for (const RankStep& step : times.step(i)) {
      longest = std::max(longest, step.work());
      work += step.work();
      input += step.input;
      total += step.total;
    }
    sum.input += input / ranks;
    sum.compute += (work - input) / ranks;
    sum.waiting += longest - work / ranks;
    sum.communication += total / ranks - longest;
  }
  const double steps = static_cast<double>(std::max<std::size_t>(1, times.steps()));
  StepShare mean{.compute = sum.compute / steps,
                 .input = sum.input / steps,
                 .communication = sum.communication / steps,
                 .waiting = sum.waiting / steps};
  // If different ranks are late before and after an all-reduce, the step is shorter than the longest work plus waits,
  // and the communication is negative.
  if (mean.communication < 0) {
    mean.waiting = std::max(0.0, mean.waiting + mean.communication);
    mean.communication = 0;
  }
  return mean;
}

std::vector<Straggler> stragglers(const StepTimes& times) {
  std::vector<Straggler> found;
  if (times.ranks < 2 || times.cells.empty()) return found;
  const auto ranks = static_cast<std::size_t>(times.ranks);
  std::vector<std::vector<double>> excess(ranks), input(ranks);
  std::vector<double> others(ranks);
  std::vector<double> all_inputs;
  for (std::size_t i = 0; i < times.steps(); ++i) {
    const std::span<const RankStep> step = times.step(i);
    medians_of_others(step, others);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      excess[rank].push_back(others[rank] > 0 ? step[rank].work() / others[rank] - 1 : 0);
      input[rank].push_back(others[rank] > 0 ? step[rank].input / others[rank] : 0);
      all_inputs.push_back(input[rank].back());
    }
  }
  const double usual_input = median(all_inputs);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double typical = median(excess[rank]);
    const auto late = std::count_if(excess[rank].begin(), excess[rank].end(), [](double e) { return e >= kLate; });
    const auto steps = static_cast<std::int64_t>(times.steps());
    if (typical < kLate || 2 * late < steps) continue;
    found.push_back({.rank = static_cast<int>(rank),
                     .excess = typical,
                     .by_input = median(input[rank]) - usual_input > typical / 2,
                     .late_steps = late,
                     .steps = steps});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Straggler& a, const Straggler& b) { return a.excess > b.excess; });
  return found;
}

double ScalingPoint::bus_bandwidth() const noexcept {
  return ranks > 1 && all_reduce_seconds > 0 ? 2.0 * (ranks - 1) / ranks * gradient_bytes / all_reduce_seconds : 0;
}

double efficiency(const ScalingPoint& point, const ScalingPoint& base) {
  return point.rate / point.ranks / (base.rate / base.ranks);
}

StepShare lost(const ScalingPoint& point, const ScalingPoint& base) {
  const double step = point.share.step();
  // Ratio of two durations: a step with this number of samples per rank at the base's rate per rank, to the base's
  // step.
  const double scale = efficiency(point, base) * step / base.share.step();
  const auto of = [&](double part, double part_of_base) { return (part - scale * part_of_base) / step; };
  return {.compute = of(point.share.compute, base.share.compute),
          .input = of(point.share.input, base.share.input),
          .communication = of(point.share.communication, base.share.communication),
          .waiting = of(point.share.waiting, base.share.waiting)};
}

std::string explain(const ScalingPoint& point, const ScalingPoint& base) {
  struct Part {
    double share;
    std::string name, short_name;
  };
  const StepShare parts = lost(point, base);
  std::array<Part, 4> all{Part{parts.communication, "exposed communication", "communication"},
                          Part{parts.waiting, name_waiting(point), "waiting"},
                          Part{parts.compute, compute_reason(point, base), "compute"},
                          Part{parts.input, "waiting for input", "input"}};
  std::stable_sort(all.begin(), all.end(), [](const Part& a, const Part& b) { return a.share > b.share; });
  std::vector<std::string> losses, gains;
  for (const Part& part : all) {
    if (part.share >= kNotable) losses.push_back(fmt::format("{} {}", percent(part.share), part.name));
    if (part.share <= -kNotable) gains.push_back(fmt::format("{} in {}", percent(-part.share), part.short_name));
  }
  std::string text = fmt::format("At {} {} efficiency", counted(point.ranks, "rank"), percent(efficiency(point, base)));
  text += losses.empty() ? ": nothing of note is lost" : fmt::format(": {}", fmt::join(losses, ", "));
  if (!gains.empty()) text += fmt::format("; won back: {}", fmt::join(gains, ", "));
  return text + ".";
}

std::string name_stragglers(const ScalingPoint& point) {
  if (point.behind.empty()) return "";
  const Straggler& worst = point.behind.front();
  const auto host = [&](int rank) { return point.host_of_rank[rank]; };
  std::string text =
      fmt::format("rank {} on {} works {} longer than the others (in {} of {} steps; {})", worst.rank, host(worst.rank),
                  percent(worst.excess), worst.late_steps, worst.steps, worst.by_input ? "input" : "compute");
  if (point.behind.size() == 1) return text;
  std::vector<int> more;
  bool same_host = true;
  for (const Straggler& one : std::span(point.behind).subspan(1)) {
    more.push_back(one.rank);
    same_host = same_host && host(one.rank) == host(worst.rank);
  }
  std::sort(more.begin(), more.end());
  return fmt::format("{}; late, too: {}{}", text, comm::name_ranks(more),
                     same_host ? fmt::format(" on {}", host(worst.rank)) : "");
}

std::string name_hosts(std::span<const std::string> host_of_rank) {
  std::vector<std::string> order;
  for (const std::string& host : host_of_rank) {
    if (std::find(order.begin(), order.end(), host) == order.end()) order.push_back(host);
  }
  std::vector<std::string> named;
  for (const std::string& host : order) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
      if (host_of_rank[rank] == host) ranks.push_back(static_cast<int>(rank));
    }
    named.push_back(fmt::format("{} ({})", host, comm::name_ranks(ranks)));
  }
  constexpr std::size_t most = 8;
  if (named.size() > most) {
    const std::size_t more = named.size() - most;
    named.resize(most);
    named.push_back(fmt::format("{} more hosts", more));
  }
  return fmt::format("{}", fmt::join(named, ", "));
}

}  // namespace lockstep::app
