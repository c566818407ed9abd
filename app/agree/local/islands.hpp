/// \file
/// Groups of ranks that train by themselves for a while (--agree local).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"

namespace lockstep::app {

/// Groups of neighbouring ranks. An island sums gradients in every step; all ranks synchronise only at intervals.
class Islands {
 public:
  /// `first`: the first rank of each island, ascending from 0; `ranks` > 0: their total number.
  Islands(std::vector<int> first, int ranks) : first_(std::move(first)), ranks_(ranks) {}
  /// Islands of sizes as equal as possible; 1 <= count <= ranks.
  static Islands equal(int count, int ranks);

  int ranks() const noexcept { return ranks_; }
  int count() const noexcept { return static_cast<int>(first_.size()); }
  int first_rank(int island) const { return first_.at(static_cast<std::size_t>(island)); }
  /// One past the island's last rank.
  int end_rank(int island) const { return island + 1 < count() ? first_rank(island + 1) : ranks_; }
  int size(int island) const { return end_rank(island) - first_rank(island); }
  /// The island of a rank.
  int of(int rank) const;
  /// The last rank of the smallest island.
  int last_of_smallest() const;

 private:
  std::vector<int> first_;
  int ranks_;
};

/// Makes the number of islands that the user gives, otherwise one. Throws UsageError if there are more islands than
/// ranks.
Islands equal_islands(const AgreeOptions& options, int ranks);
/// Collective. Makes one island of each host's ranks. If the user gives another number of islands, or a host's ranks
/// are not neighbours, makes that number of equal islands. Throws UsageError, the same on all ranks, if a host's ranks
/// are not neighbours and the user gives no number.
Islands find_islands(comm::Communicator& communicator, const AgreeOptions& options);

}  // namespace lockstep::app
