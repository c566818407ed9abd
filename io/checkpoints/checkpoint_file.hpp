/// \file
/// Writes and reads the content of one checkpoint file; internal to io. checkpoint.cpp has the order of steps that
/// makes it safe, checkpoint_format.md the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoints/checkpoint.hpp"

namespace lockstep::io {

/// The formats that are written: one file, and a file with parts. With the text of a network each is two higher, so
/// older versions can still read checkpoints of shipped networks.
inline constexpr std::int64_t kCheckpointFormat = 5, kCheckpointFormatWithParts = 6, kNewestCheckpointFormat = 8;
/// Formats from 3 on come in pairs; the second of each pair has parts.
constexpr bool has_parts(std::int64_t format) noexcept { return format >= 4 && format % 2 == 0; }

/// "step-0000000010.h5".
std::string checkpoint_name(std::int64_t step);

/// Throws std::invalid_argument: invalid or duplicate names, shapes that do not match the values, text with NUL.
void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors);

/// An upper bound of the file's size.
std::uint64_t checkpoint_bytes_needed(const TrainingRecord& record, std::span<const TensorView> tensors);

/// Does everything up to the rename: when it returns, `file` is on the device and has been read back, except for its
/// parts. Returns the checksum of the state, which covers the checksum of every tensor and part. Throws FileError, and
/// std::system_error if the space cannot be reserved; the caller then removes `file`.
std::uint64_t write_and_verify(const std::filesystem::path& file, const TrainingRecord& record,
                               std::span<const TensorView> tensors, const SplitState& split);

struct VerifiedRecord {
  TrainingRecord record;
  std::uint64_t checksum = 0;
  SplitState split;
  /// GROUP/NAME and number of elements of every tensor in the file itself.
  std::vector<std::pair<std::string, std::size_t>> tensors = {};
};
enum class Parts { read, left_out };
/// Reads and checks everything; appends to `kept` unless it is nullptr.
VerifiedRecord read_checkpoint_file(const std::filesystem::path& path, std::vector<StoredTensor>* kept, Parts parts);

/// The parts that a checkpoint's file lists, before any verification; empty: no parts. Throws FileError.
std::vector<WrittenPart> parts_of_checkpoint(const std::filesystem::path& file);

}  // namespace lockstep::io
