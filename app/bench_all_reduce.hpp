/// \file
/// `lockstep bench all-reduce`: how fast the ranks sum, through every way they have, in the manner of nccl-tests.
///
/// ALGORITHM BANDWIDTH is the size of the data over the time. BUS BANDWIDTH is that times 2 (p-1)/p: what each rank
/// must at least send and receive for its sums, whatever their number, so that figures compare with the hardware's and
/// between world sizes. A world of one sends nothing: 0.
///
/// TIME is that of the slowest rank, per sum, in place, with what training uses: host memory from reduction_memory(),
/// or the GPU's, where the sums of a batch are recorded once and replayed (--no-graph: they are not). Batches of equal
/// numbers of sums start together; the table has the median batch and the quickest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

struct BenchAllReduceOptions {
  std::int64_t min = 2, max = 16'777'216;  ///< elements
  std::int64_t factor = 4;                 ///< from one size to the next
  std::int64_t warmup = 5;                 ///< sums of each size before the clock starts
  std::int64_t repeat = 11;                ///< batches timed of each size
  std::filesystem::path csv, json;         ///< also write the rows there
  ExecutionOptions execution;
};

/// argv without the program name and the subcommand. Throws UsageError or HelpRequested. In options_bench.cpp.
BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments);

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options);

/// Sizes from min to max, each `factor` times the one before; max is always among them.
std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor);

/// What rank `rank` of `ranks` brings as element `index`, and the sum of what all bring. No order of elements repeats,
/// so that exchanged pieces show; all partial sums are whole numbers that a float holds, so the sum is exact in any
/// order.
float bench_term(std::size_t index, int rank, int ranks);
float bench_sum(std::size_t index, int ranks);
/// Elements that are not the sum.
std::size_t count_wrong(std::span<const float> sums, int ranks);

/// One size on one way.
struct AllReduceRow {
  std::string transport;
  std::int64_t ranks = 1, count = 0;
  double seconds = 0, least_seconds = 0;  ///< per sum: the median batch, the quickest
  std::int64_t sums = 0;                  ///< in a batch
  std::int64_t wrong = 0;                 ///< on all ranks together

  double bytes() const { return static_cast<double>(count) * sizeof(float); }
  /// Bytes/s; 0 in a world of one, where nothing is summed.
  double algorithm_bandwidth() const { return ranks > 1 && seconds > 0 ? bytes() / seconds : 0; }
  double bus_bandwidth() const {
    return algorithm_bandwidth() * 2 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  }
};
std::string format_head();
std::string format_row(const AllReduceRow& row);
std::string csv_head();
std::string csv_row(const AllReduceRow& row);
/// Mean of the rows' bus bandwidths, bytes/s.
double mean_bus_bandwidth(std::span<const AllReduceRow> rows);

}  // namespace lockstep::app
