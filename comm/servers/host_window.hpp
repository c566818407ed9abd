/// \file
/// Memory that workers and servers on one host map in common: mailboxes, bells that wake ranks that sleep, and the
/// version of the weights that lie there. Gradients and weights themselves lie in arenas of such memory, so that
/// nothing copies them into messages.
///
/// MAILBOXES. A rank has one for each lane of each rank of its host: a ring of messages with one writer and one reader,
/// without locks. Ranks of other hosts take no memory but for their number in a list of ranks.
///
/// BELLS. A rank has one for its worker and one for its server. The sender of a message rings the receiver's. A rank
/// that waits (MessageWait) remembers how often its bell has rung, looks for messages, and sleeps until it rings again:
/// where ranks outnumber cores those that compute have them.
///
/// VERSIONS. Readers take a server's weights while it may begin to change them. It marks the change before and after,
/// and a reader that has met one knows that (a sequence lock). Within a process, where the server is a thread beside
/// the reader, they exclude each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session/bell.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

class HostWindow {
 public:
  /// A rank may have both, in two threads.
  enum class End { worker, server };
  static constexpr int kLanes = 5;
  static constexpr std::size_t kMessage = 128;  ///< bytes of a message; behind it is room for a number for each rank
  /// Taken from the memory where there are so many ranks, and `near` of them on a host.
  static std::size_t bytes(int ranks, int near) noexcept;
  /// Collective: the most that a rank takes, the same on all.
  static std::size_t bytes(Communicator& communicator);

  /// Collective. `memory` is reduction_memory() of the communicator, and on all ranks of a host this takes the same
  /// place in it. All outlive this.
  HostWindow(MpiSession& session, const Communicator& communicator, std::pmr::memory_resource& memory);

  /// This one is among the ranks that share memory with `rank` (or is it).
  bool reaches(int rank) const noexcept { return control(rank) != nullptr; }
  /// More ranks than cores: who waits leaves them to others.
  bool oversubscribed() const noexcept { return oversubscribed_; }

  /// Leaves a message for `rank`, which is within reach. False: its mailbox is full. Throws std::invalid_argument where
  /// the two parts together are longer than a message.
  bool leave(int rank, int lane, std::span<const std::byte> head, std::span<const std::byte> tail);
  /// The oldest message of a rank within reach that has not been taken; empty: there is none.
  std::span<const std::byte> message_of(int rank, int lane) const noexcept;
  /// Marks that message as read.
  void take(int rank, int lane) noexcept;

  /// Wakes that end of a rank within reach.
  void ring(int rank, End end) noexcept { bell(rank, end).ring(); }
  /// The bell of an end of this rank.
  Bell& own_bell(End end) noexcept { return bell(rank_, end); }

  /// Scope of a change to the weights of this rank's server, which are of `version` after it.
  class Change {
   public:
    Change(HostWindow& window, std::int64_t version);
    ~Change();
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    HostWindow& window_;
    std::int64_t version_;
  };
  /// to = from, weights of the server on `rank`, which is within reach. False, and `to` is unspecified: they are of a
  /// version before `least`, or have begun to change.
  bool read(int rank, std::int64_t least, std::span<const float> from, std::span<float> to);

 private:
  struct Control {
    alignas(64) Bell of_worker;
    alignas(64) Bell of_server;
    alignas(64) std::atomic<std::uint64_t> version;  ///< 0: none; twice the version and 2; odd: it changes
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  /// Messages follow it, kSlots of them, each the number of its bytes and these.
  struct Mailbox {
    alignas(64) std::atomic<std::uint32_t> left;
    alignas(64) std::atomic<std::uint32_t> taken;
  };
  static constexpr std::uint32_t kSlots = 8;
  static std::size_t slot_bytes(int ranks) noexcept;
  Mailbox& mailbox(int of, int from, int lane) const noexcept;
  std::byte* slot(Mailbox& box, std::uint32_t number) const noexcept;

  Control* control(int rank) const noexcept { return controls_[static_cast<std::size_t>(rank)]; }
  Bell& bell(int rank, End end) const noexcept {
    return end == End::worker ? control(rank)->of_worker : control(rank)->of_server;
  }

  int rank_;
  std::size_t slot_bytes_;
  bool oversubscribed_;
  std::vector<Control*> controls_;  ///< control block of each rank; nullptr: out of reach
  std::vector<int> positions_;      ///< position of each rank among those within reach
  std::mutex changing_;             ///< guards changes of this rank's weights: for its own threads
};

}  // namespace lockstep::comm
