/// \file
/// The time that a job may take, as users and schedulers write it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::app {

/// A whole number, of digits alone.
std::optional<std::int64_t> parse_digits(std::string_view text);

struct TimeLimit {
  enum class Kind {
    scheduler,  ///< as long as the Slurm job, where there is one
    none,
    given,
  };
  Kind kind = Kind::scheduler;
  double seconds = 0;  ///< of Kind::given
  bool operator==(const TimeLimit&) const = default;
};

/// Seconds: a number of them, or [D-]HH:MM[:SS] as schedulers write it ("90", "12:00" is twelve hours, "1-00:30").
/// nullopt: neither, or not above 0.
std::optional<double> parse_time_limit(std::string_view text);

}  // namespace lockstep::app
