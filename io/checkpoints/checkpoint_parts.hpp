/// \file
/// Checkpoints that several processes write, each a part of the state (checkpoint_format.md). Parts lie in a folder
/// beside the file of the checkpoint; it is that file, renamed to its name at the end, which makes the checkpoint
/// exist.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Some values of a tensor, in the order of memory: [first, first + values.size()) of them.
struct TensorPiece {
  std::string group, name;  ///< of the tensor
  std::int64_t first = 0;
  std::span<const float> values;
};

/// A tensor whose values lie in parts.
struct SplitTensor {
  std::string group, name;
  std::vector<std::int64_t> shape;
};

/// A part that is on the device and has been read back.
struct WrittenPart {
  std::string file;  ///< as seen from the folder of checkpoints
  std::uint64_t checksum = 0;
};

/// What the file of a checkpoint says of its parts.
struct SplitState {
  std::vector<SplitTensor> tensors;
  std::vector<WrittenPart> parts;
};

/// Which part of which attempt at a checkpoint.
struct PartPlace {
  std::filesystem::path folder;  ///< of checkpoints
  std::int64_t step = 0;
  std::string attempt;  ///< the same for all parts, different for every attempt: hexadecimal digits
  int index = 0, count = 1;
};

/// Blocks until the part is on the device. It counts for nothing yet. Throws FileError.
WrittenPart write_checkpoint_part(const PartPlace& place, std::span<const TensorPiece> pieces);

/// Looks at every part from here, where others may have written it: throws FileError where one is not as its writer
/// said.
void require_parts(const std::filesystem::path& folder, std::span<const WrittenPart> parts);

/// The folders of parts in a folder of checkpoints.
std::vector<std::filesystem::path> part_folders(const std::filesystem::path& checkpoints);
/// Of these, up to a step, the ones that no checkpoint refers to: of attempts that ended before, or of checkpoints that
/// were removed or replaced.
std::vector<std::filesystem::path> orphaned_part_folders(const std::filesystem::path& checkpoints,
                                                         std::int64_t last_step);
/// Removes a folder of parts. One that an owner of the run before, which has not noticed yet, still writes into stays:
/// it is an orphan that the next checkpoint of a later step removes. Throws FileError.
void remove_part_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
