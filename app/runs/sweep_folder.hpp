/// \file
/// Shared knowledge of several processes at one sweep: which training is done, with what result, and which one a
/// process is at. It lies in small files in FOLDER/sweep.
///
/// A claim is a file that its holder creates, and that exists only if nobody had it before: rung-1-setting-3.claim,
/// then .claim.2 and so on, each of which succeeds the one before when that is lost or released. The last one counts.
/// Claims stay until the result is there, so that of several processes that see a claim lost, one alone creates its
/// successor. A claim says which process holds it, and when it was changed last: its holder's heartbeat.
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
  std::int64_t setting = 1;  ///< from 1, the name of its run's folder
};

struct SweepResult {
  std::string line;              ///< line of the setting, to notice a changed file of settings
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

  /// nullopt: not finished. Throws io::FileError.
  std::optional<SweepResult> result(const SweepTask& task) const;
  void record(const SweepTask& task, const SweepResult& result) const;
  std::filesystem::path result_file(const SweepTask& task) const;
  /// True: from here on the task is this process's, until release() or the end of this object. One claim at a time. A
  /// holder loses its claim when it is seen to have ended, and when nothing was heard of it for kSilence seconds. A
  /// container cannot look into another one: on one kernel kShortSilence seconds and the lock of its claim, which the
  /// kernel has taken from it, tell that it has ended. Throws io::FileError.
  bool claim(const SweepTask& task);
  /// True if no other process has taken the task over.
  bool holds() const;
  void release();
  /// The heartbeat: at least every kHeartbeat seconds while the claim is held.
  void still_here();
  /// File for the output of a training.
  std::filesystem::path words_of(std::int64_t setting) const;

  static constexpr double kHeartbeat = 2, kShortSilence = 10, kSilence = 120;  ///< seconds

 private:
  /// The claim that is held.
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
  mutable io::Descriptor clock_;  ///< a file without a name: what time it is there
};

}  // namespace lockstep::app
