/// \file
/// How a rank learns within moments that a neighbour on another host has died: from the kernel over there, which closes
/// the connections of a process that ends, however it ends.
///
/// Each rank keeps one TCP connection to the rank after it and one to the rank before it, where these run on other
/// machines (of a process on its own machine it sees more: PeerTable). Nothing travels on them but, at the end of a
/// rank that leaves in order, one byte of farewell; a connection that ends without it is a death. A host that falls
/// silent ends no connection, but answers the kernel's questions no longer: a warning, as it may come back before the
/// deadline. A network that does not let a connection through is no error: then there is none.
///
/// AFTER A DEATH the rank before connects to the next one that lives, so that all who are left are watched as before.
/// Where the host of that one answers that nobody listens there, it has died, too: several on one host at once, say.
/// One that is stopped still has its port, and is not taken for dead.
///
/// STRANGERS may connect to the port, as to any. Whoever does not say this rank's nonce, which travels over MPI alone,
/// is not taken in, and keeps nobody out. The watch uses the interfaces that Open MPI's btl_tcp_if_include and
/// btl_tcp_if_exclude name, where they are set. Ranks that share one machine do not listen.
///
/// COST. A listening socket, two connections and a thread that sleeps in poll(2). The thread makes the connections,
/// too: the start waits for nothing.
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

/// Where a rank takes in its neighbour; sent as bytes.
struct WatchAddress {
  struct Host {
    std::int32_t family = 0;  ///< AF_INET or AF_INET6; 0: none
    std::array<std::uint8_t, 16> bytes{};
  };
  std::uint64_t nonce = 0;    ///< what a connection has to begin with; addresses of private networks may lead astray
  std::uint64_t machine = 0;  ///< as on the rank's PeerInfo
  std::uint16_t port = 0;     ///< 0: it takes nobody in
  std::int32_t pid = 0;
  std::array<char, 64> name{};  ///< of its host
  std::array<Host, 8> hosts{};
};

class ConnectionWatch {
 public:
  /// Listens on a port of the system's choice.
  ConnectionWatch(int rank, std::uint64_t machine);
  /// Takes leave.
  ~ConnectionWatch();
  ConnectionWatch(const ConnectionWatch&) = delete;
  ConnectionWatch& operator=(const ConnectionWatch&) = delete;

  const WatchAddress& address() const noexcept { return own_; }
  /// All ranks' addresses, in rank order. Once.
  void join(std::span<const WatchAddress> all);
  /// As far as this rank knows: neighbours, and those that would have become neighbours. From any thread.
  bool is_dead(int rank) const noexcept;
  /// Connections that stand, 0 to 2.
  int neighbours() const noexcept { return neighbours_.load(std::memory_order_acquire); }
  /// From here on the end of this process is in order. From any thread.
  void take_leave() noexcept;

  /// Called from the watch's own thread, every tenth of a second from the first death on: for those whose own thread
  /// may not come back from where it is. It may end the process.
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
  std::vector<std::atomic<bool>> dead_;  ///< of all ranks, from join() on
  std::atomic<int> neighbours_{0};
  std::mutex looks_mutex_;
  std::list<Look> looks_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
