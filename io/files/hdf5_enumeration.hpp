/// \file
/// Members of HDF5's enumerations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::io {

/// Returns the names of an enumeration's members by their numbers; empty if the elements of the dataset are no
/// enumeration, or h5py's booleans. Throws FileError if the file cannot be opened.
std::map<std::int64_t, std::string> enumeration_members(const std::filesystem::path& file, std::string_view dataset);

}  // namespace lockstep::io
