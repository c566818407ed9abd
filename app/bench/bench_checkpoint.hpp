/// \file
/// `lockstep bench checkpoint`: measures how long training stands still for a checkpoint, and how long until the
/// checkpoint is complete on disk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/bench/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

/// Durations of checkpoints, or of plain writes of the same bytes.
struct CheckpointRow {
  std::string way;
  int ranks = 1;
  int writers = 1;
  double bytes = 0;             ///< size of the state that all writers write together
  std::vector<double> seconds;  ///< seconds until the bytes were on disk, for each checkpoint; > 0
  std::vector<double> stall;    ///< seconds that training stood still, for each checkpoint; empty for plain writes
};

std::string format_checkpoint_head();
std::string format_checkpoint_row(const CheckpointRow& row);
std::string checkpoint_csv_head();
std::string checkpoint_csv_row(const CheckpointRow& row);

/// Collective. Returns the exit code.
int run_bench_checkpoint(comm::MpiSession& session, const BenchCheckpointOptions& options);

}  // namespace lockstep::app
