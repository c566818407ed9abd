/// \file
/// `lockstep bench input`: measures how fast shards are read in the order of training, compared with raw reads of the
/// same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/bench/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_input(comm::MpiSession& session, const BenchInputOptions& options);

/// Figures of one way of reading. It is timed in parts; a part takes as long as on its slowest rank.
struct InputRow {
  std::string way;
  std::int64_t ranks = 1;
  double samples = 0, bytes = 0;               ///< samples, and bytes of files, in a part over all ranks
  double seconds = 0;                          ///< median time of a part
  double quickest_part = 0, slowest_part = 0;  ///< seconds of the quickest and the slowest part
  double quickest_rank = 0, slowest_rank = 0;  ///< least and greatest median of a rank's own seconds
  int slowest = 0;                             ///< rank with the greatest median
  double stall = 0;                            ///< share of the time that a rank waited, mean over the ranks

  double samples_per_second() const { return seconds > 0 ? samples / seconds : 0; }
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

std::string format_input_head();
std::string format_input_row(const InputRow& row);
std::string input_csv_head();
std::string input_csv_row(const InputRow& row);

/// States conclusions from the rows: the computing time per step below which input limits a step, the bottleneck of
/// reading, and whether a computation of `compute_ms` had to wait. `computing` may be null. `batches`: batches per rank
/// in a part.
std::string input_verdict(const InputRow& raw, const InputRow& training, const InputRow* computing, double compute_ms,
                          double batches, bool cached);

}  // namespace lockstep::app
