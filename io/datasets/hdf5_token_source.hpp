/// \file
/// Corpora of tokens in HDF5 files of other programs, as a source for `pack`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// A dataset of one extent, of whole numbers, in an HDF5 file or in each file of a folder. Throws FileError for other
/// datasets. The caller must know the vocabulary's size.
std::unique_ptr<SampleSource> open_hdf5_tokens(const std::filesystem::path& path, const std::string& dataset,
                                               std::int64_t vocabulary);

}  // namespace lockstep::io
