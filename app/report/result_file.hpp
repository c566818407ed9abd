/// \file
/// Destinations of results, for programs or people: a file that a benchmark writes, or standard output.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "app/report/console.hpp"
#include "comm/communicator.hpp"
#include "io/files/durable_file.hpp"
#include "io/files/io_deadline.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

/// Collective. Call at the end of a command whose result is rank 0's output. Throws comm::ConsensusError if standard
/// output did not accept it (a full disk).
void require_output(comm::Communicator& communicator, const Console& console);

/// A file that rank 0 writes if the user names one; all ranks learn of a failure. It is opened at once, so that a path
/// that cannot be written is reported before any measurement. The first write empties the file; without a write, its
/// content stays. When a write returns, the system has the data. The file may be a device or a pipe.
class ResultFile {
 public:
  /// Collective, like write(). If `file` is empty, never writes. `deadline` limits each access; nullptr: no limit.
  /// `deadline` and `communicator` must outlive this object. Throws comm::ConsensusError.
  ResultFile(comm::Communicator& communicator, const std::filesystem::path& file, io::IoDeadline* deadline = nullptr);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  /// Appends to the previous writes of this object.
  void write(const std::string& text);
  /// Appends a line of JSON.
  void write_record(const io::MetricRecord& record) { write(io::to_json_line(record) + "\n"); }
  bool wanted() const noexcept { return !file_.empty(); }

 private:
  void on_rank_0(const std::function<void()>& work);

  comm::Communicator& communicator_;
  std::filesystem::path file_;
  io::IoDeadline* deadline_;
  io::Descriptor descriptor_;
  bool emptied_ = false;
};

}  // namespace lockstep::app
