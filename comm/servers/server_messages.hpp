/// \file
/// Messages between the ranks that train and those that keep the parameters: point to point, whoever comes first is
/// heard first.
///
/// WHAT TRAVELS. A note of fixed size, and float32 values behind it. One receive per peer lies ready all the time, so
/// nobody who sends waits for the other side, and the memory is one message per peer. Two-sided MPI: one-sided windows
/// lack threads in Open MPI 4. Between ranks of a host nothing passes through MPI: a note lies in a mailbox of memory
/// that both map (HostWindow), and what it is of lies there, too.
///
/// THREADS. A rank may have two ends, one that trains and one that serves, in two threads; they share a mutex, and each
/// call holds it while it is inside MPI (MPI_THREAD_SERIALIZED). No call blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "comm/servers/host_window.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// What a message says besides its values. What the fields mean is the protocol's matter.
struct ServerNote {
  std::int32_t kind = 0;
  std::int32_t flags = 0;
  std::int64_t step = 0, version = 0;
  double samples = 0, divisor = 0, loss = 0, metric = 0, squares = 0, rate = 0;
};

/// A mutex whose threads take turns: a server that always has something to hear must not shut out the worker beside it.
class TurnMutex {
 public:
  void lock() noexcept {
    const std::uint32_t turn = next_.fetch_add(1, std::memory_order_relaxed);
    while (now_.load(std::memory_order_acquire) != turn) std::this_thread::yield();
  }
  void unlock() noexcept { now_.fetch_add(1, std::memory_order_release); }

 private:
  std::atomic<std::uint32_t> next_{0}, now_{0};
};

class ServerMessages {
 public:
  /// Who hears whom: messages of a lane come from the same lane of the other side.
  enum class Lane { to_servers, to_workers, between_servers, to_judge, from_judge };
  struct Options {
    Lane send, receive;
    std::vector<int> peers;  ///< ranks of the session
    /// Received in one message of each peer; of one within reach, as many as there are ranks, whatever this says.
    std::vector<std::size_t> most_values;
    std::shared_ptr<TurnMutex> mpi;
    HostWindow* window;  ///< outlives this
  };
  struct Received {
    int peer = 0;  ///< index in Options::peers
    ServerNote note;
    std::span<const float> values;  ///< until the next poll()
  };

  /// Posts the receives. `session` outlives this. Throws PeerError, std::invalid_argument where a message would be
  /// larger than MPI can count.
  ServerMessages(MpiSession& session, const Options& options);
  /// Calls the receives back. Memory that MPI may still use stays until MPI has ended.
  ~ServerMessages();
  ServerMessages(const ServerMessages&) = delete;
  ServerMessages& operator=(const ServerMessages&) = delete;

  int peers() const noexcept;
  /// Copies what is sent; returns at once. To a peer within reach no more values than there are ranks. Throws
  /// PeerError.
  void send(int peer, const ServerNote& note, std::span<const float> values = {},
            HostWindow::Haste haste = HostWindow::Haste::at_once);
  /// The next message, if there is one. Throws PeerError.
  std::optional<Received> poll();
  /// Everything that was sent has left. Throws PeerError.
  bool all_sent();
  /// Bytes sent and received so far.
  std::uint64_t bytes() const noexcept;
  /// Nothing is sent to this peer from here on, and nothing heard of it.
  void forget(int peer);

 private:
  struct Lines;
  std::shared_ptr<Lines> lines_;
};

}  // namespace lockstep::comm
