/// \file
/// State that the processes of a sweep share in its folder: results of finished trainings, and claims of running ones.
/// Small files in FOLDER/sweep, each created and replaced as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

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
  /// Returns true if the task belongs to this process from here on, until release() or the end of this object. A
  /// process that died, or was silent for kSilence seconds, has lost its claim. One claim at a time.
  bool claim(const SweepTask& task);
  void release();
  /// Call at least every few seconds while the claim is held.
  void still_here();
  /// File for the output of a training.
  std::filesystem::path words_of(std::int64_t setting) const;

  static constexpr double kSilence = 120;

 private:
  std::filesystem::path claim_file(const SweepTask& task) const;
  bool take_from_dead(const std::filesystem::path& claim) const;

  std::filesystem::path folder_;
  std::string who_;
  std::filesystem::path mine_;  ///< the held claim; "": none
};

}  // namespace lockstep::app
