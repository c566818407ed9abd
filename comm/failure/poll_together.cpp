#include "comm/failure/poll_together.hpp"

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/consensus.hpp"
#include "comm/session/backoff.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {
namespace {

/// Polls for one round at most; true when ready.
bool poll_round(const std::function<bool()>& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kPollRoundSeconds);
  using std::chrono::microseconds;
  for (Backoff backoff({.spin = {}, .yield = microseconds(200), .sleep = microseconds(1000)});;) {
    if (ready()) return true;
    if (Clock::now() >= end) return false;
    backoff.pause();
  }
}

}  // namespace

void poll_together(Communicator& communicator, double deadline_seconds, std::string_view what,
                   const std::function<bool()>& ready) {
  bool done = false;
  std::string error;
  // The ranks decide by sums that are equal on all, so all leave in the same round.
  for (Patience patience(deadline_seconds);;) {
    try {
      done = done || poll_round(ready);
    } catch (const std::exception& failure) {
      error = failure.what();
      if (error.empty()) error = "an error without a text";
    }
    if (error.empty() && !done && patience.exhausted(false)) {
      error = fmt::format("{} is not ready after {} s", what, seconds_text(patience.waited()));
    }
    std::array<double, 2> sums{error.empty() ? 0.0 : 1.0, done ? 0.0 : 1.0};
    communicator.all_reduce(sums);
    communicator.wait();
    if (sums[0] > 0) throw ConsensusError(gather_distinct(communicator, error));
    if (sums[1] == 0) return;
  }
}

}  // namespace lockstep::comm
