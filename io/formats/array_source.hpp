/// \file
/// Sources of samples from arrays: shared by IDX and NPY after their headers. A file has one array; its rows are
/// samples.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/formats/byte_reader.hpp"
#include "io/shards/sample_source.hpp"

namespace lockstep::io {

/// A file whose header has been read.
struct ArrayFile {
  ByteReader bytes;  ///< positioned at the first row
  FileType type = FileType::other;
  bool big_endian = false;
  std::vector<std::int64_t> shape;  ///< the first extent counts samples
};

/// Opens a NumPy .npy of C order. Throws FileError.
ArrayFile open_npy_array(const std::filesystem::path& path);
/// Throws FileError for impossible extents: none, negative, no sample, more bytes than the file has.
void check_shape(const ArrayFile& file);
/// Fills `rows` with the next elements, in the byte order of this machine.
void read_rows(ArrayFile& file, std::span<std::byte> rows);

/// One array as a field of the samples.
struct NamedArray {
  std::string name;
  std::function<ArrayFile()> open;  ///< returns the file, positioned at its first row
};
/// A source with several arrays: inputs, and targets (may be empty). Throws FileError if the numbers of rows differ, or
/// if one of several targets is not numeric.
std::unique_ptr<SampleSource> make_array_source(std::string description, const std::vector<NamedArray>& inputs,
                                                const std::vector<NamedArray>& targets, const ArrayLabels& labels);
/// As above, with one input and one target; empty y: samples without labels. Throws FileError if the numbers of rows
/// differ.
std::unique_ptr<SampleSource> make_array_source(std::string format, ArrayFile (*open)(const std::filesystem::path&),
                                                const std::filesystem::path& x, const std::filesystem::path& y,
                                                const ArrayLabels& labels);

}  // namespace lockstep::io
