/// \file
/// `lockstep bench all-reduce`: all-reduces by every algorithm that the ranks support, and by MPI_Allreduce, in the
/// manner of nccl-tests.
///
/// TIME is that of the slowest rank, per all-reduce, in place, with training's memory: host memory from
/// reduction_memory(), or the GPU's. On a GPU the all-reduces of a batch are recorded once and replayed (except with
/// --no-graph). Batches of equal numbers of all-reduces start together. At every size the algorithms take turns, batch
/// by batch, and each begins as often as the others, so that a disturbance of the machine affects all alike.
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

/// Sizes from min to max, each `factor` times the previous one; always includes max.
std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor);

/// Collective: a row for each algorithm, the same on every rank, without bound and hosts. Checks every element of one
/// all-reduce of each algorithm, then measures times. `terms` are for the least precise wire format. `control` carries
/// the measurement's own messages.
std::vector<AllReduceRow> measure_size(comm::Communicator& control,
                                       std::span<const std::unique_ptr<AllReduce>> algorithms, std::int64_t count,
                                       const KnownSums& terms, const Repetitions& repetitions);
/// Throws comm::ConsensusError if any element is wrong.
void require_right(std::span<const AllReduceRow> rows);

}  // namespace lockstep::app
