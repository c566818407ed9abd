/// \file
/// Work of the first ranks of a job while the others wait for them.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace lockstep::app {

class SideJob {
 public:
  /// `everybody`: all ranks of the job, none of them in a long operation; it outlives this. Who works uses other
  /// communicators.
  SideJob(comm::Communicator& everybody, double deadline_seconds)
      : everybody_(everybody), deadline_seconds_(deadline_seconds) {}

  /// Collective over everybody. Calls `work` on ranks 0 … workers - 1; the others wait asleep, for as long as a long
  /// operation may take or the workers have announced. A UsageError or comm::AgreedError that all workers throw alike
  /// is thrown on every rank.
  void run(int workers, const std::function<void()>& work);

  /// Collective over the workers, inside their work, with equal `seconds` on all of them: they are well, and will be
  /// heard of again within about so long.
  void announce(double seconds);

 private:
  /// What everybody sums when they meet: a number of ranks each, but for the seconds.
  enum Said : std::size_t { kStillAtWork, kSeconds, kFailed, kMisused, kWords };
  using Words = std::array<double, kWords>;

  void wait();
  void conclude(const Words& words, const std::string& error);

  comm::Communicator& everybody_;
  double deadline_seconds_;
};

}  // namespace lockstep::app
