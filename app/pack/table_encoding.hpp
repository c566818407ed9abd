/// \file
/// The columns that packed data or a checkpoint know, for another table of the same ones.
#pragma once

#include <filesystem>

#include "io/shards/sample_source.hpp"

namespace lockstep::app {

/// Of a shard folder, a folder with train/ inside, a run folder or a checkpoint. Throws io::FileError where it knows no
/// names of columns.
io::TableEncoding read_table_encoding(const std::filesystem::path& path);

}  // namespace lockstep::app
