/// \file
/// The JSON of a benchmark: figures, and where they come from.
#pragma once

#include <filesystem>
#include <limits>
#include <span>

#include "app/report/result_file.hpp"
#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// A figure that is not known: null in JSON, an empty cell in CSV.
inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// Program, machine and moment: "version", "commit", "build", "host", "cpu", "date" (UTC), "load" (of the last minute).
/// Null is what is not known.
io::MetricRecord provenance();

/// As ResultFile, for records: a line each, which ends with the provenance of all of them, of the moment when this
/// object was made. Before the benchmark, whose own load would be all that it tells.
class RecordFile {
 public:
  /// Collective, as is write(). Arguments and exceptions are ResultFile's.
  RecordFile(comm::Communicator& communicator, const std::filesystem::path& file, io::IoDeadline* deadline = nullptr)
      : file_(communicator, file, deadline), provenance_(provenance()) {}
  /// Rank 0's are written.
  void write(std::span<const io::MetricRecord> records);
  void write(const io::MetricRecord& record) { write(std::span(&record, 1)); }

 private:
  ResultFile file_;
  io::MetricRecord provenance_;
};

}  // namespace lockstep::app
