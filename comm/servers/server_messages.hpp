/// \file
/// Point-to-point messages between the ranks that train and the ranks that keep the parameters.
///
/// CONTENT. A header of fixed size, then float32 values. Between hosts each part is a two-sided MPI message, because
/// one-sided windows do not support threads in Open MPI 4. Each peer on another host always has a posted receive for
/// its next header. The header gives the number of values, and their receive is posted when it arrives. Between ranks
/// of a host MPI is not used: the message lies in a mailbox in shared memory (HostWindow), and gradients and weights
/// lie in shared memory, too.
///
/// FAIRNESS. poll() serves the peers in turn. MPI must be called many times before a message of megabytes is complete,
/// while a message of a peer on this host is there at once. So while values are under way, poll() gives MPI as much
/// time as the caller spent on the previous message.
///
/// THREADS. A rank may have two ends in two threads: one trains, one serves. Each call holds the session's mutex while
/// it is inside MPI. No call blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/servers/host_window.hpp"
#include "comm/session/backoff.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// The last three belong to SurvivorWork, the others to the parameter servers (app::ParameterServer).
enum class MessageKind : std::uint8_t {
  go,
  pause,
  pull,
  part,
  push,
  bye,
  decided,
  squares,
  drain,
  lost,
  end,
  done,
  again,
  give_up
};

/// Fields of a message besides its values. Each kind uses some of them; the others keep their defaults.
struct ServerHeader {
  MessageKind kind{};
  bool wants_end = false;        ///< push: asks for the end of the round
  bool has_blocks = false;       ///< the values are packed blocks (changed_blocks.hpp)
  bool in_place = false;         ///< the values lie in the host's shared memory, not in the message
  bool brings_weights = false;   ///< go: the message has the coordinator's weights, or they are in shared memory
  std::int32_t lost_worker = 0;  ///< lost: rank of the dead worker
  std::int64_t step = 0, version = 0, steps_done = 0;
  double samples = 0;
  double step_samples = 0;  ///< push: number of samples in the gradient's mean loss
  double loss = 0, metric = 0;
  double squares = 0;  ///< sum of squares of the gradient, or of a server's part of it
  double gradient_norm = 0, learning_rate = 0;
  double longest_step = 0;  ///< longest step that the sender knows of, in seconds
};

class ServerMessages {
 public:
  /// The direction of messages. Both sides use the same lane.
  enum class Lane { to_servers, to_workers, between_servers, to_judge, from_judge };
  struct Options {
    Lane send, receive;
    std::vector<int> peers;  ///< ranks in the session
    HostWindow* window;      ///< outlives this
  };
  struct Received {
    int peer = 0;  ///< index in Options::peers
    ServerHeader header;
    std::span<const float> values;  ///< valid until the next poll()

    /// Copies the values to `into`; packed blocks leave the rest of it unchanged. Throws PeerError if the sizes differ.
    void copy_to(std::span<float> into) const;
  };

  /// Posts the receives. `session` and the window outlive this. Throws PeerError.
  ServerMessages(MpiSession& session, const Options& options);
  /// Cancels the receives. Buffers that MPI may still use stay until MPI ends.
  ~ServerMessages();
  ServerMessages(const ServerMessages&) = delete;
  ServerMessages& operator=(const ServerMessages&) = delete;

  int peers() const noexcept;
  /// True if all peers are on this host.
  bool all_near() const noexcept;
  /// Copies the header and the values, and returns at once. A peer on this host can get at most one value per rank of
  /// the session. Throws PeerError, or std::invalid_argument if there are more values than MPI can count.
  void send(int peer, const ServerHeader& header, std::span<const float> values = {});
  /// As send(), but packs these blocks of `values` if that is shorter.
  void send_blocks(int peer, ServerHeader header, std::span<const float> values, std::span<const std::uint32_t> blocks);
  /// Returns the next message, if there is one. Looks at the peers in turn, starting behind the peer of the previous
  /// message. Throws PeerError.
  std::optional<Received> poll();
  /// True if all messages have left their buffers here. Throws PeerError.
  bool all_sent();
  /// Bytes sent and received so far.
  std::uint64_t bytes() const noexcept;
  /// Sends nothing more to this peer, and receives nothing from it.
  void forget(int peer);

 private:
  struct Lines;
  std::shared_ptr<Lines> lines_;
};

/// Waits for messages at one end: of a worker, of a server, or in SurvivorWork. If all peers are on this host, the end
/// polls at full speed for a while, unless others need the core, and then sleeps until its bell rings. Otherwise it
/// sleeps briefly between polls.
class MessageWait {
 public:
  struct Options {
    HostWindow::End end;
    bool lends = false;                     ///< another thread of this rank may need the core
    std::vector<ServerMessages*> messages;  ///< all messages that this end receives or sends
    std::function<double()> limit_seconds;  ///< longest time without a message
    std::function<bool()> watch_peers =
        {};  ///< called every 0.1 s; true: the peers are busy, so the time does not count
  };
  enum class Poll { nothing, something, over };

  /// `window` and the messages outlive this.
  MessageWait(HostWindow& window, Options options);
  /// Calls `poll` until it returns over. Returns false if no message came for limit_seconds() (see Patience).
  bool until(const std::function<Poll()>& poll);
  /// True if all messages of this end have left. Throws PeerError.
  bool all_sent();
  /// The length of the wait in seconds, after until() returned false.
  double waited() const noexcept { return waited_; }

 private:
  void pause(std::uint32_t seen);

  HostWindow& window_;
  Options options_;
  bool near_;
  Backoff backoff_;
  double waited_ = 0;
};

}  // namespace lockstep::comm
