#include "app/engine/slowdown.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "app/report/stop_watch.hpp"

namespace lockstep::app {

void Slowdown::pause(const TimeSplit& so_far) {
  if (speed_ >= 1) return;
  const double own = std::max(0.0, so_far.compute - slept_);
  const double usual = micro_steps_ == 0 ? 0 : own / static_cast<double>(micro_steps_);
  ++micro_steps_;
  const StopWatch watch;
  std::this_thread::sleep_for(std::chrono::duration<double>(usual * (1 / speed_ - 1)));
  slept_ += watch.seconds();
}

}  // namespace lockstep::app
