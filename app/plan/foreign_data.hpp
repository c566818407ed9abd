/// \file
/// Data made by others, before this process opens it (io/foreign_files.hpp).
#pragma once

#include "app/options/train_options.hpp"
#include "comm/communicator.hpp"
#include "io/foreign_files.hpp"

namespace lockstep::app {

/// In a process of its own, which this program starts once more. Throws io::FileError.
void inspect_foreign(const io::ForeignFiles& files);

/// What a job reads of `path`.
io::ForeignFiles foreign_files(const TrainOptions& options, const std::filesystem::path& path);

/// Collective: rank 0 inspects the data of a job, the others wait. Throws on all ranks what it throws there, UsageError
/// where the options name no data.
void inspect_foreign_data(comm::Communicator& communicator, const TrainOptions& options);

}  // namespace lockstep::app
