/// \file
/// Which all-reduce between hosts takes which schedule: small ones few rounds, large ones the ring.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
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
  /// The rule for a ring of so many positions over a network that carries so many bytes in the time of a message's way
  /// (latency times bandwidth): by doubling what is in flight at once, by halving what the messages that it saves
  /// outweigh (eight times as much for each pair of messages that a ring takes more).
  static AllReduceLimits of_network(int positions, std::size_t in_flight) noexcept;
  /// The same of what suits most networks.
  static AllReduceLimits usual(int positions) noexcept { return of_network(positions, kUsuallyInFlight); }
  /// 10 Gbit/s and 13 us, or 100 Gbit/s and 1.3 us.
  static constexpr std::size_t kUsuallyInFlight = std::size_t{16} << 10;
  /// All sums but the smallest, which are one message, by the same schedule.
  static AllReduceLimits all_by(AllReduceSchedule schedule) noexcept;
  bool operator==(const AllReduceLimits&) const = default;
};
/// Who says which sums take which schedule.
struct AllReduceChoice {
  std::optional<AllReduceLimits> limits = {};  ///< nullopt: AllReduceLimits::usual
  /// Those by which sums are fastest on the network that is there, found by timing when a communicator is made
  /// (comm/host/schedule_times.hpp). Then `limits` is not read.
  bool measured = false;
  bool operator==(const AllReduceChoice&) const = default;
};

/// How long a sum takes by each schedule.
struct ScheduleSeconds {
  std::size_t bytes = 0;
  std::array<double, 3> seconds = {};  ///< by AllReduceSchedule, each > 0
  double by(AllReduceSchedule schedule) const noexcept { return seconds[static_cast<std::size_t>(schedule)]; }
};
/// The limits, among these sizes (ascending), by which they take the least time in the geometric mean: one size that
/// was timed badly decides nothing. No sizes: no sum by doubling or halving.
AllReduceLimits best_limits(std::span<const ScheduleSeconds> sizes);

/// "by doubling up to 16 KiB, by halving up to 1 MiB, then by the ring"
std::string to_text(const AllReduceLimits& limits);

}  // namespace lockstep::comm
