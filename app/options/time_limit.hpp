/// \file
/// The time limit of a job, in the notation of users and schedulers.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::app {

/// Parses a whole number that consists of digits only. Returns nullopt for other text.
std::optional<std::int64_t> parse_digits(std::string_view text);

struct TimeLimit {
  enum class Kind {
    scheduler,  ///< the Slurm job's time limit, if there is one
    none,
    given,
  };
  Kind kind = Kind::scheduler;
  double seconds = 0;  ///< the limit for Kind::given
  bool operator==(const TimeLimit&) const = default;
};

/// Parses a number of seconds ("90"), or [D-]HH:MM[:SS] as schedulers write it ("12:00" is twelve hours, "1-00:30").
/// Returns seconds, or nullopt if the text is neither or is not above 0.
std::optional<double> parse_time_limit(std::string_view text);

}  // namespace lockstep::app
