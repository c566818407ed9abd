/// \file
/// One checkpoint file's content, written and read; internal to io. The order of steps that makes it safe is in
/// checkpoint.cpp, the format in checkpoint_format.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "io/checkpoint.hpp"
#include "io/durable_file.hpp"
#include "io/hdf5_file.hpp"

namespace lockstep::io {

/// The format that is written, and the newest that is read.
inline constexpr std::int64_t kCheckpointFormat = 3;

/// Throws std::invalid_argument: names that are no names, twins, shapes that do not match the values, text with NUL.
void check_checkpoint_content(const TrainingRecord& record, std::span<const TensorView> tensors);

/// An upper bound of the file's size.
std::uint64_t checkpoint_bytes_needed(const TrainingRecord& record, std::span<const TensorView> tensors);

/// Into a new file, of which `bytes` is open for writing, too; the caller closes both. The library's lock is held for
/// short calls only. Returns the checksum of the state, which covers every tensor's checksum.
std::uint64_t fill_checkpoint_file(Hdf5File& file, const Descriptor& bytes, const TrainingRecord& record,
                                   std::span<const TensorView> tensors);

struct VerifiedRecord {
  TrainingRecord record;
  std::uint64_t checksum = 0;
};
/// Reads and checks everything; appends to `kept` unless that is nullptr.
VerifiedRecord read_checkpoint_file(const std::filesystem::path& path, std::vector<StoredTensor>* kept);

}  // namespace lockstep::io
