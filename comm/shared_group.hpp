/// \file
/// Ranks of one machine and the memory that all of them map: their meetings, and the windows they reduce in.
///
/// MEETINGS. Everything is built from one primitive: each rank has a counter in a line of its own; to meet, it adds one
/// and waits until every peer's counter has come as far. Waiting is: look a while (50 us at full speed, 200 us lending
/// the core to others), then sleep on the peer's counter (futex) in slices of 100 ms, so that the deadline is checked
/// and the one who has not come is known. Ranks that outnumber their cores sleep at once. A meeting costs p - 1 reads
/// of a line, 0.2 us between two cores. With its counter a rank publishes its errand: ranks that meet for different
/// things stop there, before they reduce apples into pears.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/deadline.hpp"
#include "comm/peers.hpp"
#include "comm/shared_control.hpp"
#include "comm/shared_segment.hpp"

namespace lockstep::comm {

/// The elements of `count` that fall to one of `size`: nearly equal pieces cut at cache lines, so that no two ranks
/// write to one line.
template <typename T>
Slice piece_of(std::size_t count, int position, int size) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  const std::size_t lines = (count + kLine - 1) / kLine;
  const auto r = static_cast<std::size_t>(position), p = static_cast<std::size_t>(size);
  const std::size_t begin = std::min(count, lines * r / p * kLine), end = std::min(count, lines * (r + 1) / p * kLine);
  return {.offset = begin, .count = end - begin};
}

/// How a rank behaves while it waits for the others of its machine.
class MeetingWatch {
 public:
  MeetingWatch() = default;
  virtual ~MeetingWatch() = default;
  MeetingWatch(const MeetingWatch&) = delete;
  MeetingWatch& operator=(const MeetingWatch&) = delete;

  virtual double deadline_seconds() const = 0;
  /// Whether it may keep its core busy for a while.
  virtual bool may_spin() const = 0;
  /// Every 0.1 s of a wait: charges the patience and throws PeerError when it must not go on.
  virtual void look_around(const Errand& errand, Patience& patience) = 0;
};

/// A rank of the group is known by its position; what is said of it names its rank in the session.
class SharedGroup {
 public:
  /// Size of the segment that each rank creates before it introduces itself, and a value for its card.
  static std::size_t control_bytes() noexcept;
  static void initialize_control(SharedSegment& segment, std::uint64_t nonce);
  /// Maps the segments of `ranks`, `own` among them. Throws std::runtime_error when one cannot be mapped.
  static std::vector<SharedSegment> attach_all(const PeerTable& peers, std::span<const int> ranks, int own_rank,
                                               SharedSegment own);

  /// `ranks` ascend; `segments` as from attach_all. `peers` and `watch` outlive this.
  SharedGroup(const PeerTable& peers, std::vector<int> ranks, int own_rank, std::vector<SharedSegment> segments,
              MeetingWatch& watch);

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  int position() const noexcept { return position_; }
  /// Their ranks in the session.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  SharedControl& control(int position) const noexcept {
    return *reinterpret_cast<SharedControl*>(controls_[static_cast<std::size_t>(position)].data());
  }
  SharedControl& own_control() const noexcept { return control(position_); }

  void meet(const Errand& errand);
  /// To the meeting that this rank is at.
  bool has_come(int position) const noexcept;

  /// The message this rank brings to the next meeting, and what the one at `position` brought to the last.
  std::byte* next_message() noexcept { return own_control().message[(meeting_ + 1) % 2].data(); }
  const std::byte* message(int position) const noexcept { return control(position).message[meeting_ % 2].data(); }

  /// A small buffer of every rank that all of them map.
  static constexpr std::size_t kBounceBytes = 256 * 1024;
  std::byte* bounce(int position) const noexcept;

  /// Collective: memory that all ranks map. No memory: `error` says why, the same on all ranks of the group. It must go
  /// before this.
  std::unique_ptr<std::pmr::memory_resource> take_memory(std::size_t bytes, std::string& error);
  /// Where every rank of the group has what this one has at `data`: fills `buffers` (size() of them) and returns its
  /// place, which is the same on all; 0 when data lies elsewhere or is empty.
  template <typename T>
  std::uint64_t find_common(std::span<T> data, std::vector<T*>& buffers) const;

 private:
  /// The ranks' buffers for one take_memory.
  struct Window {
    std::uint64_t number = 0;
    std::vector<SharedSegment> segments;
  };

  void wait_for(int position, const Errand& errand);

  const PeerTable& peers_;
  std::vector<int> ranks_;
  int position_;
  std::vector<SharedSegment> controls_;
  MeetingWatch& watch_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::uint64_t windows_made_ = 0;
  std::uint32_t meeting_ = 0;
};

template <typename T>
std::uint64_t SharedGroup::find_common(std::span<T> data, std::vector<T*>& buffers) const {
  constexpr int kNumberShift = 44;  // 16 TiB of offsets
  const auto begin = reinterpret_cast<std::uintptr_t>(data.data());
  for (const auto& window : windows_) {
    const SharedSegment& own = window->segments[static_cast<std::size_t>(position_)];
    const auto offset = static_cast<std::size_t>(begin - reinterpret_cast<std::uintptr_t>(own.data()));
    if (data.empty() || offset >= own.size() || own.size() - offset < data.size_bytes()) continue;
    for (std::size_t peer = 0; peer < buffers.size(); ++peer) {
      buffers[peer] = reinterpret_cast<T*>(window->segments[peer].data() + offset);
    }
    return window->number << kNumberShift | offset;
  }
  return 0;
}

}  // namespace lockstep::comm
