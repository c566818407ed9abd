/// \file
/// The cases of a run: a subject, one of its files, and the damage to it. A case is a function of seed, subject and
/// number.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "torture/mutation/subjects.hpp"

namespace lockstep::torture {

enum Outcome { accepted, refused, altered, words, memory, hang, crash, kOutcomes };
inline constexpr std::array<const char*, kOutcomes> kNames = {"accepted", "refused", "altered", "words",
                                                              "memory",   "hang",    "crash"};
inline bool is_finding(int outcome) noexcept { return outcome > refused; }

struct Options {
  std::uint64_t seed = 1;
  double seconds = 0;         ///< 0: until all cases are done
  std::int64_t cases = 2000;  ///< over all subjects
  double hang_seconds = 120;
  std::filesystem::path fixtures, keep;  ///< keep: a folder for files that were handled badly
  std::string planted, only;
  std::int64_t first = 0;         ///< case to begin with
  std::filesystem::path scratch;  ///< a worker's
};

/// The valid files of all subjects, and the damage that a case does to one of them.
class Cases {
 public:
  /// `options` must outlive it. Throws std::invalid_argument for an unknown subject.
  Cases(const Options& options, std::filesystem::path folder);

  const std::vector<Subject>& subjects() const noexcept { return subjects_; }
  std::size_t subject_of(std::int64_t number) const { return static_cast<std::size_t>(number) % subjects_.size(); }
  std::filesystem::path samples(std::size_t subject) const;
  void make_samples() const;

  struct Damage {
    std::string target, bytes;
  };
  Damage damage(std::int64_t number) const;

 private:
  const Options& options_;
  std::vector<Subject> subjects_;
  std::filesystem::path folder_;
};

/// The worker: runs cases from options.first on in the folder options.scratch and reports on standard output what it
/// begins and the outcome: "begin N sound" (reads the valid files), "begin N", "end N OUTCOME TEXT". Throws the errors
/// of reading valid files.
int work(const Options& options);

}  // namespace lockstep::torture
