/// \file
/// The remaining time of the job, and the last step that fits into it. A job that stops in time saves a checkpoint of
/// its last step. A job that the scheduler kills loses the steps since its last checkpoint.
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

/// Events that follow the next step if it is not the last.
struct Ahead {
  bool validation = false;
  bool checkpoint = false;
};

/// True if the next step must be the last one before the final checkpoint, with `left` seconds to go. It is not the
/// last if there is time for the next step and the events after it, for one more step, for a checkpoint that takes
/// twice as long as any before, and for the end of the program. The vote that informs all ranks is part of a step, so
/// the decision is made one step ahead.
bool is_last_step(double left, const Durations& longest, const Ahead& ahead);

/// Returns the estimated duration in seconds of a checkpoint of this size, before one has been written. It assumes a
/// slow shared disk, and includes reading the file back.
double checkpoint_estimate(std::uint64_t bytes);

/// The job's remaining time in seconds, and its source.
struct JobTime {
  std::optional<double> left;  ///< nullopt: no known limit
  std::string source;          ///< "--time-limit", "SLURM_JOB_END_TIME" or "squeue"; "": no known limit
  std::string problem;         ///< reason why the end of this job is unknown, and what to do; "": no problem
};

/// Returns the user's limit, which counts from now on, or else Slurm's, from SLURM_JOB_END_TIME or from squeue. Waits
/// for squeue for five seconds at most. Call once, on rank 0.
JobTime find_job_time(const TimeLimit& limit);

/// Returns the line for the start of the log, such as "Slurm job 17, restart 2: it may take 59:40 (squeue)"; "" without
/// Slurm and without a limit.
std::string describe_job(const JobTime& time);

/// Decides on rank 0 when the job must stop. On other ranks, and without a limit, time is never up.
class WallTime {
 public:
  WallTime() = default;
  /// `checkpoint`: expected duration of the first checkpoint, in seconds. Until a validation has been measured, it is
  /// expected to take `validation_steps` times the longest step.
  WallTime(double seconds_left, double checkpoint, double validation_steps);

  void took_step(double seconds);
  void took_validation(double seconds);
  void took_checkpoint(double seconds);

  /// True if the next step must be the last of this job. Stays true afterwards.
  bool is_up(const Ahead& ahead);
  /// The reason for the stop: "41 s of the job's time were left, a checkpoint takes 3.2 s"; "" while time is not up.
  const std::string& reason() const noexcept { return reason_; }

 private:
  double left() const;
  Durations expected() const;

  std::optional<double> end_;  ///< end of the job in seconds of the steady clock; nullopt: no limit
  Durations longest_;
  double first_checkpoint_ = 0, validation_steps_ = 0;
  std::string reason_;
};

}  // namespace lockstep::app
