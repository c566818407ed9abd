#include "comm/host/descriptor_exchange.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/session/deadline.hpp"
#include "comm/session/peers.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

/// What comes with a descriptor.
struct Letter {
  std::uint64_t nonce = 0;   ///< of its sender
  std::uint64_t number = 0;  ///< of the exchange
};

struct Place {
  explicit Place(std::uint64_t address) {
    name.sun_family = AF_UNIX;
    const std::string text = fmt::format("lockstep-{:016x}", address);
    std::memcpy(name.sun_path + 1, text.data(), text.size());  // the first byte is 0: the abstract namespace
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
  sockaddr_un name{};
  socklen_t length;
};

/// A message with room for one descriptor.
struct Envelope {
  Envelope(Letter& letter, Place* to) : contents{.iov_base = &letter, .iov_len = sizeof(letter)} {
    if (to != nullptr) {
      header.msg_name = &to->name;
      header.msg_namelen = to->length;
    }
    header.msg_iov = &contents;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  iovec contents;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
};

/// False: the receiver's queue is full.
bool send(int socket, const DescriptorExchange::Peer& peer, Letter letter, int descriptor) {
  Place to(peer.address);
  Envelope envelope(letter, &to);
  cmsghdr* const rights = CMSG_FIRSTHDR(&envelope.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  if (sendmsg(socket, &envelope.header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  // As many descriptors as may be on their way at once: a limit that passes.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS) {
    return false;
  }
  throw std::runtime_error(
      fmt::format("cannot send shared memory to {} (a local socket): {}", peer.name, std::strerror(errno)));
}

/// The descriptor that came with a message, -1: none; false: there is no message.
bool receive(int socket, Letter& letter, int& descriptor) {
  descriptor = -1;
  Envelope envelope(letter, nullptr);
  const ssize_t bytes = recvmsg(socket, &envelope.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
    throw std::runtime_error(fmt::format("cannot receive shared memory (a local socket): {}", std::strerror(errno)));
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&envelope.header); part != nullptr; part = CMSG_NXTHDR(&envelope.header, part)) {
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
      std::memcpy(&descriptor, CMSG_DATA(part), sizeof(descriptor));
    }
  }
  if (bytes != sizeof(letter)) letter = {};
  return true;
}

}  // namespace

DescriptorExchange::DescriptorExchange() : address_(random_nonce()) {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const Place own(address_);
  if (socket_ < 0 || bind(socket_, own.get(), own.length) != 0) {
    const int error = errno;
    if (socket_ >= 0) close(socket_);
    throw std::runtime_error(fmt::format("cannot make a local socket to share memory by: {}", std::strerror(error)));
  }
}

DescriptorExchange::~DescriptorExchange() { close(socket_); }

std::vector<int> DescriptorExchange::exchange(int descriptor, std::uint64_t own_nonce, std::span<const Peer> peers,
                                              double seconds) {
  const std::uint64_t number = ++exchanges_;
  std::vector<int> theirs(peers.size(), -1);
  const auto give_back = [&theirs] {
    for (const int one : theirs) {
      if (one >= 0) close(one);
    }
  };
  std::size_t sent = 0, received = 0;
  try {
    for (Patience patience(seconds); sent < peers.size() || received < peers.size();) {
      // Receivers that are slow hold up those behind them, but nobody who receives.
      while (sent < peers.size() && send(socket_, peers[sent], {.nonce = own_nonce, .number = number}, descriptor)) {
        ++sent;
      }
      Letter letter;
      for (int came = -1; receive(socket_, letter, came);) {
        const auto sender = std::ranges::find_if(peers, [&](const Peer& peer) { return peer.nonce == letter.nonce; });
        const auto index = static_cast<std::size_t>(sender - peers.begin());
        if (came >= 0 && letter.number == number && sender != peers.end() && theirs[index] < 0) {
          theirs[index] = came;
          ++received;
        } else if (came >= 0) {
          close(came);
        }
      }
      if (sent == peers.size() && received == peers.size()) break;
      pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
      poll(&wait, 1, sent < peers.size() ? 1 : 100);
      if (!patience.exhausted(false)) continue;
      const auto missing = std::ranges::find(theirs, -1);
      throw std::runtime_error(
          missing == theirs.end()
              ? fmt::format("{} has not taken shared memory for {} s", peers[sent].name, seconds_text(seconds))
              : fmt::format("no shared memory has come from {} for {} s",
                            peers[static_cast<std::size_t>(missing - theirs.begin())].name, seconds_text(seconds)));
    }
  } catch (...) {
    give_back();
    throw;
  }
  return theirs;
}

}  // namespace lockstep::comm
