/// \file
/// Analyses how the time of a step changes with the number of ranks: its parts, stragglers, and the reasons for the
/// efficiency. Pure functions of times that every rank measured itself.
///
/// All ranks leave a step together, when the last all-reduce ends. Each rank measures from there with its own clock;
/// clocks of different hosts are never compared. A rank's own work is the step without its waits for all-reduces (the
/// exposed wait). The rank arrives when its own work is done. The other ranks wait until the last rank arrives. The
/// wait that then remains on all ranks, including the last one, is communication. So time lost to a slow rank counts as
/// waiting, not as communication. The update, which follows a step's last all-reduce, counts as the beginning of the
/// next step's work; this evens out, because the parts are means over many steps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

/// Returns 1, 2, 4 … and `ranks`; or `wanted`, ascending. Throws UsageError if one exceeds `ranks`.
std::vector<int> world_sizes(int ranks, std::span<const std::int64_t> wanted);

/// A step of one rank, in seconds of its own clock.
struct RankStep {
  double total = 0;
  double input = 0;    ///< waiting for samples
  double exposed = 0;  ///< waiting for all-reduces
  double work() const noexcept { return total - exposed; }
};

/// The steps of all ranks in a measurement.
struct StepTimes {
  int ranks = 1;
  std::vector<RankStep> cells;  ///< [step][rank]

  std::size_t steps() const noexcept { return cells.size() / static_cast<std::size_t>(ranks); }
  std::span<const RankStep> step(std::size_t index) const noexcept {
    return std::span(cells).subspan(index * static_cast<std::size_t>(ranks), static_cast<std::size_t>(ranks));
  }
};

/// Parts of a step's time: means over steps and ranks, in seconds, that sum to the step.
struct StepShare {
  double compute = 0;        ///< mean of the ranks' own work, without input
  double input = 0;          ///< waiting for samples
  double communication = 0;  ///< exposed: from the arrival of the last rank to the end
  double waiting = 0;        ///< wait for the rank that arrives last
  double step() const noexcept { return compute + input + communication + waiting; }
};
StepShare split(const StepTimes& times);

/// A rank that the others often wait for.
struct Straggler {
  int rank = 0;
  /// Its work relative to the median of the others' work, minus 1, in the median step.
  double excess = 0;
  bool by_input = false;                   ///< the main reason is waiting for samples
  std::int64_t late_steps = 0, steps = 0;  ///< steps with an excess of kLate or more; all steps
};
inline constexpr double kLate = 0.05;
/// Returns the ranks whose work is kLate longer than the median of the others' in at least half of the steps, the worst
/// first.
std::vector<Straggler> stragglers(const StepTimes& times);

/// Results for one number of ranks.
struct ScalingPoint {
  int ranks = 1;
  std::string transport = {};
  std::int64_t samples = 0;  ///< samples per step, all ranks together
  StepShare share = {};
  double rate = 0;                     ///< samples/s
  double communication = 0;            ///< seconds of all-reduces in a step, exposed or hidden
  double all_reduce_seconds = 0;       ///< seconds to sum all gradients without concurrent computation: a bound
  double gradient_bytes = 0;           ///< size of one rank's gradients
  std::vector<Straggler> behind = {};  ///< stragglers of all rounds
  std::vector<std::string> host_of_rank = {};

  /// Bus bandwidth of the gradients' all-reduce in bytes/s: bandwidth times 2 (p-1)/p; 0 with one rank.
  double bus_bandwidth() const noexcept;
};

/// Samples/s per rank, relative to `base`.
double efficiency(const ScalingPoint& point, const ScalingPoint& base);
/// The efficiency lost to each part of a step, as a share of the step. The parts sum to 1 - efficiency. Negative: the
/// part takes less time than the efficiency of `base` allows.
StepShare lost(const ScalingPoint& point, const ScalingPoint& base);

/// "At 8 ranks 91 % efficiency: 6 % exposed communication, 2 % waiting for rank 5 on node3, 1 % compute (…)."
std::string explain(const ScalingPoint& point, const ScalingPoint& base);
/// "rank 5 on node3 works 12 % longer than the others (in 55 of 60 steps; compute)"; empty: no straggler.
std::string name_stragglers(const ScalingPoint& point);
/// "node1 (ranks 0-3), node2 (ranks 4-7)".
std::string name_hosts(std::span<const std::string> host_of_rank);

}  // namespace lockstep::app
