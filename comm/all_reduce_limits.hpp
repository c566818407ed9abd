/// \file
/// Which all-reduce between hosts takes which schedule: small ones few rounds, large ones the ring.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// How a sum travels between hosts; comm/host/ring_group.hpp has what each is.
enum class AllReduceSchedule { doubling, halving, ring };
/// "doubling", "halving", "ring".
std::string_view name_of(AllReduceSchedule schedule) noexcept;

/// Which sums between hosts take which schedule: a rule of their size and nothing else, so that a run repeats bit for
/// bit.
struct AllReduceLimits {
  std::size_t doubling = 0;  ///< sums of so many bytes and fewer
  std::size_t halving = 0;   ///< larger ones of so many bytes and fewer; still larger ones take the ring

  AllReduceSchedule schedule(std::size_t bytes) const noexcept {
    return bytes <= doubling  ? AllReduceSchedule::doubling
           : bytes <= halving ? AllReduceSchedule::halving
                              : AllReduceSchedule::ring;
  }
  /// The rule that suits most networks, for a ring of so many positions: by doubling what is in flight at once (16
  /// KiB), by halving what the messages that it saves outweigh (128 KiB for each pair of messages that a ring takes
  /// more).
  static AllReduceLimits usual(int positions) noexcept;
  /// All sums but the smallest, which are one message, by the same schedule.
  static AllReduceLimits all_by(AllReduceSchedule schedule) noexcept;
  bool operator==(const AllReduceLimits&) const = default;
};
/// "by doubling up to 16 KiB, by halving up to 1 MiB, then by the ring"
std::string to_text(const AllReduceLimits& limits);

}  // namespace lockstep::comm
