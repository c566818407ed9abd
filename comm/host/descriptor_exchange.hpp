/// \file
/// Exchange of memory between ranks of one machine: each sends the others the descriptor of its segment through a local
/// socket (SCM_RIGHTS). This needs no privilege over the other process. /proc/PID/fd would, and a rank in a user
/// namespace of its own (rootless containers) has none.
///
/// The socket is a datagram socket in the abstract namespace: it leaves no file behind, and sending needs no
/// connection. Any process on the machine can see its name and send to it. The kernel reports the sender's user.
/// Messages of other users are dropped before their descriptors reach this process, and so are messages without the
/// nonces that the ranks have exchanged over MPI. A stranger that sends without end makes the exchange time out; then
/// the ranks use messages.
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

  /// The address to which peers send.
  std::uint64_t address() const noexcept { return address_; }

  struct Peer {
    std::uint64_t address = 0, nonce = 0;
    std::string name;  ///< name for messages
  };
  /// Collective over `peers`, the other ranks: each of them sends its descriptor. `own_nonce` identifies this rank to
  /// them. Returns their descriptors, which the caller closes. Throws std::runtime_error if one does not arrive within
  /// `seconds`.
  std::vector<int> exchange(int descriptor, std::uint64_t own_nonce, std::span<const Peer> peers, double seconds);

 private:
  std::uint64_t address_ = 0;
  int socket_ = -1;
  std::uint64_t exchanges_ = 0;
};

}  // namespace lockstep::comm
