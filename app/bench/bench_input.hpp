/// \file
/// `lockstep bench input`: how fast the shards come in the order of training, beside raw reads of the same bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/options/bench_options.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::app {

int run_bench_input(comm::MpiSession& session, const BenchInputOptions& options);

/// One way of reading: the part whose slowest rank took the median time.
struct InputRow {
  std::string way;
  std::int64_t ranks = 1;
  double samples = 0, bytes = 0;               ///< of a part, over all ranks; bytes of the files
  double seconds = 0;                          ///< of the slowest rank
  double quickest_part = 0, slowest_part = 0;  ///< seconds
  double quickest_rank = 0, slowest_rank = 0;  ///< medians of the ranks' own seconds
  int slowest = 0;                             ///< that rank
  double stall = 0;                            ///< share of the time in which a rank waited, mean over the ranks

  double samples_per_second() const { return seconds > 0 ? samples / seconds : 0; }
  double bytes_per_second() const { return seconds > 0 ? bytes / seconds : 0; }
};

std::string format_input_head();
std::string format_input_row(const InputRow& row);
std::string input_csv_head();
std::string input_csv_row(const InputRow& row);

/// What follows from the rows: when computing would begin to wait for input, what limits it, whether it did at
/// `compute_ms` (`computing` may be null). `batches`: of a rank in a part.
std::string input_verdict(const InputRow& raw, const InputRow& training, const InputRow* computing, double compute_ms,
                          double batches, bool cached);

}  // namespace lockstep::app
