#include "comm/host/descriptor_exchange.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>
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

/// Contents of a message with a descriptor.
struct Letter {
  std::uint64_t nonce = 0;   ///< nonce of its sender
  std::uint64_t number = 0;  ///< number of the exchange
};

/// Largest number of messages read in one turn, so that a stranger that sends without end blocks nobody for ever.
constexpr int kMaxMessagesAtOnce = 64;

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

/// A descriptor and the sender's credentials from the kernel; either may be absent.
union Control {
  cmsghdr align;
  std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(sizeof(int))> bytes;
};

/// Returns false if the receiver's queue is full.
bool send(int socket, const DescriptorExchange::Peer& peer, Letter letter, int descriptor) {
  Place to(peer.address);
  iovec contents{.iov_base = &letter, .iov_len = sizeof(letter)};
  Control control{};
  msghdr header{};
  header.msg_name = &to.name;
  header.msg_namelen = to.length;
  header.msg_iov = &contents;
  header.msg_iovlen = 1;
  header.msg_control = &control;
  header.msg_controllen = CMSG_SPACE(sizeof(int));
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
  if (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  // ETOOMANYREFS: too many descriptors are under way, which is temporary.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS) {
    return false;
  }
  throw std::runtime_error(
      fmt::format("cannot send shared memory to {} (a local socket): {}", peer.name, std::strerror(errno)));
}

struct Received {
  Letter letter;        ///< zeros if its size is wrong
  int descriptor = -1;  ///< owned by the caller; -1: none
  bool from_own_user = false;
};

/// The next message; nullopt: none. Descriptors beyond the first are closed.
std::optional<Received> receive(int socket, int flags, std::size_t control_room) {
  Received received;
  iovec contents{.iov_base = &received.letter, .iov_len = sizeof(received.letter)};
  Control control{};
  msghdr header{};
  header.msg_iov = &contents;
  header.msg_iovlen = 1;
  header.msg_control = control_room > 0 ? &control : nullptr;
  header.msg_controllen = control_room;
  const ssize_t bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC | flags);
  if (bytes < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return std::nullopt;
    throw std::runtime_error(fmt::format("cannot receive shared memory (a local socket): {}", std::strerror(errno)));
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) {
      ucred sender{};
      std::memcpy(&sender, CMSG_DATA(part), sizeof(sender));
      received.from_own_user = sender.uid == getuid();
    } else if (part->cmsg_type == SCM_RIGHTS) {
      for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(part) + at, sizeof(descriptor));
        if (received.descriptor >= 0) {
          close(descriptor);
        } else {
          received.descriptor = descriptor;
        }
      }
    }
  }
  if (bytes != sizeof(Letter)) received.letter = {};
  return received;
}

}  // namespace

DescriptorExchange::DescriptorExchange() : address_(random_nonce()) {
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const Place own(address_);
  const int on = 1;
  if (socket_ < 0 || setsockopt(socket_, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
      bind(socket_, own.get(), own.length) != 0) {
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
      // Slow receivers delay the sends to those after them, but delay no receiving rank.
      while (sent < peers.size() && send(socket_, peers[sent], {.nonce = own_nonce, .number = number}, descriptor)) {
        ++sent;
      }
      for (int taken = 0; taken < kMaxMessagesAtOnce; ++taken) {
        // The first look provides no space for descriptors. The kernel drops the descriptors of strangers: none enters
        // this process, not even to be closed, because closing could block for ever in a stranger's file system.
        const std::optional<Received> seen = receive(socket_, MSG_PEEK, CMSG_SPACE(sizeof(ucred)));
        if (!seen) break;
        const auto sender =
            std::ranges::find_if(peers, [&](const Peer& peer) { return peer.nonce == seen->letter.nonce; });
        const auto index = static_cast<std::size_t>(sender - peers.begin());
        const bool expected = seen->from_own_user && seen->letter.number == number && sender != peers.end();
        const auto got = receive(socket_, 0, expected ? sizeof(Control) : 0);
        if (!got || got->descriptor < 0) continue;
        if (theirs[index] < 0) {
          theirs[index] = got->descriptor;
          ++received;
        } else {
          close(got->descriptor);
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
