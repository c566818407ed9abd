/// \file
/// The columns of packed data or of a checkpoint, to encode another table with the same columns.
#pragma once

#include <filesystem>

#include "io/shards/sample_source.hpp"

namespace lockstep::app {

/// Reads them from a shard folder, a folder that contains train/, a run folder or a checkpoint. Throws io::FileError if
/// it has no names of columns.
io::TableEncoding read_table_encoding(const std::filesystem::path& path);

}  // namespace lockstep::app
