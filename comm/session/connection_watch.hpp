/// \file
/// Detects the death of a neighbour on another host within moments: when a process ends for any reason, its host's
/// kernel closes its connections.
///
/// Each rank keeps one TCP connection to the rank after it and one to the rank before it, if these run on other
/// machines (PeerTable sees more of processes on the same machine). Only one byte of farewell travels on them, when a
/// leaves in order; a connection that ends without it is a death. A host that falls silent ends no connection, but
/// stops answering the kernel's probes. This causes only a warning, because the host may return before the deadline. A
/// network that refuses a connection is not an error; the neighbour is then not watched.
///
/// AFTER A DEATH the rank before the dead one connects to the next living rank, so that all remaining ranks are watched
/// as before. If that rank's host answers that nobody listens, the rank has died, too, for example together with others
/// of its host. A stopped process still has its port and does not count as dead.
///
/// STRANGERS may connect to the port, as to any port. A connection that does not present this rank's nonce, which
/// travels only over MPI, is not accepted, and keeps nobody out. The watch uses the interfaces in Open MPI's
/// btl_tcp_if_include and btl_tcp_if_exclude, if these are set. Ranks that share one machine do not listen.
///
/// COST. A listening socket, two connections and a thread that sleeps in poll(2). The thread also makes the
/// connections, so the start waits for nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace lockstep::comm {

/// Address at which a rank accepts its neighbour; sent as bytes.
struct WatchAddress {
  struct Host {
    std::int32_t family = 0;  ///< AF_INET or AF_INET6; 0: none
    std::array<std::uint8_t, 16> bytes{};
  };
  std::uint64_t nonce = 0;    ///< required start of a connection; addresses of private networks may reach a wrong host
  std::uint64_t machine = 0;  ///< equal to the rank's PeerInfo
  std::uint16_t port = 0;     ///< 0: accepts nobody
  std::int32_t pid = 0;
  std::array<char, 64> name{};  ///< name of its host
  std::array<Host, 8> hosts{};
};

class ConnectionWatch {
 public:
  /// Listens on a port that the system selects.
  ConnectionWatch(int rank, std::uint64_t machine);
  /// Takes leave.
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  const WatchAddress& address() const noexcept { return own_; }
  /// Takes the addresses of all ranks, in rank order. Call it once.
  void join(std::span<const WatchAddress> all);
  /// True if `rank` is known to be dead: covers neighbours, and ranks that would have become neighbours. Any thread may
  /// call it.
  bool is_dead(int rank) const noexcept;
  /// Number of established connections, 0 to 2.
  int neighbours() const noexcept { return neighbours_.load(std::memory_order_acquire); }
  /// Declares that this process ends in order from here on. Any thread may call it.
  void take_leave() noexcept;

  /// Called by the watch's thread every tenth of a second after the first death, for callers whose own thread may be
  /// blocked. It may end the process.
  using Look = std::function<void()>;
  std::list<Look>::iterator add_look(Look look);
  void remove_look(std::list<Look>::iterator look);

 private:
  struct Connections;

  void watch(const std::stop_token& stop);
  void note_dead(int rank);
  void end_search();

  WatchAddress own_;
  std::unique_ptr<Connections> connections_;
  std::vector<std::atomic<bool>> dead_;  ///< one flag per rank, from join() on
  std::atomic<int> neighbours_{0};
  std::mutex looks_mutex_;
  std::list<Look> looks_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
