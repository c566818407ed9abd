/// \file
/// Messages between the ranks that train and those that keep the parameters: point to point, each peer in its turn.
///
/// WHAT TRAVELS. A note of fixed size, and float32 values behind it. Between hosts both are messages of two-sided MPI
/// (one-sided windows lack threads in Open MPI 4). A receive for the next note of each peer is posted all the time; the
/// note says how many values follow, and their receive is posted when it comes. Between ranks of a host nothing passes
/// through MPI: a note lies in a mailbox of memory that both map (HostWindow), and what it is of lies there, too.
///
/// TURNS. A message of megabytes needs MPI to be called many times before it is there, and a peer of this host is heard
/// at once. While values travel MPI therefore gets as much time as the last message took its reader.
///
/// THREADS. A rank may have two ends, one that trains and one that serves, in two threads. Each call holds the
/// session's mutex while it is inside MPI. No call blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/servers/host_window.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// A message's fields besides its values. Their meaning is the protocol's matter.
struct ServerNote {
  std::int32_t kind = 0;
  std::int32_t flags = 0;
  std::int64_t step = 0, version = 0, done = 0;
  double samples = 0, divisor = 0, loss = 0, metric = 0, squares = 0, rate = 0, longest = 0;
};

class ServerMessages {
 public:
  /// A lane says who hears whom: its messages come from the same lane of the other side.
  enum class Lane { to_servers, to_workers, between_servers, to_judge, from_judge };
  struct Options {
    Lane send, receive;
    std::vector<int> peers;  ///< ranks of the session
    HostWindow* window;      ///< outlives this
  };
  struct Received {
    int peer = 0;  ///< index in Options::peers
    ServerNote note;
    std::span<const float> values;  ///< until the next poll()
  };

  /// Posts the receives. `session` outlives this. Throws PeerError.
  ServerMessages(MpiSession& session, const Options& options);
  /// Calls the receives back. Memory that MPI may still use stays until MPI has ended.
  ~ServerMessages();
  ServerMessages(const ServerMessages&) = delete;
  ServerMessages& operator=(const ServerMessages&) = delete;

  int peers() const noexcept;
  /// Copies what is sent; returns at once. To a peer within reach no more values than there are ranks. Throws
  /// PeerError, std::invalid_argument where the values are more than MPI can count.
  void send(int peer, const ServerNote& note, std::span<const float> values = {});
  /// The next message, if there is one: of the peers in turn, from the one behind the last on, whether what they say
  /// comes through memory or through MPI. Throws PeerError.
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
