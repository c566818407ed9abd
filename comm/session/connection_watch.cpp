#include "comm/session/connection_watch.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/session/network_interfaces.hpp"
#include "comm/session/start_guard.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

/// Time limit for a neighbour's introduction.
constexpr std::chrono::seconds kIntroduction{20};
/// Largest number of connections that may await introduction at once.
constexpr std::size_t kMaxIntroductions = 64;
constexpr std::uint8_t kFarewell = 'F';
/// A host that is silent for kQuiet seconds is probed once a second, and given up after kQuestions probes.
constexpr int kQuiet = 2, kQuestions = 3;
/// Two hosts that fall silent together do so within this time.
constexpr std::chrono::seconds kBothSilent{3};
constexpr int kLookMs = 100;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const noexcept { return descriptor_; }
  explicit operator bool() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address socket_address(const WatchAddress::Host& host, std::uint16_t port) {
  Address address;
  if (host.family == AF_INET) {
    auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    std::memcpy(&in.sin_addr, host.bytes.data(), sizeof(in.sin_addr));
    address.length = sizeof(in);
  } else {
    auto& in = reinterpret_cast<sockaddr_in6&>(address.storage);
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(port);
    std::memcpy(&in.sin6_addr, host.bytes.data(), sizeof(in.sin6_addr));
    address.length = sizeof(in);
  }
  return address;
}

/// Follows Open MPI's choice of interfaces; any interface without such a choice.
bool may_use(const InterfaceAddress& address, const InterfaceLists& lists) {
  if (lists.include && !lists.include->empty()) return is_in_list(address, *lists.include);
  return !lists.exclude || !is_in_list(address, *lists.exclude);
}

/// The addresses by which other hosts can reach this one.
std::array<WatchAddress::Host, 8> own_hosts(const InterfaceLists& lists) {
  std::array<WatchAddress::Host, 8> hosts{};
  std::size_t count = 0;
  for (const InterfaceAddress& address : interface_addresses()) {
    if (count == hosts.size()) break;
    if (address.loopback || !may_use(address, lists)) continue;
    const int family = address.address.find(':') == std::string::npos ? AF_INET : AF_INET6;
    WatchAddress::Host host{.family = family};
    if (inet_pton(family, address.address.c_str(), host.bytes.data()) == 1) hosts[count++] = host;
  }
  return hosts;
}

/// The address at this end of a connection.
WatchAddress::Host local_host(int socket) {
  Address address{.length = sizeof(sockaddr_storage)};
  WatchAddress::Host host;
  if (getsockname(socket, address.get(), &address.length) != 0) return host;
  if (address.storage.ss_family == AF_INET) {
    host.family = AF_INET;
    std::memcpy(host.bytes.data(), &reinterpret_cast<const sockaddr_in&>(address.storage).sin_addr, 4);
    return host;
  }
  const in6_addr& bytes = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&bytes);  // IPv4 on a dual-stack socket
  host.family = mapped ? AF_INET : AF_INET6;
  std::memcpy(host.bytes.data(), bytes.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
  return host;
}

bool has(const std::array<WatchAddress::Host, 8>& hosts, const WatchAddress::Host& host) {
  return std::ranges::any_of(hosts,
                             [&](const auto& one) { return one.family == host.family && one.bytes == host.bytes; });
}

/// Dual-stack if the host has IPv6.
Socket listen_anywhere(std::uint16_t& port) {
  for (const int family : {AF_INET6, AF_INET}) {
    Socket listener(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!listener) continue;
    const int off = 0;
    if (family == AF_INET6) setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    Address any = socket_address({.family = family}, 0);
    if (bind(listener.get(), any.get(), any.length) != 0 || ::listen(listener.get(), SOMAXCONN) != 0) continue;
    if (getsockname(listener.get(), any.get(), &any.length) != 0) continue;
    port = ntohs(family == AF_INET ? reinterpret_cast<sockaddr_in&>(any.storage).sin_port
                                   : reinterpret_cast<sockaddr_in6&>(any.storage).sin6_port);
    return listener;
  }
  return Socket();
}

/// The introduction on a connection, from either side: the nonce of the accepting rank, and the speaker's rank.
struct Hello {
  std::uint64_t nonce = 0;
  std::int64_t speaker = 0;
};

/// A connection during setup.
struct Attempt {
  Socket socket;
  bool outgoing = false;  ///< to the rank after this one
  bool greeted = false;
  Clock::time_point end = Clock::time_point::max();
  std::array<std::byte, sizeof(Hello)> heard{};
  std::size_t count = 0;  ///< number of bytes in `heard`
};

