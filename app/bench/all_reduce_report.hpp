/// \file
/// Reports of the all-reduce benchmark: rows, bandwidths, percentiles, and the bound by the links between hosts, as a
/// table, CSV, JSON and a chart.
///
/// Algorithm bandwidth is the size of the data divided by the time. Bus bandwidth is algorithm bandwidth times 2
/// (p-1)/p for p ranks: every algorithm must send and receive this share of the data on each rank. So bus bandwidths
/// are comparable with hardware figures and between numbers of ranks. With one rank both are 0, because nothing is
/// sent.
///
/// The link bound assumes that each host has one link with a fixed speed in either direction. The ranks of a host can
/// reduce among themselves first. What remains is an all-reduce over h hosts, in which each host must send and receive
/// 2 (h-1)/h times the data. For large data, when only the links count, no algorithm is faster. A ring over p ranks
/// sends 2 (p-1)/p times the data over a link for each neighbour on another host, so it has its own, longer bound.
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
  double least_share = 0;  ///< minimum share of the data on each host's link: 2 (h-1)/h
  double ring_share = 0;   ///< share of the data on the busiest link in the ring
  /// Seconds to send `share` times `bytes`.
  double seconds(double share, double bytes) const { return share * bytes * 8 / (gbit_per_s * 1e9); }
};
/// `hosts`: the host of each rank, in the order of the ring. Returns nullopt if all ranks share one host, so that no
/// link is used.
std::optional<LinkBound> link_bound(std::span<const std::string> hosts, double gbit_per_s);
/// The bound as text.
std::string describe(const LinkBound& bound);

/// Results of one algorithm for one size.
struct AllReduceRow {
  std::string algorithm{};  ///< name for --algorithms
  std::string transport{};  ///< the communicator's name for it
  std::int64_t ranks = 1, hosts = 1, count = 0;
  Percentiles seconds{};     ///< seconds per all-reduce, over the batches; a batch takes as long as on its slowest rank
  std::int64_t sums = 0;     ///< number of all-reduces in a batch
  std::int64_t batches = 0;  ///< number of batches timed
  std::int64_t wrong = 0;    ///< number of wrong elements on all ranks
  std::string wire = "fp32";
  std::string schedule{};  ///< schedule between hosts of Lockstep's own algorithms: "doubling", "halving", "ring"
  std::optional<LinkBound> bound{};

  double bytes() const { return static_cast<double>(count) * sizeof(float); }
  /// Bytes/s; 0 with one rank.
  double algorithm_bandwidth() const { return ranks > 1 && seconds.median > 0 ? bytes() / seconds.median : 0; }
  double bus_bandwidth() const { return algorithm_bandwidth() * bus_factor(); }
  double bus_factor() const { return 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks); }
  double wire_bytes() const { return wire == "bf16" ? bytes() / 2 : bytes(); }
  double bound_seconds() const { return bound ? bound->seconds(bound->least_share, wire_bytes()) : 0; }
  /// Percentage of the bandwidth that the links allow.
  double percent_of_bound() const { return bound && seconds.median > 0 ? 100 * bound_seconds() / seconds.median : 0; }
};

/// Head of the table: the columns of nccl-tests, the algorithm, and further results. `bound`: include a column for the
/// bound.
std::string format_head(bool bound);
std::string format_row(const AllReduceRow& row);
std::string csv_head();
std::string csv_row(const AllReduceRow& row);
io::MetricRecord to_record(const AllReduceRow& row);

/// Mean bus bandwidth of an algorithm's rows, in bytes/s.
double mean_bus_bandwidth(std::span<const AllReduceRow> rows, const std::string& algorithm);
/// The algorithms of `rows`, in order of first appearance.
std::vector<std::string> algorithms_of(std::span<const AllReduceRow> rows);
/// For each size, names the fastest algorithm and the speed of each algorithm relative to MPI_Allreduce, or to the
/// first algorithm if MPI_Allreduce was not timed. Empty for a single algorithm.
std::string format_summary(std::span<const AllReduceRow> rows);

/// Returns the sizes at which another schedule becomes the fastest; nullopt unless `rows` contain all schedules of the
/// ring.
std::optional<comm::AllReduceLimits> best_limits(std::span<const AllReduceRow> rows);

/// The fastest transport for gradients, by the geometric mean over the sizes from 1 MiB up, or over all sizes if all
/// are smaller.
struct FastestTransport {
  std::string word;    ///< name for --transport
  std::string second;  ///< name of the second fastest
  double times = 1;    ///< speed relative to the second
};
/// Returns nullopt if fewer than two transports were timed at all of these sizes. MPI must be 3 % faster than the
/// others to win, because its sums may not repeat bit for bit.
std::optional<FastestTransport> fastest_transport(std::span<const AllReduceRow> rows);
std::string to_text(const FastestTransport& fastest);

/// Charts bus bandwidth over size: a line for each algorithm, and a dashed line for the link bound.
Chart bandwidth_chart(std::span<const AllReduceRow> rows, const std::string& subtitle);

}  // namespace lockstep::app
