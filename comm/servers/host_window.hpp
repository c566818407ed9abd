/// \file
/// Shared memory of the workers and servers on one host: mailboxes, bells that wake sleeping ranks, and the version of
/// each server's weights. Gradients and weights themselves lie in other shared memory, so messages do not copy them.
///
/// MAILBOXES. A rank has one mailbox per lane for each rank of its host. A mailbox is a lock-free ring buffer with one
/// writer and one reader. A rank of another host takes only a place for its number in a message's list of ranks.
///
/// BELLS. A rank has one bell for its worker and one for its server. The sender of a message rings the receiver's bell.
/// A waiting rank (MessageWait) reads its bell's count, looks for messages, and sleeps until the count changes. So
/// where ranks outnumber cores, waiting ranks leave the cores to computing ones.
///
/// VERSIONS. A server may begin to change its weights while other ranks copy them. It marks the version before and
/// after the change, and a reader detects a change during its copy (a sequence lock). Within one process a mutex
/// excludes the server's thread and the reader from each other.
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
  /// A rank may have both ends, in two threads.
  enum class End { worker, server };
  static constexpr int kLanes = 5;
  static constexpr std::size_t kMessage = 128;  ///< bytes of a message without its list of ranks
  /// Bytes that the constructor allocates with `ranks` ranks, `near` of them on this host.
  static std::size_t bytes(int ranks, int near) noexcept;
  /// Collective: the largest such number of any rank; the same on all.
  static std::size_t bytes(Communicator& communicator);

  /// Collective. `memory` is reduction_memory() of the communicator. On all ranks of a host the allocation must get the
  /// same place in it. All arguments outlive this.
  HostWindow(MpiSession& session, const Communicator& communicator, std::pmr::memory_resource& memory);

  /// Returns true if this rank shares memory with `rank`, or is `rank`.
  bool reaches(int rank) const noexcept { return control(rank) != nullptr; }
  /// True if this host has more ranks than cores: a waiting rank then gives up its core.
  bool oversubscribed() const noexcept { return oversubscribed_; }

  /// Puts a message, `head` and then `tail`, into the mailbox of `rank`, which must be reachable. Returns false if the
  /// mailbox is full. Throws std::invalid_argument if the message is too long.
  bool leave(int rank, int lane, std::span<const std::byte> head, std::span<const std::byte> tail);
  /// Returns the oldest message from `rank`, which must be reachable, that has not been taken; empty if there is none.
  std::span<const std::byte> message_of(int rank, int lane) const noexcept;
  /// Removes that message.
  void take(int rank, int lane) noexcept;

  /// Wakes this end of `rank`, which must be reachable.
  void ring(int rank, End end) noexcept { bell(rank, end).ring(); }
  /// The bell of one of this rank's ends.
  Bell& own_bell(End end) noexcept { return bell(rank_, end); }

  /// Scope of a change to the weights of this rank's server. They have `version` after it.
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
  /// Copies weights of the server on `rank`, which must be reachable. Returns false, with `to` unspecified, if the
  /// weights are older than version `least`, or if a change is under way or began during the copy.
  bool read(int rank, std::int64_t least, std::span<const float> from, std::span<float> to);

 private:
  struct Control {
    alignas(64) Bell of_worker;
    alignas(64) Bell of_server;
    alignas(64) std::atomic<std::uint64_t> version;  ///< 0: no weights yet; 2 * version + 2; odd during a change
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  /// Head of a ring buffer. kSlots slots follow it; each holds the number of bytes and the message.
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
  std::vector<Control*> controls_;  ///< control block of each rank; nullptr: not reachable
  std::vector<int> positions_;      ///< index of each rank among the reachable ones; -1: not reachable
  std::mutex changing_;             ///< excludes this rank's own threads from changes of its weights
};

}  // namespace lockstep::comm