/// An established connection.
struct Neighbour {
  Socket socket;
  int rank = -1;
  bool outgoing = false;
};

/// State of the attempts to reach a rank.
struct Search {
  bool of_dead = false;  ///< the previously watched rank has died
  bool refused = false;  ///< refused by its host
  bool reached = false;  ///< a process listened
  Clock::time_point begun = Clock::now();
};

bool is_there(const WatchAddress& other) { return kill(other.pid, 0) == 0 || errno != ESRCH; }

}  // namespace

struct ConnectionWatch::Connections {
  int rank = 0, before = 0, after = 0;
  std::uint64_t own_nonce = 0;
  std::array<char, 64> own_name{};
  std::vector<WatchAddress> all;  ///< addresses of all ranks
  bool restricted = false;        ///< only `restricted_to`, because Open MPI's lists name interfaces
  std::array<WatchAddress::Host, 8> restricted_to{};
  bool expects_after = false;
  Search search;  ///< search for the rank `after`
  Socket listener, wake;
  std::list<Attempt> attempts;
  std::list<Neighbour> neighbours;
  bool before_silent = false, after_silent = false;
  std::optional<Clock::time_point> silent_since;  ///< empty once reported, or found to be our own fault

  static void watch_host(int socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &kQuiet, sizeof(kQuiet));
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &on, sizeof(on));
    setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kQuestions, sizeof(kQuestions));
  }

  /// Notes that a neighbour's host is silent. The silent host has two neighbours; the one before it warns. It does not
  /// warn if its other neighbour falls silent within moments, too: then this host itself is cut off, and nobody would
  /// read it.
  void note_silence(const Neighbour& neighbour) {
    (neighbour.rank == after ? after_silent : before_silent) = true;
    if (!silent_since) silent_since = Clock::now();
  }
  const WatchAddress& next() const { return all[static_cast<std::size_t>(after)]; }
  bool warning_is_due() const { return silent_since && Clock::now() - *silent_since >= kBothSilent; }
  void warn_of_silence() {
    silent_since.reset();
    const bool of_two = after == before && rank < after;
    if (!after_silent || (before_silent && !of_two)) return;
    const std::string line = fmt::format(
        "warning: rank {} (host {}, pid {}) gets no sign of life from the host of rank {} (host {}, pid {}): it is "
        "off, or cut off from the network. The job ends if that lasts for the deadline.\n",
        rank, own_name.data(), getpid(), after, next().name.data(), next().pid);
    if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // stderr is closed
  }

  void say_farewell() noexcept {
    for (const Neighbour& neighbour : neighbours) {
      if (send(neighbour.socket.get(), &kFarewell, 1, MSG_NOSIGNAL) != 1) continue;  // the neighbour has already gone
    }
  }

  /// Connects to all addresses of the next rank at once. Addresses that this host has, too (such as those of a
  /// container bridge), lead to this host, so they are used only if there are no others.
  void reach_out() {
    const auto here = own_hosts({});
    const auto is_own = [&](const WatchAddress::Host& host) { return has(here, host); };
    const bool shares_all =
        std::ranges::all_of(next().hosts, [&](const auto& host) { return host.family == 0 || is_own(host); });
    for (const WatchAddress::Host& host : next().hosts) {
      if (host.family == 0 || (!shares_all && is_own(host))) continue;
      Socket socket(::socket(host.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (!socket) continue;
      Address address = socket_address(host, next().port);
      if (connect(socket.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
        search.refused = search.refused || errno == ECONNREFUSED;
        continue;
      }
      // A stopped process introduces itself only after it continues; the end of such a process is seen here
      // nevertheless.
      attempts.push_back({.socket = std::move(socket),
                          .outgoing = true,
                          .end = search.of_dead ? Clock::time_point::max() : Clock::now() + kIntroduction});
    }
  }

  /// Accepts connections. A neighbour speaks at once, so the oldest silent connection makes room for the newest:
  /// strangers that occupy all slots keep nobody out.
  void take_in() {
    for (std::size_t taken = 0; taken < kMaxIntroductions / 4; ++taken) {
      Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) return;
      if (restricted && !has(restricted_to, local_host(socket.get()))) continue;
      const auto incoming = [](const Attempt& attempt) { return !attempt.outgoing; };
      if (std::ranges::count_if(attempts, incoming) >= std::ptrdiff_t{kMaxIntroductions}) {
        attempts.erase(std::ranges::find_if(attempts, incoming));
      }
      attempts.push_back({.socket = std::move(socket), .end = Clock::now() + kIntroduction});
    }
  }

  bool greet(Attempt& attempt) {
    const Hello hello{attempt.outgoing ? next().nonce : own_nonce, rank};
    attempt.greeted = send(attempt.socket.get(), &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello);
    return attempt.greeted;
  }

  /// Advances an attempt; true while it is unfinished.
  bool proceed(Attempt& attempt) {
    if (attempt.outgoing && !attempt.greeted) {  // poll() has returned: connected, or failed
      int error = 0;
      socklen_t length = sizeof(error);
      if (getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
      search.refused = search.refused || error == ECONNREFUSED;
      // ECONNRESET: connected, and closed before this look at it.
      search.reached = search.reached || error == 0 || error == ECONNRESET;
      return error == 0 && greet(attempt);
    }
    const ssize_t got =
        recv(attempt.socket.get(), attempt.heard.data() + attempt.count, attempt.heard.size() - attempt.count, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got <= 0) return false;
    attempt.count += static_cast<std::size_t>(got);
    if (attempt.count < sizeof(Hello)) return true;
    Hello hello;
    std::memcpy(&hello, attempt.heard.data(), sizeof(hello));
    const auto speaker = static_cast<int>(hello.speaker);
    if (hello.nonce != (attempt.outgoing ? next().nonce : own_nonce)) return false;
    if (attempt.outgoing ? speaker != after || !std::exchange(expects_after, false) : !takes_in(speaker)) return false;
    if (!attempt.outgoing && !greet(attempt)) return false;
    watch_host(attempt.socket.get());
    neighbours.push_back({std::move(attempt.socket), speaker, attempt.outgoing});
    return false;
  }

  /// True for one connection from each rank, over any path between two hosts.
  bool takes_in(int speaker) const {
    return speaker >= 0 && speaker < static_cast<int>(all.size()) && speaker != rank &&
           std::ranges::none_of(neighbours, [&](const Neighbour& n) { return !n.outgoing && n.rank == speaker; });
  }

  bool is_elsewhere(int other) const {
    const WatchAddress& own = all[static_cast<std::size_t>(rank)];
    const WatchAddress& their = all[static_cast<std::size_t>(other)];
    return other != rank && own.port != 0 && their.port != 0 && (their.machine == 0 || their.machine != own.machine);
  }
};

ConnectionWatch::ConnectionWatch(int rank, std::uint64_t machine) : connections_(std::make_unique<Connections>()) {
  own_.nonce = random_nonce();
  own_.machine = machine;
  const InterfaceLists lists = InterfaceLists::from_environment();
  own_.hosts = own_hosts(lists);
  connections_->restricted = lists.include || lists.exclude;
  connections_->restricted_to = own_.hosts;
  own_.pid = static_cast<std::int32_t>(getpid());
  if (gethostname(own_.name.data(), own_.name.size() - 1) != 0) std::strcpy(own_.name.data(), "unknown");
  connections_->listener = listen_anywhere(own_.port);
  connections_->rank = rank;
  connections_->own_nonce = own_.nonce;
  connections_->own_name = own_.name;
}

ConnectionWatch::~ConnectionWatch() { take_leave(); }

void ConnectionWatch::join(std::span<const WatchAddress> all) {
  Connections& c = *connections_;
  const auto size = static_cast<int>(all.size());
  c.all.assign(all.begin(), all.end());
  dead_ = std::vector<std::atomic<bool>>(all.size());
  c.before = (c.rank + size - 1) % size;
  c.after = (c.rank + 1) % size;
  c.expects_after = c.is_elsewhere(c.after);
  bool alone = true;  // all ranks are on this machine
  for (int other = 0; other < size; ++other) alone = alone && !c.is_elsewhere(other);
  c.wake = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (alone) c.listener = Socket();  // nobody needs to connect
  if (alone || !c.wake) return;
  try {
    thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  } catch (const std::system_error&) {  // no thread available: only the deadline remains
  }
}

bool ConnectionWatch::is_dead(int rank) const noexcept {
  const auto index = static_cast<std::size_t>(rank);
  return index < dead_.size() && dead_[index].load(std::memory_order_acquire);
}

/// Watches the next living rank instead, unless it is on this machine.
void ConnectionWatch::note_dead(int rank) {
  Connections& c = *connections_;
  dead_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
  if (rank != c.after) return;
  const auto size = static_cast<int>(c.all.size());
  std::erase_if(c.attempts, [](const Attempt& attempt) { return attempt.outgoing; });
  c.expects_after = false;
  for (int next = (rank + 1) % size; next != c.rank; next = (next + 1) % size) {
    const bool elsewhere = c.is_elsewhere(next);
    if (is_dead(next) || (!elsewhere && !is_there(c.all[static_cast<std::size_t>(next)]))) continue;
    c.after = next;
    c.after_silent = false;
    c.expects_after = elsewhere;
    break;
  }
  c.search = {.of_dead = true};
  if (c.expects_after) c.reach_out();
}

/// Acts when all attempts to reach the next rank have ended.
void ConnectionWatch::end_search() {
  Connections& c = *connections_;
  while (c.expects_after && c.search.of_dead &&
         std::ranges::none_of(c.attempts, [](const Attempt& attempt) { return attempt.outgoing; })) {
    const Search ended = c.search;
    if (ended.refused && !ended.reached) {
      note_dead(c.after);
    } else if (ended.reached) {  // it ended before it could introduce itself
      if (Clock::now() - ended.begun < std::chrono::milliseconds(kLookMs)) return;
      c.search = {.of_dead = true};
      c.reach_out();
      return;
    } else {
      c.expects_after = false;  // unreachable
    }
  }
}

std::list<ConnectionWatch::Look>::iterator ConnectionWatch::add_look(Look look) {
  const std::lock_guard lock(looks_mutex_);
  return looks_.insert(looks_.end(), std::move(look));
}

void ConnectionWatch::remove_look(std::list<Look>::iterator look) {
  const std::lock_guard lock(looks_mutex_);
  looks_.erase(look);
}

void ConnectionWatch::take_leave() noexcept {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  if (thread_.get_id() == std::this_thread::get_id()) return connections_->say_farewell();
  const std::uint64_t one = 1;
  if (write(connections_->wake.get(), &one, sizeof(one)) != sizeof(one)) return;
  thread_.join();
}

void ConnectionWatch::watch(const std::stop_token& stop) {
  Connections& c = *connections_;
  if (c.expects_after) c.reach_out();
  std::vector<pollfd> polled;
  while (!stop.stop_requested()) {
    std::erase_if(c.attempts, [now = Clock::now()](const Attempt& attempt) { return attempt.end < now; });
    end_search();
    polled.clear();
    polled.push_back({c.wake.get(), POLLIN, 0});
    if (c.listener) polled.push_back({c.listener.get(), POLLIN, 0});
    const std::size_t attempts_from = polled.size();
    for (const Attempt& attempt : c.attempts) {
      polled.push_back(
          {attempt.socket.get(), static_cast<short>(attempt.outgoing && !attempt.greeted ? POLLOUT : POLLIN), 0});
    }
    const std::size_t neighbours_from = polled.size();
    for (const Neighbour& neighbour : c.neighbours) polled.push_back({neighbour.socket.get(), POLLIN, 0});
    // Wakes at least once a second while something has a time limit.
    const bool any_dead = std::ranges::any_of(dead_, [](const auto& dead) { return dead.load(); });
    const int most_ms = any_dead ? kLookMs : !c.attempts.empty() || c.silent_since ? 1000 : -1;
    if (poll(polled.data(), polled.size(), most_ms) < 0 && errno != EINTR) return;
    if (stop.stop_requested()) break;
    if (any_dead) {
      const std::lock_guard lock(looks_mutex_);
      for (const Look& look : looks_) look();
    }
    if (c.warning_is_due()) c.warn_of_silence();

    std::size_t at = neighbours_from;
    std::vector<int> dead;
    std::erase_if(c.neighbours, [&](const Neighbour& neighbour) {
      if (polled[at++].revents == 0) return false;
      std::uint8_t word = 0;
      const ssize_t got = recv(neighbour.socket.get(), &word, 1, 0);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      // Closed without farewell. A network error (such as no route) is not a death.
      if (got == 0 || (got < 0 && errno == ECONNRESET)) dead.push_back(neighbour.rank);
      if (got < 0 && (errno == ETIMEDOUT || errno == EHOSTUNREACH)) c.note_silence(neighbour);
      return true;
    });
    at = attempts_from;
    std::erase_if(c.attempts, [&](Attempt& attempt) { return polled[at++].revents != 0 && !c.proceed(attempt); });
    if (c.listener && polled[1].revents != 0) c.take_in();
    for (const int rank : dead) note_dead(rank);
    neighbours_.store(static_cast<int>(c.neighbours.size()), std::memory_order_release);
  }
  c.say_farewell();
}

}  // namespace lockstep::comm
