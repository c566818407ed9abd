/// \file
/// `lockstep bench all-reduce`: times all-reduces of every algorithm that the ranks support and of MPI_Allreduce, in
/// the manner of nccl-tests.
///
/// Times are those of the slowest rank, per all-reduce, in place. The memory is that of training: host memory from
/// reduction_memory(), or the GPU's. On a GPU, the all-reduces of a batch are recorded once and replayed (except with
/// --no-graph). All ranks start a batch together, and all batches have the same number of all-reduces. At every size
/// the algorithms take turns, batch by batch, and each begins equally often, so that a disturbance of the machine
/// affects all algorithms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/bench/all_reduce_algorithms.hpp"
#include "app/bench/all_reduce_report.hpp"
#include "app/bench/bench_options.hpp"
#include "app/bench/known_sums.hpp"
#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options);

/// Returns the sizes from min to max, each `factor` times the previous one, always with max.
std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor);

/// Collective: returns a row for each algorithm, the same on every rank, without bound and hosts. Checks every element
/// of one all-reduce of each algorithm, then measures times. `terms` must suit the least precise wire format. `control`
/// carries the messages of the measurement.
std::vector<AllReduceRow> measure_size(comm::Communicator& control,
                                       std::span<const std::unique_ptr<AllReduce>> algorithms, std::int64_t count,
                                       const KnownSums& terms, const Repetitions& repetitions);
/// Throws comm::ConsensusError if any element is wrong.
void require_right(std::span<const AllReduceRow> rows);

}  // namespace lockstep::app
