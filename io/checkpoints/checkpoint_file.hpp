/// \file
/// One checkpoint file's content, written and read; internal to io. The order of steps that makes it safe is in
/// checkpoint.cpp, the format in checkpoint_format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::io {

/// The format that is written: of one file, and of a file with parts, which is the newest that is read.
inline constexpr std::int64_t kCheckpointFormat = 5, kCheckpointFormatWithParts = 6;
/// Of the formats that are read: those from 3 on come in pairs, the second of which has parts.
constexpr bool has_parts(std::int64_t format) noexcept { return format >= 4 && format % 2 == 0; }

/// "step-0000000010.h5".
std::string checkpoint_name(std::int64_t step);

/// Throws std::invalid_argument: names that are no names, twins, shapes that do not match the values, text with NUL.
void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors);

/// An upper bound of the file's size.
std::uint64_t checkpoint_bytes_needed(const TrainingRecord& record, std::span<const TensorView> tensors);

/// Everything up to the rename: when it returns, `file` is on the device and has been read back, but for its parts.
/// Returns the checksum of the state, which covers every tensor's and part's checksum. Throws FileError, and
/// std::system_error where the space cannot be reserved; `file` is then the caller's to remove.
std::uint64_t write_and_verify(const std::filesystem::path& file, const TrainingRecord& record,
                               std::span<const TensorView> tensors, const SplitState& split);

struct VerifiedRecord {
  TrainingRecord record;
  std::uint64_t checksum = 0;
  SplitState split;
  /// GROUP/NAME and the number of elements of every tensor that the file itself holds.
  std::vector<std::pair<std::string, std::size_t>> tensors = {};
};
enum class Parts { read, left_out };
/// Reads and checks everything; appends to `kept` unless that is nullptr.
VerifiedRecord read_checkpoint_file(const std::filesystem::path& path, std::vector<StoredTensor>* kept, Parts parts);

/// What the file of a checkpoint says of its parts, before anything is verified; none: it has none. Throws FileError.
std::vector<WrittenPart> parts_of_checkpoint(const std::filesystem::path& file);

}  // namespace lockstep::io
