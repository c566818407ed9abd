/// \file
/// The rendezvous of ranks: distributes each rank's description of itself to all.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/session/mpi_session.hpp"
#include "comm/session/peers.hpp"

namespace lockstep::comm {

/// Collective: `all` (size * mine.size() bytes) receives every rank's bytes in rank order, by recursive doubling
/// (doubling.hpp): a rank exchanges with O(log size) others. Throws PeerError that names the ranks that do not come
/// within the deadline.
void exchange_bytes(MpiSession::State& state, std::span<const std::byte> mine, std::span<std::byte> all,
                    double deadline_seconds);

template <class T>
std::vector<T> exchange(MpiSession& session, const T& mine, double deadline_seconds) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(session.size()));
  exchange_bytes(session.state(), std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                 deadline_seconds);
  return all;
}

}  // namespace lockstep::comm
