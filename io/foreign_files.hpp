/// \file
/// HDF5 files made by others, looked at for the first time in a process of their own. A damaged one can crash libhdf5,
/// make it run for ever or take all memory; then that process ends, and what it died of becomes a FileError. Shards
/// with their manifest need none of it: their metadata have checksums.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "io/files/file_error.hpp"
#include "io/shards/shard_file.hpp"

namespace lockstep::io {

struct ForeignFiles {
  std::filesystem::path path;  ///< a folder of HDF5 files, or one
  std::string x, y;            ///< dataset names; an empty y: no labels
  Unlabelled unlabelled = Unlabelled::refused;
  Gaps gaps = {};
};

struct InspectionLimits {
  double silence_seconds = 60;                          ///< without any progress
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;  ///< of address space, beyond what the program starts with
};

/// What a program does with the files in the process of its own: opens each, describes x and y, and where the library
/// has to be asked for them reads all of y, the first 16 MiB of x, places beyond, and the whole index of their chunks.
/// Refuses what was not written to its end. A checkpoint is opened and left alone, and of a file that others of the
/// folder take their data from it does not matter whether it has x and y itself.
/// `progress` gets the name of each file before it is opened and "" now and then. Throws FileError.
void inspect(const ForeignFiles& files, const std::function<void(std::string_view file)>& progress);

/// First word of the command line that makes a program answer with `answer_inspection`.
inline constexpr std::string_view kInspectionWord = "inspect-foreign-files";
/// That program's main, with the words after the first. Returns the exit code.
int answer_inspection(std::span<const char* const> words);

/// Runs `program` to inspect the files and waits for it. Does nothing for shards with a manifest, for what does not
/// exist, and where no process can be started. Throws FileError: what the inspection threw, or that it died, with the
/// name of the file that it died of.
void inspect_in_child(const std::filesystem::path& program, const ForeignFiles& files, const InspectionLimits& limits);

}  // namespace lockstep::io
