/// \file
/// `lockstep bench all-reduce`: all-reduces by every algorithm that the ranks have, and by MPI_Allreduce, in the
/// manner of nccl-tests.
///
/// TIME is that of the slowest rank, per all-reduce, in place, with what training uses: host memory from
/// reduction_memory(), or the GPU's, where the all-reduces of a batch are recorded once and replayed (--no-graph: they
/// are not). Batches of equal numbers of all-reduces start together. At every size the algorithms take turns, batch by
/// batch, and each begins as often as the others, so that a machine that is disturbed disturbs all alike.
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
#include "app/bench/known_sums.hpp"
#include "app/options/bench_options.hpp"
#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_all_reduce(comm::MpiSession& session, const BenchAllReduceOptions& options);

/// Sizes from min to max, each `factor` times the one before; max is always among them.
std::vector<std::int64_t> bench_sizes(std::int64_t min, std::int64_t max, std::int64_t factor);

/// Collective: a row for each algorithm, the same on every rank, without bound and hosts. Checks every element of one
/// all-reduce of each algorithm, then times. `terms` are for the least precise wire. `control` is for what the
/// measurement itself has to say.
std::vector<AllReduceRow> measure_size(comm::Communicator& control,
                                       std::span<const std::unique_ptr<AllReduce>> algorithms, std::int64_t count,
                                       const KnownSums& terms, const Repetitions& repetitions);
/// Throws comm::AgreedError where elements are wrong.
void require_right(std::span<const AllReduceRow> rows);

}  // namespace lockstep::app
