/// \file
/// Reports of the all-reduce benchmark: rows, their bandwidths and percentiles, and the bound by the links between
/// hosts, as a table, CSV, JSON and a chart.
///
/// ALGORITHM BANDWIDTH is the size of the data over the time. BUS BANDWIDTH is that times 2 (p-1)/p: each rank must
/// send and receive at least so much, at any world size, so figures compare with the hardware's and between world
/// sizes. A world of one sends nothing: 0.
///
/// THE BOUND OF THE LINKS. Each host has one link with a fixed number of bits per second in either direction. The ranks
/// of a host can reduce among themselves first; the rest is an all-reduce over h hosts, each of which must send and
/// receive 2 (h-1)/h times the data. No algorithm is faster for data so large that only the links count. A ring over p
/// ranks sends 2 (p-1)/p times the data over a link, once for each neighbour on another host: its own, longer bound.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/report/chart.hpp"
#include "app/report/statistics.hpp"
#include "comm/all_reduce_limits.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

struct LinkBound {
  double gbit_per_s = 0;  ///< speed of a host's link in each direction
  int hosts = 1;
  double least_share = 0;  ///< share of the data over each host's link: 2 (h-1)/h
  double ring_share = 0;   ///< share of the data over the busiest link, by the ring
  /// Seconds for `share` of `bytes`.
  double seconds(double share, double bytes) const { return share * bytes * 8 / (gbit_per_s * 1e9); }
};
/// `hosts`: of all ranks, in the ring's order. nullopt if all ranks share one host, so that no link is used.
std::optional<LinkBound> link_bound(std::span<const std::string> hosts, double gbit_per_s);
/// The bound as text.
std::string describe(const LinkBound& bound);

/// One size by one algorithm.
struct AllReduceRow {
  std::string algorithm{};  ///< name for --algorithms
  std::string transport{};  ///< the communicator's name for it
  std::int64_t ranks = 1, hosts = 1, count = 0;
  Percentiles seconds{};     ///< per all-reduce, over the batches; a batch takes the time of its slowest rank
  std::int64_t sums = 0;     ///< all-reduces in a batch
  std::int64_t batches = 0;  ///< number timed
  std::int64_t wrong = 0;    ///< wrong elements on all ranks together
  std::string wire = "fp32";
  std::string schedule{};  ///< schedule between hosts of Lockstep's own algorithms: "doubling", "halving", "ring"
  std::optional<LinkBound> bound{};

  double bytes() const { return static_cast<double>(count) * sizeof(float); }
  /// Bytes/s; 0 in a world of one, where nothing is summed.
  double algorithm_bandwidth() const { return ranks > 1 && seconds.median > 0 ? bytes() / seconds.median : 0; }
  double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(); }
  double bus_factor() const { return 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks); }
  double wire_bytes() const { return wire == "bf16" ? bytes() / 2 : bytes(); }
  double bound_seconds() const { return bound ? bound->seconds(bound->least_share, wire_bytes()) : 0; }
  /// Percentage of the bandwidth that the links allow.
  double percent_of_bound() const { return bound && seconds.median > 0 ? 100 * bound_seconds() / seconds.median : 0; }
};

/// The columns of nccl-tests, the algorithm, and further results. `bound`: with a column for it.
std::string format_head(bool bound);
std::string format_row(const AllReduceRow& row);
std::string csv_head();
std::string csv_row(const AllReduceRow& row);
io::MetricRecord to_record(const AllReduceRow& row);

/// Mean of the bus bandwidths of an algorithm's rows, bytes/s.
double mean_bus_bandwidth(std::span<const AllReduceRow> rows, const std::string& algorithm);
/// The algorithms of `rows`, in the order in which they first appear.
std::vector<std::string> algorithms_of(std::span<const AllReduceRow> rows);
/// For each size the fastest algorithm, and the speed of each relative to MPI_Allreduce, or to the first algorithm if
/// that was not timed. Empty for a single algorithm.
std::string format_summary(std::span<const AllReduceRow> rows);

/// The sizes at which another schedule becomes the fastest. nullopt unless `rows` have all schedules of the ring.
std::optional<comm::AllReduceLimits> best_limits(std::span<const AllReduceRow> rows);

/// The fastest transport for gradients: by the geometric mean over the sizes from 1 MiB up, or over all sizes if none
/// is that large.
struct FastestTransport {
  std::string word;    ///< name for --transport
  std::string second;  ///< name of the second fastest
  double times = 1;    ///< speed relative to the second
};
/// nullopt if fewer than two transports were timed at all of these sizes. MPI's own has to win by 3 %, because its sums
/// may not repeat bit for bit.
std::optional<FastestTransport> fastest_transport(std::span<const AllReduceRow> rows);
std::string to_text(const FastestTransport& fastest);

/// Bus bandwidth over size, a line for each algorithm, the links' bound dashed.
Chart bandwidth_chart(std::span<const AllReduceRow> rows, const std::string& subtitle);

}  // namespace lockstep::app
