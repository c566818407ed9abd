/// \file
/// JSON files of benchmarks: figures and their provenance.
#pragma once

#include <filesystem>
#include <limits>
#include <span>

#include "app/report/result_file.hpp"
#include "comm/communicator.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// An unknown figure: null in JSON, an empty cell in CSV.
inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// Describes program, machine and time: "version", "commit", "build", "host", "cpu", "date" (UTC), "load" (of the last
/// minute). Unknown values are null.
io::MetricRecord provenance();

/// A ResultFile for records: one per line, each ending with the provenance. The constructor determines the provenance,
/// so construct it before the benchmark, which changes the load.
class RecordFile {
 public:
  /// Collective, like write(). Has the arguments and exceptions of ResultFile.
  RecordFile(comm::Communicator& communicator, const std::filesystem::path& file, io::IoDeadline* deadline = nullptr)
      : file_(communicator, file, deadline), provenance_(provenance()) {}
  /// Writes rank 0's records.
  void write(std::span<const io::MetricRecord> records);
  void write(const io::MetricRecord& record) { write(std::span(&record, 1)); }

 private:
  ResultFile file_;
  io::MetricRecord provenance_;
};

}  // namespace lockstep::app
