/// \file
/// Checkpoints that several processes write, each a part of the state (checkpoint_format.md). Parts are in a folder
/// beside the checkpoint's file. The checkpoint exists when that file, written last, is renamed to its final name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Consecutive values of a tensor, in memory order: [first, first + values.size()).
struct TensorPiece {
  std::string group, name;  ///< name of the tensor
  std::int64_t first = 0;
  std::span<const float> values;
};

/// A tensor whose values are in parts.
struct SplitTensor {
  std::string group, name;
  std::vector<std::int64_t> shape;
};

/// A part that is on the device and has been read back.
struct WrittenPart {
  std::string file;  ///< path relative to the folder of checkpoints
  std::uint64_t checksum = 0;
};

/// The parts that a checkpoint's file lists.
struct SplitState {
  std::vector<SplitTensor> tensors;
  std::vector<WrittenPart> parts;
};

/// Identifies a part and the attempt at a checkpoint that it belongs to.
struct PartPlace {
  std::filesystem::path folder;  ///< folder of checkpoints
  std::int64_t step = 0;
  std::string attempt;  ///< equal for all parts, different for every attempt: hexadecimal digits
  int index = 0, count = 1;
};

/// Writes one part and blocks until it is on the device. The part is unused until a checkpoint refers to it. Throws
/// FileError.
WrittenPart write_checkpoint_part(const PartPlace& place, std::span<const TensorPiece> pieces);

/// Verifies from this process parts that other processes may have written. Throws FileError if a part differs from its
/// writer's description.
void require_parts(const std::filesystem::path& folder, std::span<const WrittenPart> parts);

/// All folders of parts in a folder of checkpoints.
std::vector<std::filesystem::path> part_folders(const std::filesystem::path& checkpoints);
/// The folders of parts, up to a step, that no checkpoint refers to: from earlier unfinished attempts, or from
/// checkpoints that were removed or replaced.
std::vector<std::filesystem::path> orphaned_part_folders(const std::filesystem::path& checkpoints,
                                                         std::int64_t last_step);
/// Removes a folder of parts. It stays if a previous owner of the run still writes into it unawares; the next
/// checkpoint of a later step removes this orphan. Throws FileError.
void remove_part_folder(const std::filesystem::path& folder);

}  // namespace lockstep::io
