/// \file
/// Runs work on the first ranks of a job while the other ranks wait.
#pragma once

#include <array>
#include <functional>
#include <string>

#include "comm/communicator.hpp"

namespace lockstep::app {

class FirstRanks {
 public:
  /// `everybody`: all ranks of the job, none of them in a long operation; must outlive this object. The workers must
  /// use other communicators.
  FirstRanks(comm::Communicator& everybody, double deadline_seconds)
      : everybody_(everybody), deadline_seconds_(deadline_seconds) {}

  /// Collective over all ranks. Calls `work` on ranks 0 … workers - 1. The other ranks wait, for as long as a long
  /// operation may take or as the workers have announced. If all workers throw the same UsageError or
  /// comm::ConsensusError, every rank throws it.
  void run(int workers, const std::function<void()>& work);

  /// Collective over the workers, from inside `work`, with the same `seconds` on all. Tells the waiting ranks that the
  /// next announcement or the end of the work follows in about `seconds`.
  void announce(double seconds);

 private:
  /// Indices of the values that all ranks sum: numbers of ranks, and seconds.
  enum Said : std::size_t { kStillAtWork, kSeconds, kFailed, kMisused, kWords };
  using Words = std::array<double, kWords>;

  void wait();
  void conclude(const Words& words, const std::string& error);

  comm::Communicator& everybody_;
  double deadline_seconds_;
};

}  // namespace lockstep::app
