/// \file
/// Work on the first ranks of a job while the others wait.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace lockstep::app {

class FirstRanks {
 public:
  /// `everybody`: all ranks of the job, none of them in a long operation; it outlives this object. The workers use
  /// other communicators.
  FirstRanks(comm::Communicator& everybody, double deadline_seconds)
      : everybody_(everybody), deadline_seconds_(deadline_seconds) {}

  /// Collective over everybody. Calls `work` on ranks 0 … workers - 1; the others sleep, for as long as a long
  /// operation may take or as the workers have announced. If all workers throw the same UsageError or
  /// comm::ConsensusError, every rank throws it.
  void run(int workers, const std::function<void()>& work);

  /// Collective over the workers, inside their work, with equal `seconds` on all of them: reports that they work
  /// normally, and that the next announcement or the end of the work follows within about `seconds`.
  void announce(double seconds);

 private:
  /// Values summed over everybody: numbers of ranks, and seconds.
  enum Said : std::size_t { kStillAtWork, kSeconds, kFailed, kMisused, kWords };
  using Words = std::array<double, kWords>;

  void wait();
  void conclude(const Words& words, const std::string& error);

  comm::Communicator& everybody_;
  double deadline_seconds_;
};

}  // namespace lockstep::app
