#include "app/bench/first_ranks.hpp"

#include "app/engine/snapshot.hpp"
#include "app/options/usage_error.hpp"
#include "comm/consensus.hpp"
#include "comm/session/deadline.hpp"

namespace lockstep::app {

namespace {

/// Maximum duration until the next announcement, relative to the duration announced.
constexpr double kSlack = 10;

}  // namespace

void FirstRanks::run(int workers, const std::function<void()>& work) {
  if (everybody_.rank() >= workers) return wait();
  std::string error;
  Words words{};
  try {
    work();
  } catch (const UsageError& misuse) {
    error = misuse.what();
    words[kMisused] = 1;
  } catch (const comm::ConsensusError& failure) {
    error = failure.what();
    words[kFailed] = 1;
  }
  everybody_.all_reduce(words);
  everybody_.wait();
  conclude(words, error);
}

void FirstRanks::announce(double seconds) {
  Words words{};
  words[kStillAtWork] = 1;
  words[kSeconds] = seconds;
  everybody_.all_reduce(words);
  everybody_.wait();
}

void FirstRanks::wait() {
  everybody_.note_activity("waiting for its turn", -1);
  const double before = everybody_.set_deadline(comm::Patience::kLongOperationFactor * deadline_seconds_);
  Words words{};
  for (;;) {
    words = {};
    everybody_.all_reduce(words);
    everybody_.wait();
    if (words[kStillAtWork] == 0) break;
    everybody_.set_deadline(deadline_seconds_ + kSlack * words[kSeconds] / words[kStillAtWork]);
  }
  everybody_.set_deadline(before);
  conclude(words, "");
}

/// Throws the workers' error on all ranks. Rank 0, which is a worker, has its text.
void FirstRanks::conclude(const Words& words, const std::string& error) {
  if (words[kMisused] > 0) throw UsageError(broadcast_text(everybody_, error));
  if (words[kFailed] > 0) throw comm::ConsensusError(broadcast_text(everybody_, error));
}

}  // namespace lockstep::app
