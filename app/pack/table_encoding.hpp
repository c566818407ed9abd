/// \file
/// Reads the columns of packed data or of a checkpoint, to encode another table with the same columns.
#pragma once

#include <filesystem>

#include "io/shards/sample_source.hpp"

namespace lockstep::app {

/// `path`: a shard folder, a folder that contains train/, a run folder or a checkpoint. Throws io::FileError if it
/// stores no column names.
io::TableEncoding read_table_encoding(const std::filesystem::path& path);

}  // namespace lockstep::app
