/// \file
/// Checks HDF5 files from other programs in a process of their own before anything else opens them. A damaged file can
/// crash libhdf5, make it run for ever or take all memory. Then only that process ends, and the cause becomes a
/// FileError. Shards with a manifest need no such check: their metadata have checksums.
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
  std::filesystem::path path;  ///< a folder of HDF5 files, or one file
  std::string x, y;            ///< dataset names; an empty y: no labels
  Unlabelled unlabelled = Unlabelled::refused;
  Gaps gaps = {};
};

struct InspectionLimits {
  double silence_seconds = 60;                          ///< longest time without progress
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;  ///< address space beyond the program's initial use
};

/// The inspection, run in the child process. Opens each file and describes x and y. If the library must be asked for
/// them, it reads all of y, the first 16 MiB of x, some later positions, and the whole index of their chunks. Refuses
/// datasets that are not fully written. A checkpoint is opened and otherwise ignored. A file from which other files of
/// the folder take their data may lack x and y itself. `progress` gets the name of each file before it is opened, and
/// "" now and then. Throws FileError.
void inspect(const ForeignFiles& files, const std::function<void(std::string_view file)>& progress);

/// First argument of the command line that makes a program run `answer_inspection`.
inline constexpr std::string_view kInspectionArgument = "inspect-foreign-files";
/// Main function of that program; `words` are the arguments after the first. Returns the exit code.
int answer_inspection(std::span<const char* const> words);

/// Runs `program` to inspect the files and waits for it. Does nothing for shards with a manifest, for missing files,
/// and if no process can be started. Throws FileError: the error that the inspection threw, or that the inspection
/// died, with the name of the file it was reading.
void inspect_in_child(const std::filesystem::path& program, const ForeignFiles& files, const InspectionLimits& limits);

}  // namespace lockstep::io
