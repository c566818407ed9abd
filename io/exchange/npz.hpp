/// \file
/// NumPy's archive of arrays (numpy.load): a zip file, not compressed, of one .npy file for each tensor.
#pragma once

#include <filesystem>
#include <span>

#include "io/exchange/safetensors.hpp"

namespace lockstep::io {

/// Float32 arrays under their names, in the given order; equal content, equal bytes. Sizes and places beyond 4 GB stand
/// in the fields of zip64 (PKWARE's APPNOTE.TXT 6.3, sections 4.3 and 4.5.3). Throws FileError.
void write_npz(const std::filesystem::path& file, std::span<const NamedTensor> tensors, IfThere if_there);

/// The header of an array's .npy file (numpy.lib.format, version 1.0), a multiple of 64 bytes.
std::string npy_header(std::span<const std::int64_t> shape);

}  // namespace lockstep::io
