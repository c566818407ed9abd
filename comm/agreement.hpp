/// \file
/// How ranks stay one: the same start, the same verdict on every error, the same step to stop at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// An error that every rank knows and throws with the same text: rank 0 prints it once, all exit alike, no abort.
class AgreedError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One thing that must be equal on all ranks at start.
struct FingerprintItem {
  std::string name;   ///< what the user calls it: "configuration", "dataset manifest", "program"
  std::string value;  ///< compared as text; short values are quoted in the message
};

/// Compares the items over all ranks; throws AgreedError on every rank naming item, ranks (grouped by value) and
/// values.
void require_equal(Communicator& communicator, std::span<const FingerprintItem> items);

/// Runs `work` on every rank; if it throws anywhere, throws AgreedError on every rank with each distinct text once and
/// the ranks it came from ("rank 1: …", "ranks 0-3: …" — no prefix in a world of one). `work` must not communicate.
/// A nested AgreedError is never needed.
void all_succeed(Communicator& communicator, const std::function<void()>& work);

/// Texts of all ranks, equal ones gathered: "ranks 0,2: text". Empty texts are dropped. Same result on every rank.
std::vector<std::string> gather_distinct(Communicator& communicator, std::string_view text);

/// What each rank says in the one small all-reduce of a step.
struct StepVote {
  double samples = 0;              ///< this rank's samples
  bool failed = false;             ///< this rank could not do its part (its gradient contribution is zero)
  bool stop_requested = false;     ///< a signal, a time limit
  std::uint32_t schedule_tag = 0;  ///< hash of (step, bucket schedule): differs when ranks have diverged
};

/// A vote as numbers that are summed over the ranks, wherever that is done. The first three are open for what the
/// computation adds before the sum: loss and metric of this rank's samples, and 1 more obstacle when its loss is not
/// finite. A sum of obstacles above 0 means: no update.
inline constexpr std::size_t kBallotLoss = 0, kBallotMetric = 1, kBallotObstacles = 2, kBallotSize = 9;
using Ballot = std::array<double, kBallotSize>;
Ballot ballot_of(const StepVote& own);

/// What all ranks then know.
struct StepVerdict {
  double loss_sum = 0, metric_sum = 0, samples = 0;
  int failed_ranks = 0;
  int not_finite_ranks = 0;
  int stop_requests = 0;
  bool diverged = false;  ///< schedule tags were not all equal
};

/// Reads the sums of the ballots of `ranks` ranks, of which this one voted `own`.
StepVerdict count_ballots(std::span<const double, kBallotSize> sums, const StepVote& own, int ranks);

}  // namespace lockstep::comm
