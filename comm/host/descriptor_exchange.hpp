/// \file
/// How ranks of one machine get hold of each other's memory: each sends the others the descriptor of its segment
/// through a local socket (SCM_RIGHTS). That asks for no right over the other process: /proc/PID/fd would, and a rank
/// in a user namespace of its own (rootless containers) has none.
///
/// The socket is a datagram socket in the abstract namespace: no file is left behind, and what is sent needs no
/// connection. Everybody on the machine can see its name and send to it. The kernel says which user a message comes
/// from: those of other users are dropped before their descriptors reach this process, and so are those without the
/// nonces that the ranks have told each other over MPI. A stranger who sends without end makes the exchange time out;
/// then the ranks send messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::comm {

class DescriptorExchange {
 public:
  /// Throws std::runtime_error.
  DescriptorExchange();
  ~DescriptorExchange();
  DescriptorExchange(const DescriptorExchange&) = delete;
  DescriptorExchange& operator=(const DescriptorExchange&) = delete;

  /// What peers send to.
  std::uint64_t address() const noexcept { return address_; }

  struct Peer {
    std::uint64_t address = 0, nonce = 0;
    std::string name;  ///< for messages
  };
  /// Collective over `peers`, the others: every one of them sends its descriptor. `own_nonce`: what they know this rank
  /// by. Returns theirs, which the caller closes. Throws std::runtime_error when one has not come after `seconds`.
  std::vector<int> exchange(int descriptor, std::uint64_t own_nonce, std::span<const Peer> peers, double seconds);

 private:
  std::uint64_t address_ = 0;
  int socket_ = -1;
  std::uint64_t exchanges_ = 0;
};

}  // namespace lockstep::comm
