/// \file
/// Which ranks train and which keep the parameters (--agree quorum, --agree async).
#pragma once

#include <cstddef>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

struct Servers {
  int workers = 1;
  int count = 1;        ///< number of servers: each keeps one of as many equal contiguous parts
  bool shared = false;  ///< server k is a thread beside worker k; otherwise it is the only task of rank workers + k

  bool trains(int rank) const noexcept { return rank < workers; }
  int rank_of(int server) const noexcept { return shared ? server : workers + server; }
  /// The server on this rank; -1: none.
  int on(int rank) const noexcept {
    const int server = shared ? rank : rank - workers;
    return server >= 0 && server < count ? server : -1;
  }
};

/// Throws UsageError if the options, which are of a mode with servers, contradict the number of ranks.
Servers find_servers(const AgreeOptions& options, int ranks);

/// The part of an arena that a server keeps.
comm::Slice served_part(const Servers& servers, std::size_t elements, int server);

}  // namespace lockstep::app
