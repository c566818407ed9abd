/// \file
/// Judgements about data, memory and disk. From facts alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"

namespace lockstep::app {

/// Errors: data that a rank cannot open, that is not what the other ranks have, that is damaged. A warning: files of
/// another age whose content nobody has compared.
std::vector<Finding> judge_data(std::span<const RankFacts> facts);

/// Errors: ranks of a host or of a control group want more memory than there is left.
std::vector<Finding> judge_memory(std::span<const RankFacts> facts);
/// "1.2 GiB a rank, 4.8 GiB a host; 23.1 GiB free there".
std::string describe_memory(std::span<const RankFacts> facts);

/// Where the job will write, as rank 0 sees it.
struct RunFolderFacts {
  std::filesystem::path folder;       ///< as the user named it
  std::filesystem::path lowest = {};  ///< of it and the folders above it, the lowest that is there: tried out
  std::string error = {};             ///< why nothing can be written there
  bool holds_run = false;             ///< a run is in it already
  bool continues = false;             ///< --resume or --force was given
  std::uint64_t free = kNoLimit;      ///< bytes
  std::uint64_t checkpoint = 0;       ///< bytes of one; 0: not known
  std::uint64_t kept = 0;             ///< checkpoints there already
  std::uint64_t keep = 1;             ///< --keep, and --keep-best where there are validations

  /// Bytes that checkpoints will add: as many as are kept and the one being written, less those that are there.
  std::uint64_t wanted() const noexcept { return checkpoint * (keep + 1 - (kept < keep ? kept : keep)); }
};
/// Looks, and tries: creates, flushes and removes a small file. Never throws.
RunFolderFacts look_at_run_folder(const std::filesystem::path& folder);
/// Errors: cannot be written to, too little space. A warning: a run is there already.
std::vector<Finding> judge_run_folder(const RunFolderFacts& facts);

}  // namespace lockstep::app
