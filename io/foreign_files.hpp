/// \file
/// Checks HDF5 files from other programs in a child process before this process opens them. A damaged file can crash
/// libhdf5, make it run for ever or take all memory. Then only the child ends, and the cause becomes a FileError.
/// Shards with a manifest need no check, because their metadata have checksums.
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

/// The inspection, run in the child process. Opens each file and describes x and y. Data that only the library can read
/// are read: all of y, the first 16 MiB of x, some later positions, and the whole index of their chunks. Refuses
/// datasets that are not fully written. Opens checkpoints and otherwise ignores them. A file may lack x and y if other
/// files of the folder take data from it. `progress` gets the name of each file before it is opened, and "" as a sign
/// of life. Throws FileError.
void inspect(const ForeignFiles& files, const std::function<void(std::string_view file)>& progress);

/// First argument with which a program runs `answer_inspection`.
inline constexpr std::string_view kInspectionArgument = "inspect-foreign-files";
/// Main function of the child; `words` are the arguments after the first. Returns the exit code.
int answer_inspection(std::span<const char* const> words);

/// Runs `program` to inspect the files and waits for it. Does nothing for shards with a manifest, for missing files,
/// and if no process can be started. Throws the error of the inspection as FileError, or FileError with the name of the
/// file that the inspection was reading when it died.
void inspect_in_child(const std::filesystem::path& program, const ForeignFiles& files, const InspectionLimits& limits);

}  // namespace lockstep::io
