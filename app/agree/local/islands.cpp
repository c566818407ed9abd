#include "app/agree/local/islands.hpp"

#include <algorithm>
#include <set>
#include <string>

#include <fmt/format.h>

#include "app/report/figures.hpp"
#include "comm/messages.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::app {

namespace {

void require_a_rank_each(const AgreeOptions& options, int ranks) {
  if (options.islands <= ranks) return;
  throw UsageError(
      fmt::format("--islands {} of {}: every island needs a rank", options.islands, counted(ranks, "rank")));
}

}  // namespace

Islands Islands::equal(int count, int ranks) {
  std::vector<int> first;
  for (int island = 0; island < count; ++island) first.push_back(island * ranks / count);
  return {std::move(first), ranks};
}

int Islands::of(int rank) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), rank) - first_.begin()) - 1;
}

int Islands::last_of_smallest() const {
  int smallest = 0;
  for (int island = 1; island < count(); ++island) {
    if (size(island) < size(smallest)) smallest = island;
  }
  return end_rank(smallest) - 1;
}

Islands equal_islands(const AgreeOptions& options, int ranks) {
  require_a_rank_each(options, ranks);
  return Islands::equal(std::max(1, static_cast<int>(options.islands)), ranks);
}

Islands find_islands(comm::Communicator& communicator, const AgreeOptions& options) {
  require_a_rank_each(options, communicator.size());
  const std::vector<std::string> hosts = comm::all_gather_text(communicator, comm::host_name());
  std::vector<int> first;
  std::set<std::string> seen;
  bool neighbours = true;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    if (rank > 0 && hosts[rank] == hosts[rank - 1]) continue;
    neighbours = seen.insert(hosts[rank]).second && neighbours;
    first.push_back(static_cast<int>(rank));
  }
  const bool by_host = neighbours && (options.islands == 0 || options.islands == std::ssize(first));
  if (by_host) return {std::move(first), communicator.size()};
  if (options.islands == 0) {
    throw UsageError(
        "the ranks of a host are no neighbours: let the launcher place them by slots (mpirun --map-by slot, srun "
        "--distribution=block), or give --islands");
  }
  return Islands::equal(static_cast<int>(options.islands), communicator.size());
}

}  // namespace lockstep::app
