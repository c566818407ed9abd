/// \file
/// Other programs' HDF5 files, found by their names.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace lockstep::io {

/// True for the names of HDF5 files, NetCDF-4 among them: .h5, .hdf5, .hdf, .he5, .nc, .nc4, in capitals, too.
bool has_hdf5_name(const std::filesystem::path& file);

/// The names of the files, without their folders; of many only the first.
std::string listed_names(std::span<const std::filesystem::path> files);

struct Hdf5Listing {
  std::vector<std::filesystem::path> files;
  std::string remark = {};  ///< a sentence about the other files of the folder, for users; "" if there are none
};

/// Returns the HDF5 files of a folder, in the order of their names, whose numbers count as such (9.h5 before 10.h5); or
/// `path` itself. Leaves out hidden files. Throws FileError if there is none, or a link that leads to nothing.
Hdf5Listing list_hdf5_files(const std::filesystem::path& path);

}  // namespace lockstep::io
