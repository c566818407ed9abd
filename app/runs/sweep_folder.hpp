/// \file
/// What several processes that share a sweep's folder know of each other: which training is done, with what result, and
/// which one somebody is at. Small files in FOLDER/sweep, each made and replaced as a whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::app {

/// A training of one setting, up to the end of one rung: of a sweep without halving there is one rung.
struct SweepTask {
  std::int64_t rung = 0;     ///< from 0
  std::int64_t setting = 1;  ///< from 1, as its run's folder is called
};

struct SweepResult {
  std::string line;              ///< the setting's: a file of settings that has changed is noticed
  std::string metric_key;        ///< "": no validation
  std::optional<double> metric;  ///< the best of all validations so far
  std::int64_t exit_code = 0;
};

class SweepFolder {
 public:
  /// Makes FOLDER/sweep. Throws io::FileError.
  explicit SweepFolder(const std::filesystem::path& folder);
  ~SweepFolder();
  SweepFolder(const SweepFolder&) = delete;
  SweepFolder& operator=(const SweepFolder&) = delete;

  /// nullopt: it is not done. Throws io::FileError.
  std::optional<SweepResult> result(const SweepTask& task) const;
  void record(const SweepTask& task, const SweepResult& result) const;
  std::filesystem::path result_file(const SweepTask& task) const;
  /// True: from here on the task is this process's, until release() or the end of this object. One that died, or that
  /// has not said anything for kSilence seconds, has lost its claim. One claim at a time.
  bool claim(const SweepTask& task);
  void release();
  /// To be called at least every few seconds while the claim is held.
  void still_here();
  /// Where the words of a training go.
  std::filesystem::path words_of(std::int64_t setting) const;

  static constexpr double kSilence = 120;

 private:
  std::filesystem::path claim_file(const SweepTask& task) const;
  bool take_from_dead(const std::filesystem::path& claim) const;

  std::filesystem::path folder_;
  std::string who_;
  std::filesystem::path mine_;  ///< the claim that is held; "": none
};

}  // namespace lockstep::app
