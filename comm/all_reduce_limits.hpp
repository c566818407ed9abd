/// \file
/// Selects the schedule of an all-reduce between hosts: few rounds for small sums, the ring for large ones.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// Algorithm of a sum between hosts; comm/host/ring_group.hpp describes them.
enum class AllReduceSchedule { doubling, halving, ring };
/// "doubling", "halving", "ring".
std::string_view name_of(AllReduceSchedule schedule) noexcept;

/// Size limits of the schedules: a rule of the size alone, so that a run repeats bit for bit.
struct AllReduceLimits {
  std::size_t doubling = 0;  ///< largest sum by doubling, in bytes
  std::size_t halving = 0;   ///< largest sum by halving, in bytes; larger ones take the ring

  AllReduceSchedule schedule(std::size_t bytes) const noexcept {
    return bytes <= doubling  ? AllReduceSchedule::doubling
           : bytes <= halving ? AllReduceSchedule::halving
                              : AllReduceSchedule::ring;
  }
  /// The rule for a ring of `positions` on a network that has `in_flight` bytes under way during one message's latency
  /// (latency times bandwidth). Doubling takes sums of up to this size. Halving takes sums that gain from the messages
  /// it saves (eight times `in_flight` for each pair of messages that a ring would need in addition).
  static AllReduceLimits of_network(int positions, std::size_t in_flight) noexcept;
  /// The rule for most networks.
  static AllReduceLimits usual(int positions) noexcept { return of_network(positions, kUsuallyInFlight); }
  /// 10 Gbit/s and 13 us, or 100 Gbit/s and 1.3 us.
  static constexpr std::size_t kUsuallyInFlight = std::size_t{16} << 10;
  /// The same schedule for all sums except the smallest, which fit one message.
  static AllReduceLimits all_by(AllReduceSchedule schedule) noexcept;
  bool operator==(const AllReduceLimits&) const = default;
};
/// Selects the source of the limits.
struct AllReduceChoice {
  std::optional<AllReduceLimits> limits = {};  ///< nullopt: AllReduceLimits::usual
  /// The limits under which sums are fastest on the present network, measured when a communicator is made
  /// (comm/host/schedule_times.hpp). `limits` is then ignored.
  bool measured = false;
  bool operator==(const AllReduceChoice&) const = default;
};

/// Measured times of a sum of one size, by each schedule.
struct ScheduleSeconds {
  std::size_t bytes = 0;
  std::array<double, 3> seconds = {};  ///< by AllReduceSchedule, each > 0
  double by(AllReduceSchedule schedule) const noexcept { return seconds[static_cast<std::size_t>(schedule)]; }
};
/// The limits, among these sizes (ascending), with the least time in the geometric mean: one badly timed size does not
/// decide. Without sizes: no sum by doubling or halving.
AllReduceLimits best_limits(std::span<const ScheduleSeconds> sizes);

/// "by doubling up to 16 KiB, by halving up to 1 MiB, then by the ring"
std::string to_text(const AllReduceLimits& limits);

}  // namespace lockstep::comm
