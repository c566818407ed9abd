#include "app/agree/servers/servers.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "app/report/figures.hpp"

namespace lockstep::app {

Servers find_servers(const AgreeOptions& options, int ranks) {
  const bool by_rule = !options.servers.shared && options.servers.count == 0;
  const bool beside = by_rule && options.quorum > 0;  // one server, on rank 0
  const bool shared = options.servers.shared || beside;
  const int dedicated = shared ? 0 : std::max(1, options.servers.count);
  if (dedicated >= ranks) {
    throw UsageError(fmt::format("{} of {} leave nobody to train: start {} or more, or give --servers shared",
                                 dedicated == 1 ? "1 server" : fmt::format("{} servers", dedicated),
                                 counted(ranks, "rank"), counted(dedicated + 1, "rank")));
  }
  const Servers servers{.workers = ranks - dedicated,
                        .count = beside   ? 1
                                 : shared ? ranks
                                          : dedicated,
                        .shared = shared};
  if (options.quorum > servers.workers) {
    throw UsageError(fmt::format("--agree quorum={} of {}: there are never so many gradients of a step", options.quorum,
                                 counted(servers.workers, shared ? "rank" : "worker")));
  }
  return servers;
}

comm::Slice served_part(const Servers& servers, std::size_t elements, int server) {
  return comm::slice_of(elements, server, servers.count);
}

}  // namespace lockstep::app
