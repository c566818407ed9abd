/// \file
/// `lockstep bench all-reduce`: how fast the ranks sum, through every way they have and through MPI_Allreduce, in the
/// manner of nccl-tests.
///
/// TIME is that of the slowest rank, per sum, in place, with what training uses: host memory from reduction_memory(),
/// or the GPU's, where the sums of a batch are recorded once and replayed (--no-graph: they are not). Batches of equal
/// numbers of sums start together. At every size the ways take turns, batch by batch, and each begins as often as the
/// others, so that a machine that is disturbed disturbs all alike.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/all_reduce_table.hpp"
#include "app/all_reduce_terms.hpp"
#include "app/all_reduce_ways.hpp"
#include "app/options.hpp"
#include "comm/communicator.hpp"
#include "comm/mpi_session.hpp"

namespace lockstep::app {

/// Of each size, on every way.
struct Repetitions {
  std::int64_t warmup = 5;  ///< sums before the clock starts; no more than fit in a second
  std::int64_t repeat = 0;  ///< batches timed; 0: as many as fit in a second, 3 to 100
};

struct BenchAllReduceOptions {
  std::int64_t min = 2, max = 67'108'864;  ///< elements
  bool max_given = false;                  ///< else max is what there is memory for, if that is less
  std::int64_t factor = 4;                 ///< from one size to the next
  Repetitions repetitions;
  std::string ways = "auto";             ///< auto: all that these ranks have; or names with commas between them
  std::optional<double> link_gbps;       ///< of a host's link, each way
  std::filesystem::path csv, json, svg;  ///< also write the rows there, and a chart
  ExecutionOptions execution;
};

/// argv without the program name and the subcommand. Throws UsageError or HelpRequested. In
/// options_bench_all_reduce.cpp.
BenchAllReduceOptions parse_bench_all_reduce(const std::vector<std::string>& arguments);

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options);

/// Sizes from min to max, each `factor` times the one before; max is always among them.
std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor);

/// Collective: a row for each way, the same on every rank, without bound and hosts. Checks every element of one sum of
/// each way, then times. `terms` are for the least precise wire. `control` is for what the measurement itself has to
/// say.
std::vector<AllReduceRow> measure_size(comm::Communicator& control, std::span<const std::unique_ptr<Way>> ways,
                                       std::int64_t count, const BenchTerms& terms, const Repetitions& repetitions);
/// Throws comm::AgreedError where elements are wrong.
void require_right(std::span<const AllReduceRow> rows);

}  // namespace lockstep::app
