/// \file
/// Judgements about data, memory and disk. They depend only on facts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"

namespace lockstep::app {

/// Errors: data that a rank cannot open, that differ between ranks, or that are damaged. Warning: files with different
/// modification times whose contents were not compared.
std::vector<Finding> judge_data(std::span<const RankFacts> facts);

/// Errors: the ranks of a host or of a control group need more memory than is free.
std::vector<Finding> judge_memory(std::span<const RankFacts> facts);
/// "1.2 GiB a rank, 4.8 GiB a host; 23.1 GiB free there".
std::string describe_memory(std::span<const RankFacts> facts);

/// The folder that the job will write to, as rank 0 sees it.
struct RunFolderFacts {
  std::filesystem::path folder;       ///< the user's text
  std::filesystem::path lowest = {};  ///< the folder or its lowest existing parent, which is tested by writing
  std::string error = {};             ///< reason why it cannot be written
  bool holds_run = false;             ///< the folder already contains a run
  bool continues = false;             ///< --resume or --force was given
  std::uint64_t free = kNoLimit;      ///< bytes
  std::uint64_t checkpoint = 0;       ///< bytes of a checkpoint; 0: unknown
  std::uint64_t kept = 0;             ///< number of existing checkpoints
  std::uint64_t keep = 1;             ///< checkpoints to keep: --keep, plus --keep-best with validations

  /// Bytes that checkpoints will add: the kept ones and the one being written, minus the existing ones.
  std::uint64_t wanted() const noexcept { return checkpoint * (keep + 1 - (kept < keep ? kept : keep)); }
};
/// Examines the folder, and tests it: creates, flushes and removes a small file. Never throws.
RunFolderFacts look_at_run_folder(const std::filesystem::path& folder);
/// Errors: not writable, too little space. Warning: the folder already contains a run.
std::vector<Finding> judge_run_folder(const RunFolderFacts& facts);

}  // namespace lockstep::app
