/// \file
/// Messages between the ranks that train and those that keep the parameters: point to point, each peer in its turn.
///
/// CONTENT. A header of fixed size, and float32 values behind it. Between hosts both are messages of two-sided MPI
/// (one-sided windows lack threads in Open MPI 4). A receive for the next header of each peer is posted all the time;
/// the header says how many values follow, and their receive is posted when it comes. Between ranks of a host nothing
/// passes through MPI: a message lies in a mailbox of memory that both map (HostWindow), and what it is of lies there,
/// too.
///
/// TURNS. A message of megabytes needs MPI to be called many times before it is there, and a peer of this host is heard
/// at once. While values travel MPI therefore gets as much time as the last message took its reader.
///
/// THREADS. A rank may have two ends, one that trains and one that serves, in two threads. Each call holds the
/// session's mutex while it is inside MPI. No call blocks.
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

/// Those of the parameter servers (app::ParameterServer), and the last three of SurvivorWork.
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

/// A message's fields besides its values. Each kind has its own of them; the others stay as they are.
struct ServerHeader {
  MessageKind kind{};
  bool wants_end = false;        ///< push: the round is to end
  bool has_blocks = false;       ///< the values are packed blocks (changed_blocks.hpp)
  bool in_place = false;         ///< they lie in the host's common memory
  bool brings_weights = false;   ///< go: the coordinator's, as values or in that memory
  std::int32_t lost_worker = 0;  ///< lost: its rank
  std::int64_t step = 0, version = 0, steps_done = 0;
  double samples = 0;
  double step_samples = 0;  ///< push: number of samples that the mean loss of the gradient is over
  double loss = 0, metric = 0;
  double squares = 0;  ///< sum of those of the gradient, or of a server's part of it
  double gradient_norm = 0, learning_rate = 0;
  double longest_step = 0;  ///< seconds, as far as the sender knows
};

class ServerMessages {
 public:
  /// A lane is a direction: its messages come from the same lane of the other side.
  enum class Lane { to_servers, to_workers, between_servers, to_judge, from_judge };
  struct Options {
    Lane send, receive;
    std::vector<int> peers;  ///< ranks of the session
    HostWindow* window;      ///< outlives this
  };
  struct Received {
    int peer = 0;  ///< index in Options::peers
    ServerHeader header;
    std::span<const float> values;  ///< until the next poll()

    /// into = the values; where they are blocks, the rest of `into` stays. Throws PeerError where they do not fit.
    void copy_to(std::span<float> into) const;
  };

  /// Posts the receives. `session` outlives this. Throws PeerError.
  ServerMessages(MpiSession& session, const Options& options);
  /// Calls the receives back. Memory that MPI may still use stays until MPI has ended.
  ~ServerMessages();
  ServerMessages(const ServerMessages&) = delete;
  ServerMessages& operator=(const ServerMessages&) = delete;

  int peers() const noexcept;
  /// All peers are within reach.
  bool all_near() const noexcept;
  /// Copies what is sent; returns at once. To a peer within reach no more values than there are ranks. Throws
  /// PeerError, std::invalid_argument where the values are more than MPI can count.
  void send(int peer, const ServerHeader& header, std::span<const float> values = {});
  /// Likewise; of the values these blocks alone, where that is shorter.
  void send_blocks(int peer, ServerHeader header, std::span<const float> values, std::span<const std::uint32_t> blocks);
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

/// One end's wait for messages: the same for workers, servers, and who judges a collective. If all that may send are on
/// this host, the end polls at full speed for a while, unless others need the core, then sleeps until its bell rings;
/// else it sleeps for a moment between polls.
class MessageWait {
 public:
  struct Options {
    HostWindow::End end;
    bool lends = false;                      ///< another thread of this rank may need the core
    std::vector<ServerMessages*> messages;   ///< those that bring something, or that this end sends
    std::function<double()> limit_seconds;   ///< the longest time without a message
    std::function<bool()> look_around = {};  ///< called every 0.1 s; true: the others are busy, which is excused
  };
  enum class Poll { nothing, something, over };

  /// `window` and the messages outlive this.
  MessageWait(HostWindow& window, Options options);
  /// Polls until it is over. False: nothing has come for too long (Patience).
  bool until(const std::function<Poll()>& poll);
  /// Everything that this end sends has left. Throws PeerError.
  bool all_sent();
  /// After until() was false: for so many seconds.
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
