#include "app/bench/rank_values.hpp"

#include <algorithm>

namespace lockstep::app {

std::vector<double> gather_values(comm::Communicator& communicator, std::span<const double> own) {
  const auto ranks = static_cast<std::size_t>(communicator.size()),
             rank = static_cast<std::size_t>(communicator.rank());
  std::vector<double> all(own.size() * ranks, 0.0);  // zeros for the other ranks, so the sum is exact
  for (std::size_t i = 0; i < own.size(); ++i) all[i * ranks + rank] = own[i];
  communicator.all_reduce(all);
  communicator.wait();
  return all;
}

std::vector<double> largest_over_ranks(comm::Communicator& communicator, std::span<const double> own) {
  const std::vector<double> all = gather_values(communicator, own);
  std::vector<double> largest;
  for (auto at = all.begin(); at != all.end(); at += communicator.size()) {
    largest.push_back(*std::max_element(at, at + communicator.size()));
  }
  return largest;
}

}  // namespace lockstep::app
