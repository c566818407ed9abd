/// \file
/// The ranks that train and those that keep the parameters (--agree quorum, --agree async).
#pragma once

#include <cstddef>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

struct Servers {
  int workers = 1;
  int count = 1;        ///< number of servers; each keeps one of `count` equal contiguous parts
  bool shared = false;  ///< server k is a thread beside worker k; otherwise it is the only task of rank workers + k

  bool trains(int rank) const noexcept { return rank < workers; }
  int rank_of(int server) const noexcept { return shared ? server : workers + server; }
  /// The server on a rank; -1: none.
  int on(int rank) const noexcept {
    const int server = shared ? rank : rank - workers;
    return server >= 0 && server < count ? server : -1;
  }
};

/// Returns the roles of the ranks. The options must be of a mode with servers. Throws UsageError if they contradict the
/// number of ranks.
Servers find_servers(const AgreeOptions& options, int ranks);

/// Returns the part of an arena that a server keeps.
comm::Slice served_part(const Servers& servers, std::size_t elements, int server);

}  // namespace lockstep::app
