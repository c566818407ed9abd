/// \file
/// Where results go, for another program or for the eye: a file that a benchmark writes, standard output.
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

/// Collective, at the end of a command whose result is what rank 0 prints: throws comm::AgreedError where standard
/// output did not take it (a full disk).
void require_output(comm::Communicator& communicator, const Console& console);

/// Written by rank 0, where a file is named; all ranks learn of a failure. The file is opened at once, so that a place
/// that cannot be written is told of before anything is measured, and emptied by the first write: what was there
/// before stays if none comes. A write is with the system when it returns. The file may be a device or a pipe.
class ResultFile {
 public:
  /// Collective, as is write(). `file` empty: nothing will ever be written. `deadline`: of each access, nullptr:
  /// none; it and `communicator` outlive this. Throws comm::AgreedError.
  ResultFile(comm::Communicator& communicator, const std::filesystem::path& file, io::IoDeadline* deadline = nullptr);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;

  /// Adds to what this object has written.
  void write(const std::string& text);
  /// Adds a line of JSON.
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
