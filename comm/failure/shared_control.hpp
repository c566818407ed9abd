/// \file
/// Data that a rank shows to the ranks on its machine: its progress, its activity, and one small message.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/session/bell.hpp"

namespace lockstep::comm {

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, barrier, memory };

/// "an all-reduce": for messages.
const char* with_article(Collective operation);

/// A rank's arguments of a barrier; must be equal on all ranks.
struct CollectiveCall {
  Collective operation = Collective::barrier;
  std::uint8_t element_bytes = 1;
  std::uint64_t count = 0;
  std::uint64_t address = 0;  ///< address in the common memory, 0 for private memory

  bool operator==(const CollectiveCall&) const = default;
  std::string describe() const;
};

/// Manner of a rank's leave: in order or with an error of its own, or because it has seen another one die.
enum class Farewell : std::uint32_t { none, own_account, of_witness };

/// The first page of a rank's control segment. Zeros are a valid start, except for the step, which is -1. Only its rank
/// writes to it; ranks that sleep on its bell also write the bell.
///
/// A barrier (see SharedMemoryCommunicator) has a number, counted alike on all ranks. A rank's arguments of barrier n
/// are in the half n % 2. They are overwritten at barrier n + 2, which the rank enters only after all ranks have come
/// to n + 1 and thus have read the arguments of n.
struct SharedControl {
  static constexpr std::size_t kMessageBytes = 512;

  std::uint64_t nonce;  ///< equal to the nonce in the rank's PeerInfo if this is really its segment
  /// Line 1 has all that a barrier without a message touches: its number, its sleepers, the calls.
  alignas(64) Bell arrived;
  std::array<std::array<std::atomic<std::uint64_t>, 3>, 2> call;
  /// Line 2: its last known activity.
  alignas(64) std::atomic<std::int64_t> step;
  std::atomic<std::uint32_t> in_long_operation;
  std::atomic<Farewell> farewell;
  std::atomic<std::uint32_t> ended_by;  ///< signal that ends it; 0: none
  std::atomic<std::uint64_t> progress;  ///< grows while it moves data for which others of its machine wait
  std::array<std::atomic<std::uint64_t>, 6> activity;
  std::array<std::atomic<std::uint64_t>, 16> wait;  ///< other cause of waiting than peers (set_wait)
  /// Line 6, for the sums that overtake others (TwoLevelCommunicator): the last one to which it has brought its terms,
  /// their number, and the last one whose sums it has written.
  alignas(64) std::atomic<std::uint32_t> urgent_brought;
  std::atomic<std::uint32_t> urgent_summed;
  std::atomic<std::uint64_t> urgent_count;
  alignas(64) std::array<std::array<std::byte, kMessageBytes>, 2> message;

  void set_call(std::uint32_t barrier, const CollectiveCall& own_call) noexcept;
  CollectiveCall call_at(std::uint32_t barrier) const noexcept;
  void set_activity(const char* what) noexcept;
  /// "waiting for input (x.h5, 12 s)", cut to 127 bytes; "": not waiting.
  void set_wait(std::string_view text) noexcept;
  std::string wait_text() const;
  /// "step 41: backward"; "the start" before the first note.
  std::string last_seen() const;
};

static_assert(sizeof(SharedControl) <= 4096 && std::atomic<std::uint64_t>::is_always_lock_free);

}  // namespace lockstep::comm
