#include "app/train/stop_vote.hpp"

#include <array>

#include <fmt/format.h>

namespace lockstep::app {

bool stopped_before_start(comm::Communicator& communicator, Console& console, const StopSignals& signals) {
  std::array<double, 1> asked{signals.stop_requested() ? 1.0 : 0.0};
  communicator.all_reduce(asked);
  communicator.wait();
  if (asked[0] == 0) return false;
  console.info(fmt::format(
      "stopped on request{} before the first step: there is nothing new to keep, and the same command starts "
      "again",
      signals.stop_requested() ? fmt::format(" ({})", signals.name()) : ""));
  return true;
}

}  // namespace lockstep::app
