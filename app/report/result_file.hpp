/// \file
/// Destination of results, for programs or for people: a file that a benchmark writes, or standard output.
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

/// Collective, at the end of a command whose result is rank 0's output: throws comm::ConsensusError if standard output
/// did not accept it (a full disk).
void require_output(comm::Communicator& communicator, const Console& console);

/// A file that rank 0 writes if its name is given; all ranks learn of a failure. It is opened at once, so that an
/// unwritable path is reported before any measurement. The first write empties it: earlier content stays if there is no
/// write. A write has reached the system when it returns. The file may be a device or a pipe.
class ResultFile {
 public:
  /// Collective, like write(). `file` empty: never writes. `deadline`: for each access, nullptr: none; it and
  /// `communicator` outlive this object. Throws comm::ConsensusError.
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
