/// \file
/// Ranks of one machine and their shared memory: barriers, and the windows for reductions.
///
/// BARRIERS are the only primitive. Each rank has a counter in its own cache line. At a barrier it adds one and waits
/// until every peer's counter has caught up. It polls at full speed for 50 us and yields for up to 200 us. Then it
/// sleeps on the peer's counter (Bell) in slices of 100 ms, to check the deadline and to know the missing rank; if sums
/// may overtake (network_communicator.hpp), in slices of 50 to 200 us. Ranks that outnumber their cores sleep at once.
/// A barrier costs p - 1 reads of a line, each 0.2 us between two cores. With its counter a rank publishes its present
/// collective. Ranks in different collectives stop there, before they add unrelated data.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/failure/shared_control.hpp"
#include "comm/host/descriptor_exchange.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/host/shared_segment.hpp"
#include "comm/session/deadline.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// The share of one of `size` in `count` elements: nearly equal pieces cut at cache lines, so that no two ranks write
/// to one line.
template <class T>
Slice piece_of(std::size_t count, int position, int size) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  const std::size_t lines = (count + kLine - 1) / kLine;
  const auto r = static_cast<std::size_t>(position), p = static_cast<std::size_t>(size);
  const std::size_t begin = std::min(count, lines * r / p * kLine), end = std::min(count, lines * (r + 1) / p * kLine);
  return {.offset = begin, .count = end - begin};
}

/// Ranks of the group are identified by position; messages use their ranks in the session.
class SharedGroup {
 public:
  /// Size of the segment that each rank creates before the rendezvous. Its nonce is in the rank's PeerInfo.
  static std::size_t control_bytes() noexcept;
  static void initialize_control(SharedSegment& segment, std::uint64_t nonce);
  /// The ranks' control segments, and the exchange for further ones; no exchange for a rank that is alone.
  struct Shared {
    std::vector<SharedSegment> controls;
    std::unique_ptr<DescriptorExchange> exchange;
  };
  /// For a rank that shares with no other. Throws std::runtime_error.
  static Shared alone();
  /// Collective over `ranks`: maps their segments, including `own`. Throws std::runtime_error if one cannot be mapped
  /// or does not arrive within `seconds`.
  static Shared attach_all(const PeerTable& peers, std::span<const int> ranks, int own_rank, SharedSegment own,
                           std::unique_ptr<DescriptorExchange> exchange, double seconds);

  /// `ranks` ascend; `shared`: their segments. `detector`, which gets the ranks' pages, outlives this.
  SharedGroup(std::vector<int> ranks, Shared shared, FailureDetector& detector);

  /// Takes leave of the peers, so that they do not report this rank as dead if it ends with an error of its own.
  ~SharedGroup();
  SharedGroup(const SharedGroup&) = delete;
  SharedGroup& operator=(const SharedGroup&) = delete;

  int size() const noexcept { return static_cast<int>(ranks_.size()); }
  int position() const noexcept { return position_; }
  /// Ranks in the session, by position.
  const std::vector<int>& ranks() const noexcept { return ranks_; }
  SharedControl& control(int position) const noexcept {
    return *reinterpret_cast<SharedControl*>(controls_[static_cast<std::size_t>(position)].data());
  }
  SharedControl& own_control() const noexcept { return control(position_); }

  void barrier(const CollectiveCall& call);
  /// True if that rank has arrived at this rank's present barrier.
  bool has_arrived(int position) const noexcept;

  /// This rank's message for the next barrier, and the message of `position` at the last one.
  std::byte* next_message() noexcept { return own_control().message[(barrier_ + 1) % 2].data(); }
  const std::byte* message(int position) const noexcept { return control(position).message[barrier_ % 2].data(); }

  /// Size of a small buffer of every rank, mapped by all.
  static constexpr std::size_t kBounceBytes = 256 * 1024;
  std::byte* bounce(int position) const noexcept;

  /// Collective: memory that all ranks map. On failure, null, and `error` has the reason, the same on all ranks of the
  /// group. It must be destroyed before this.
  std::unique_ptr<ReductionMemory> take_memory(std::size_t bytes, std::string& error);
  /// Finds every rank's copy of `data`: fills `buffers` (size() of them), and returns its common address, which is the
  /// same on all ranks; 0 if data is in other memory, or empty.
  template <class T>
  std::uint64_t find_common(std::span<T> data, std::vector<T*>& buffers) const;

 private:
  /// The ranks' buffers from one take_memory.
  struct Window {
    std::uint64_t number = 0;
    std::vector<SharedSegment> segments;
  };

  /// Exchanges the own segment's descriptor for those of the other members' segments, in their order.
  static std::vector<int> exchange_descriptors(DescriptorExchange& exchange, int descriptor, const PeerTable& peers,
                                               std::span<const int> ranks, int own_rank, double seconds);
  void wait_for(int position, const CollectiveCall& call);
  void watch_peers(const CollectiveCall& call, Patience& patience);
  /// Longest sleep of a rank before it looks for a sum that overtakes, and at its peers.
  std::chrono::microseconds slice() const noexcept;

  std::vector<int> ranks_;
  int position_;
  std::vector<SharedSegment> controls_;
  std::unique_ptr<DescriptorExchange> exchange_;
  FailureDetector& detector_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::uint64_t windows_made_ = 0;
  std::uint32_t barrier_ = 0;  ///< number of the last barrier entered
  std::uint64_t progress_seen_ = 0;
};

template <class T>
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
