/// \file
/// The remaining time of the job, and the last step that fits into it: a job that stops in time leaves a fresh
/// checkpoint; one that its scheduler kills leaves the last one that it wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/options/time_limit.hpp"

namespace lockstep::app {

/// Expected durations of the parts of training, in seconds.
struct Durations {
  double step = 0;
  double validation = 0;
  double checkpoint = 0;
};

/// Events that would follow the next step if it were not the last.
struct Ahead {
  bool validation = false;
  bool checkpoint = false;
};

/// The rule: with `left` seconds to go, the next step is the last before the checkpoint. Otherwise there must be time
/// for the next step and the events after it, then for one more step, for a checkpoint that takes twice as long as any
/// before, and for the end of the program. The vote that tells all ranks is part of a step, so the decision is made one
/// step ahead.
bool is_last_step(double left, const Durations& longest, const Ahead& ahead);

/// Estimated duration of a checkpoint of this size, before one has been written: a slow disk that many share, and the
/// reading back.
double checkpoint_estimate(std::uint64_t bytes);

/// The job's remaining time in seconds, and its source.
struct JobTime {
  std::optional<double> left;  ///< nullopt: no known limit
  std::string source;          ///< "--time-limit", "SLURM_JOB_END_TIME", "squeue"; "" without a limit
  std::string problem;         ///< reason why the end of this job is unknown, and what to do; "": no problem
};

/// The user's limit, which counts from now on; otherwise Slurm's, from its variable or from squeue, which may take five
/// seconds at most. For rank 0, once.
JobTime find_job_time(const TimeLimit& limit);

/// The line for the start of the log: "Slurm job 17, restart 2: it may take 59:40 (squeue)"; "" if there is neither
/// Slurm nor a limit.
std::string describe_job(const JobTime& time);

/// Watches the clock on rank 0. On other ranks, and without a limit, time is never up.
class WallTime {
 public:
  WallTime() = default;
  /// `checkpoint`: expected duration of the first one. A validation is expected to take `validation_steps` times the
  /// longest step until one has been measured.
  WallTime(double seconds_left, double checkpoint, double validation_steps);

  void took_step(double seconds);
  void took_validation(double seconds);
  void took_checkpoint(double seconds);

  /// True if the next step has to be the last of this job; stays true.
  bool is_up(const Ahead& ahead);
  /// The reason for the last message: "41 s of the job's time were left, a checkpoint takes 3.2 s"; "" while time is
  /// not up.
  const std::string& reason() const noexcept { return reason_; }

 private:
  double left() const;
  Durations expected() const;

  std::optional<double> end_;  ///< end of the job on the steady clock
  Durations longest_;
  double first_checkpoint_ = 0, validation_steps_ = 0;
  std::string reason_;
};

}  // namespace lockstep::app
