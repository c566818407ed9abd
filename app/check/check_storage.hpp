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

/// Errors: data that a rank cannot open, that differ from the other ranks' data, or that are damaged. A warning: files
/// with other modification times whose content has not been compared.
std::vector<Finding> judge_data(std::span<const RankFacts> facts);

/// Errors: ranks of a host or of a control group want more memory than is left.
std::vector<Finding> judge_memory(std::span<const RankFacts> facts);
/// "1.2 GiB a rank, 4.8 GiB a host; 23.1 GiB free there".
std::string describe_memory(std::span<const RankFacts> facts);

/// The folder that the job will write to, seen from rank 0.
struct RunFolderFacts {
  std::filesystem::path folder;       ///< the user's text
  std::filesystem::path lowest = {};  ///< lowest existing one of it and its parents: tested by writing
  std::string error = {};             ///< reason why it cannot be written
  bool holds_run = false;             ///< it contains a run already
  bool continues = false;             ///< --resume or --force was given
  std::uint64_t free = kNoLimit;      ///< bytes
  std::uint64_t checkpoint = 0;       ///< bytes of one; 0: unknown
  std::uint64_t kept = 0;             ///< existing checkpoints
  std::uint64_t keep = 1;             ///< --keep, plus --keep-best if there are validations

  /// Bytes that checkpoints will add: those kept and the one being written, less the existing ones.
  std::uint64_t wanted() const noexcept { return checkpoint * (keep + 1 - (kept < keep ? kept : keep)); }
};
/// Examines and tests the folder: creates, flushes and removes a small file. Never throws.
RunFolderFacts look_at_run_folder(const std::filesystem::path& folder);
/// Errors: not writable, too little space. A warning: it contains a run already.
std::vector<Finding> judge_run_folder(const RunFolderFacts& facts);

}  // namespace lockstep::app
