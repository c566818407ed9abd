/// \file
/// The learning rate as a pure function of the step.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep::model {

/// Maps the steps of a run to steps of the schedule: step `step` maps to `at`, and each later step adds `per_step`.
/// Thus a run that continues with another global batch keeps the schedule per sample.
struct ScheduleClock {
  std::int64_t step = 0;
  double at = 0, per_step = 1;
  double after(std::int64_t steps) const noexcept { return at + static_cast<double>(steps - step) * per_step; }
  bool operator==(const ScheduleClock&) const = default;
};

/// Steps are those of the schedule (ScheduleClock), 0-based. After the warm-up of `warmup_steps` (linear from
/// base/warmup_steps to base), with s = step - warmup_steps and S = total_steps - warmup_steps:
///   constant     base
///   exponential  base * decay_rate^(s / decay_steps), floor of the exponent when staircase
///   step         base * decay_rate^(number of boundaries <= step)
///   cosine       final + (base - final) (1 + cos(pi s / S)) / 2        (Loshchilov & Hutter 2017)
///   polynomial   final + (base - final) (1 - s / S)^power
/// cosine and polynomial stay at `final` after total_steps.
struct ScheduleOptions {
  enum class Kind { constant, exponential, step, cosine, polynomial };
  Kind kind = Kind::constant;
  double base = 0.1;
  double final_rate = 0;
  double decay_rate = 0.96;
  std::int64_t decay_steps = 1000;
  bool staircase = false;
  std::vector<std::int64_t> boundaries = {};  ///< ascending
  double power = 1;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< cosine, polynomial
  ScheduleClock clock = {};
  bool operator==(const ScheduleOptions&) const = default;
};

ScheduleOptions::Kind parse_schedule(std::string_view name);  ///< throws std::invalid_argument listing the valid names
std::string_view name_of(ScheduleOptions::Kind kind) noexcept;

class LearningRateSchedule {
 public:
  /// Throws std::invalid_argument on contradictory numbers (decay_steps <= 0, boundaries not ascending …).
  explicit LearningRateSchedule(ScheduleOptions options);
  double at(std::int64_t steps) const noexcept;
  /// Returns the same schedule with all rates multiplied by `factor`.
  LearningRateSchedule scaled(double factor) const;

 private:
  ScheduleOptions options_;
};

/// The linear scaling rule (Goyal et al. 2017): rate * global_batch / reference_batch.
double scale_rate(double rate, std::int64_t global_batch, std::int64_t reference_batch);

}  // namespace lockstep::model
