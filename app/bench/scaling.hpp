/// \file
/// How the time of a step changes as ranks are added: which part of it each thing takes, which rank the others wait
/// for, and why the efficiency is what it is. Pure functions of times that every rank measured itself.
///
/// ARRIVAL. All ranks leave a step together, when the last all-reduce has ended, and each measures from there with its
/// own clock: clocks of different hosts are never compared. A rank's own work is the step without the time in which it
/// waited for all-reduces (the exposed wait); it arrives when that work is done. The others wait for the last one to
/// arrive. What all ranks still wait after that, the last one included, is communication. So ranks beside a slow rank
/// wait for that rank, not for the network. (The update, which follows a step's last all-reduce, counts as the
/// beginning of the next step's work. The parts of a step are means over many steps, so this evens out.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::app {

/// 1, 2, 4 … and `ranks` itself; or what is `wanted`, ascending. Throws UsageError where that is more than `ranks`.
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

/// Where a step's time goes: means over steps and ranks, seconds, that add up to the step.
struct StepShare {
  double compute = 0;        ///< own work of the ranks, on the average, without the input
  double input = 0;          ///< waiting for samples
  double communication = 0;  ///< exposed: from the last rank's arrival to the end
  double waiting = 0;        ///< for the rank that arrives last
  double step() const noexcept { return compute + input + communication + waiting; }
};
StepShare split(const StepTimes& times);

/// A rank for which the others often wait.
struct Straggler {
  int rank = 0;
  double excess = 0;                       ///< its work over the median of the others', minus 1: in the median step
  bool by_input = false;                   ///< most of it is waiting for samples
  std::int64_t late_steps = 0, steps = 0;  ///< in how many of them the excess was kLate or more
};
inline constexpr double kLate = 0.05;
/// Ranks that work kLate longer than the median of the others in at least half of the steps; the worst first.
std::vector<Straggler> stragglers(const StepTimes& times);

/// One world, measured.
struct ScalingPoint {
  int ranks = 1;
  std::string transport = {};
  std::int64_t samples = 0;  ///< of a step, all ranks together
  StepShare share = {};
  double rate = 0;                     ///< samples/s
  double communication = 0;            ///< seconds of all-reduces in a step, exposed or not
  double all_reduce_seconds = 0;       ///< of all gradients, with no computation beside it: the bound
  double gradient_bytes = 0;           ///< of one rank
  std::vector<Straggler> behind = {};  ///< of all rounds
  std::vector<std::string> host_of_rank = {};

  /// Bytes/s of the gradients' all-reduce times 2 (p-1)/p; 0 in a world of one.
  double bus_bandwidth() const noexcept;
};

/// Samples/s per rank over those of `base`.
double efficiency(const ScalingPoint& point, const ScalingPoint& base);
/// How much each part of a step takes from the efficiency, as a share of the step: they add up to 1 - efficiency.
/// Negative: the part takes less than it would at the efficiency of `base`.
StepShare lost(const ScalingPoint& point, const ScalingPoint& base);

/// "At 8 ranks 91 % efficiency: 6 % exposed communication, 2 % waiting for rank 5 on node3, 1 % compute (…)."
std::string explain(const ScalingPoint& point, const ScalingPoint& base);
/// "rank 5 on node3 works 12 % longer than the others (in 55 of 60 steps; compute)"; empty: none stands out.
std::string name_stragglers(const ScalingPoint& point);
/// "node1 (ranks 0-3), node2 (ranks 4-7)".
std::string name_hosts(std::span<const std::string> host_of_rank);

}  // namespace lockstep::app
