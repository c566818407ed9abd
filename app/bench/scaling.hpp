/// \file
/// Analysis of the time of a step as ranks are added: its parts, the rank that the others wait for, and the reasons for
/// the efficiency. Pure functions of times that every rank measured itself.
///
/// ARRIVAL. All ranks leave a step together, when the last all-reduce has ended, and each measures from there with its
/// own clock: clocks of different hosts are never compared. A rank's own work is the step without the time in which it
/// waited for all-reduces (the exposed wait); it arrives when that work is done. The others wait for the last one to
/// arrive. The remaining wait of all ranks, including the last one, is communication. So ranks beside a slow rank
/// wait for that rank, not for the network. (The update, which follows a step's last all-reduce, counts as the
/// beginning of the next step's work. The parts of a step are means over many steps, so this evens out.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

/// 1, 2, 4 … and `ranks` itself; or the `wanted` sizes, ascending. Throws UsageError if one exceeds `ranks`.
std::vector<int> world_sizes(int ranks, std::span<const std::int64_t> wanted);

/// A step of one rank, seconds by its own clock.
struct RankStep {
  double total = 0;
  double input = 0;    ///< waiting for samples
  double exposed = 0;  ///< waiting for all-reduces
  double work() const noexcept { return total - exposed; }
};

/// The steps of all ranks of a world.
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
  double communication = 0;  ///< exposed: from the last rank's arrival to the end
  double waiting = 0;        ///< wait for the rank that arrives last
  double step() const noexcept { return compute + input + communication + waiting; }
};
StepShare split(const StepTimes& times);

/// A rank for which the others often wait.
struct Straggler {
  int rank = 0;
  double excess = 0;                       ///< its work over the median of the others', minus 1, in the median step
  bool by_input = false;                   ///< most of it is waiting for samples
  std::int64_t late_steps = 0, steps = 0;  ///< number of steps with an excess of kLate or more; number of all steps
};
inline constexpr double kLate = 0.05;
/// Ranks that work kLate longer than the median of the others in at least half of the steps; the worst first.
std::vector<Straggler> stragglers(const StepTimes& times);

/// One world, measured.
struct ScalingPoint {
  int ranks = 1;
  std::string transport = {};
  std::int64_t samples = 0;  ///< samples per step, all ranks together
  StepShare share = {};
  double rate = 0;                     ///< samples/s
  double communication = 0;            ///< seconds of all-reduces in a step, exposed or not
  double all_reduce_seconds = 0;       ///< time for all gradients without concurrent computation: the bound
  double gradient_bytes = 0;           ///< size of one rank's gradients
  std::vector<Straggler> behind = {};  ///< stragglers of all rounds
  std::vector<std::string> host_of_rank = {};

  /// Bytes/s of the gradients' all-reduce times 2 (p-1)/p; 0 in a world of one.
  double bus_bandwidth() const noexcept;
};

/// Samples/s per rank over those of `base`.
double efficiency(const ScalingPoint& point, const ScalingPoint& base);
/// Loss of efficiency by each part of a step, as a share of the step: the parts sum to 1 - efficiency. Negative: the
/// part takes less time than it would at the efficiency of `base`.
StepShare lost(const ScalingPoint& point, const ScalingPoint& base);

/// "At 8 ranks 91 % efficiency: 6 % exposed communication, 2 % waiting for rank 5 on node3, 1 % compute (…)."
std::string explain(const ScalingPoint& point, const ScalingPoint& base);
/// "rank 5 on node3 works 12 % longer than the others (in 55 of 60 steps; compute)"; empty: none stands out.
std::string name_stragglers(const ScalingPoint& point);
/// "node1 (ranks 0-3), node2 (ranks 4-7)".
std::string name_hosts(std::span<const std::string> host_of_rank);

}  // namespace lockstep::app
