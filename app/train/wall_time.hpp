/// \file
/// How long the job may go on, and when that is too short for another step: a job that leaves in time leaves with a
/// checkpoint, one that is ended by its scheduler with the last one it wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "app/options/time_limit.hpp"

namespace lockstep::app {

/// How long the parts of training may take, in seconds.
struct Durations {
  double step = 0;
  double validation = 0;
  double checkpoint = 0;
};

/// What would follow on the next step, were it not the last.
struct Ahead {
  bool validation = false;
  bool checkpoint = false;
};

/// The rule: with `left` seconds to go, the next step is the last before the checkpoint. Otherwise there must be time
/// for the next step and what follows on it, then for one more step, and for a checkpoint that takes twice as long as
/// any before, and for the end of the program. The vote that carries this to all ranks is part of the step, so the
/// decision falls one step ahead.
bool is_last_step(double left, const Durations& longest, const Ahead& ahead);

/// A checkpoint of so many bytes, before one has been written: a slow disk that many share, and the reading back.
double checkpoint_estimate(std::uint64_t bytes);

/// How much of its time the job has left, in seconds, and who says so.
struct JobTime {
  std::optional<double> left;  ///< nullopt: nobody knows of a limit
  std::string source;          ///< "--time-limit", "SLURM_JOB_END_TIME", "squeue"; "" without a limit
  std::string problem;         ///< why the end of this job could not be learnt, and what to do; "": no problem
};

/// The limit that the user gave, which counts from now on, else Slurm's: its variable, or its answer, which is waited
/// for five seconds at most. For rank 0, once.
JobTime find_job_time(const TimeLimit& limit);

/// The line for the start of the log: "Slurm job 17, restart 2: it may take 59:40 (squeue)"; "" where
/// there is neither Slurm nor a limit.
std::string describe_job(const JobTime& time);

/// Watches the clock for rank 0. Everywhere else, and without a limit, time is never up.
class WallTime {
 public:
  WallTime() = default;
  /// `checkpoint`: what the first one is expected to take. A validation is expected to take `validation_steps` times
  /// the longest step until one has been seen.
  WallTime(double seconds_left, double checkpoint, double validation_steps);

  void took_step(double seconds);
  void took_validation(double seconds);
  void took_checkpoint(double seconds);

  /// The next step has to be the last of this job; once true, always true.
  bool is_up(const Ahead& ahead);
  /// Why, for the last words: "41 s of the job's time were left, a checkpoint takes 3.2 s"; "" while time is not up.
  const std::string& reason() const noexcept { return reason_; }

 private:
  double left() const;
  Durations expected() const;

  std::optional<double> end_;  ///< on the steady clock
  Durations longest_;
  double first_checkpoint_ = 0, validation_steps_ = 0;
  std::string reason_;
};

}  // namespace lockstep::app
