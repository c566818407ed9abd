/// \file
/// State that several processes of one sweep share: which trainings are done, their results, and which training each
/// process works on. Small files in FOLDER/sweep hold it.
///
/// A claim is a file that its holder creates exclusively: rung-1-setting-3.claim. When a claim is lost or released, its
/// successor .claim.2 is created, and so on; the last one counts. Claims stay until the result exists. So if several
/// processes see that a claim is lost, only one of them creates the successor. A claim names its holder, and its time
/// of change is the holder's heartbeat.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "io/files/durable_file.hpp"
#include "io/runs/process_identity.hpp"

namespace lockstep::app {

/// A training of one setting, up to the end of one rung; without halving there is one rung.
struct SweepTask {
  std::int64_t rung = 0;     ///< from 0
  std::int64_t setting = 1;  ///< from 1; also the name of the run's folder
};

struct SweepResult {
  std::string line;              ///< line of the setting, to detect a changed file of settings
  std::string metric_key;        ///< "": no validation
  std::optional<double> metric;  ///< best of all validations so far
  std::int64_t exit_code = 0;
};

class SweepFolder {
 public:
  /// Creates FOLDER/sweep. Throws io::FileError.
  explicit SweepFolder(const std::filesystem::path& folder);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  /// Returns a result; nullopt if the task is not finished. Throws io::FileError.
  std::optional<SweepResult> result(const SweepTask& task) const;
  void record(const SweepTask& task, const SweepResult& result) const;
  std::filesystem::path result_file(const SweepTask& task) const;
  /// Tries to claim a task. On success, returns true, and the task belongs to this process until release() or the end
  /// of this object. Only one claim at a time. A holder loses its claim when it has ended or has sent no heartbeat for
  /// kSilence seconds. A process cannot see into another container; on the same kernel, a holder there counts as ended
  /// after kShortSilence seconds if its lock on the claim is free. Throws io::FileError.
  bool claim(const SweepTask& task);
  /// True if no other process has taken the task over.
  bool holds() const;
  void release();
  /// Sends the heartbeat. Call it at least every kHeartbeat seconds while the claim is held.
  void still_here();
  /// The file for the output of a training.
  std::filesystem::path words_of(std::int64_t setting) const;

  static constexpr double kHeartbeat = 2, kShortSilence = 10, kSilence = 120;  ///< seconds

 private:
  /// The claim that this process holds.
  struct Held {
    SweepTask task;
    std::int64_t number = 1;
    io::Descriptor file;
  };

  std::filesystem::path claim_file(const SweepTask& task, std::int64_t number) const;
  bool create(const SweepTask& task, std::int64_t number);
  bool is_over(const std::filesystem::path& claim) const;
  double now() const;

  std::filesystem::path folder_;
  io::ProcessIdentity own_;
  std::optional<Held> held_;
  mutable io::Descriptor clock_;  ///< an unlinked file, to read the clock of the file system
};

}  // namespace lockstep::app
