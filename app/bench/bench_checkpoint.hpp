/// \file
/// `lockstep bench checkpoint`: how long training stands still for a checkpoint, and how long it takes to be safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// What checkpoints, or plain writes of their bytes, took.
struct CheckpointRow {
  std::string way;
  int ranks = 1;
  int writers = 1;
  double bytes = 0;             ///< of the state, written by all writers together
  std::vector<double> seconds;  ///< until the bytes were safe, each time; > 0
  std::vector<double> stall;    ///< seconds without training, each time; of plain writes: none
};

std::string format_checkpoint_head();
std::string format_checkpoint_row(const CheckpointRow& row);
std::string checkpoint_csv_head();
std::string checkpoint_csv_row(const CheckpointRow& row);

/// Collective. The exit code.
int run_bench_checkpoint(comm::MpiSession& session, const BenchCheckpointOptions& options);

}  // namespace lockstep::app
