#include "comm/poll_together.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/agreement.hpp"
#include "comm/deadline.hpp"
#include "comm/peers.hpp"

namespace lockstep::comm {
namespace {

/// Polls for one round at most; true when ready.
bool poll_round(const std::function<bool()>& ready) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(kPollRoundSeconds);
  for (std::chrono::microseconds pause{10};; pause = std::min(pause * 2, std::chrono::microseconds(2000))) {
    if (ready()) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

void poll_together(Communicator& communicator, double deadline_seconds, std::string_view what,
                   const std::function<bool()>& ready) {
  bool done = false;
  std::string error;
  // The ranks decide by sums that are the same for all, so all leave in the same round.
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
    communicator.all_reduce_sum(sums);
    if (sums[0] > 0) throw AgreedError(fmt::format("{}", fmt::join(gather_distinct(communicator, error), "\n")));
    if (sums[1] == 0) return;
  }
}

}  // namespace lockstep::comm
