/// \file
/// Messages between two ranks, for measurements of one link while the other ranks are busy otherwise. Every wait has a
/// deadline; past it PeerError names the pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

/// This rank's end of the connection to one peer. No call is collective; each call needs its counterpart on the peer.
/// After a PeerError no call is allowed, and outstanding messages remain: MPI_Finalize may wait for them.
class PairMessages {
 public:
  PairMessages(MpiSession& session, int peer, double deadline_seconds);
  ~PairMessages();
  PairMessages(const PairMessages&) = delete;
  PairMessages& operator=(const PairMessages&) = delete;

  template <class T>
  void send(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    send_bytes(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  T receive() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    receive_bytes(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  /// Sends `times` messages of `bytes` meaningless bytes, several of them under way at once.
  void send_load(std::size_t bytes, std::int64_t times);
  void receive_load(std::size_t bytes, std::int64_t times);

 private:
  void send_bytes(std::span<const std::byte> bytes);
  void receive_bytes(std::span<std::byte> bytes);

  struct Line;
  std::unique_ptr<Line> line_;
};

}  // namespace lockstep::comm
