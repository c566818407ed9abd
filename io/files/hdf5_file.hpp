/// \file
/// One HDF5 file, its datasets and attributes; only hdf5_*.cpp use the HDF5 C library. Every call takes one mutex.
/// Errors become FileError with the innermost reason of HDF5's error stack in one sentence. Needs the serial libhdf5.
/// Not for the hot path: contiguous data is read by file offset (DatasetLayout::offset). Checkpoints write their values
/// in the same way, so that a writing thread does not hold the mutex while another one wants to read samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Element types that we read; little-endian on disk when we write.
enum class FileType : std::uint8_t {
  uint8,
  int8,
  uint16,
  int16,
  int32,
  int64,
  uint32,
  uint64,
  float32,
  float64,
  other
};
std::size_t size_of(FileType type) noexcept;  ///< bytes; 0 for other
const char* name_of(FileType type) noexcept;

/// Version of the loaded HDF5 library: "1.10.8"; "1.14.3, parallel" for that flavour.
std::string hdf5_version();

struct DatasetLayout {
  FileType type = FileType::other;  ///< float16 counts as float32, integers of 3 bytes as integers of 4
  bool text = false;                ///< strings; type is other
  bool named = false;               ///< an enumeration whose members are no booleans: read_texts() gives their names
  std::string other = {};           ///< description of the elements if type is other
  std::size_t stored_size = 0;      ///< bytes per element in the file
  bool native_order = true;  ///< element bytes are those of `type` in this machine's byte order, with all their bits
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;      ///< empty when contiguous
  bool compressed = false;              ///< any filter
  std::optional<std::uint64_t> offset;  ///< byte offset in this very file, when contiguous and allocated
  bool in_this_file = true;             ///< false: behind an external link, or in external or virtual storage
  bool dimension = false;               ///< netCDF's description of an axis, not data
};

/// For files that this program wrote. Throws FileError unless the library's structures in the file have checksums
/// (superblock version 2 and later). Without them, damage can crash the process inside the library.
void require_checksummed_structure(const std::filesystem::path& file);

class Hdf5File {
 public:
  enum class Access { read, create, modify };  ///< create: truncates; format bounds V18..latest; modify: must exist
  /// Throws FileError: missing, not HDF5, truncated, newer format, not readable/writable.
  Hdf5File(const std::filesystem::path& path, Access access);
  /// Closes without reporting errors; after writing, call close(), which reports them.
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  const std::filesystem::path& path() const noexcept;
  bool has(std::string_view object) const;
  std::vector<std::string> children(std::string_view group) const;  ///< names, sorted
  /// Throws FileError for shapes and chunks that the library never writes: the header is damaged.
  DatasetLayout layout(std::string_view dataset) const;

  /// For files that this program wrote. Throws FileError unless the object is reached by links within this file and, if
  /// it is a dataset, its values are contiguous in this file. External or virtual storage can give wrong data or end
  /// the process; compressed data can take any amount of memory.
  void require_plain(std::string_view object) const;

  /// Paths of the datasets below a group, "x" or "train/x"; sorted, nearer ones first. Follows groups eight levels
  /// deep, but no soft or external links to groups. Returns up to 10,000 datasets.
  std::vector<std::string> datasets(std::string_view group) const;
  /// Other files that a dataset takes data from: through an external link, external storage, or a virtual dataset and,
  /// recursively, its sources. Throws FileError if a file is missing, unless accept_missing, and for a virtual dataset
  /// that contains itself.
  std::vector<std::filesystem::path> other_files(std::string_view dataset, bool accept_missing) const;
  /// Describes the part of a dataset that was never written, where the library reads fill values: how much, and where;
  /// "" for a complete dataset. Checks chunks, sources of virtual datasets, and external storage. Calls `alive` now and
  /// then. Reads the whole index of the chunks: any damage in it throws FileError, or crashes the library.
  std::string unwritten(std::string_view dataset, const std::function<void()>& alive) const;
  /// Describes a link whose target is missing; "" for any other name.
  std::string dangling(std::string_view object) const;
  /// All strings of a dataset, of fixed or variable length; of an enumeration, the name of each element's member.
  /// Throws FileError for other elements, for one that is no member, and for more than the file holds.
  std::vector<std::string> read_texts(std::string_view dataset) const;

  /// Whole dataset, or rows [first, first + rows) of it, as `type` (the library converts).
  void read(std::string_view dataset, FileType type, std::span<std::byte> out) const;
  void read_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                 std::span<std::byte> out) const;

  void create_group(std::string_view group);
  /// Creates a contiguous dataset and allocates its space at once. Intermediate groups are created.
  void create_dataset(std::string_view dataset, FileType type, std::span<const std::int64_t> shape);
  void write(std::string_view dataset, FileType type, std::span<const std::byte> data);
  void write_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                  std::span<const std::byte> data);

  // Attributes of a group or dataset ("/" is the file itself). Strings are UTF-8; reading accepts fixed and
  // variable-length ones. Reading a missing attribute gives nullopt; one of the wrong type throws.
  std::optional<std::string> text(std::string_view object, std::string_view attribute) const;
  std::optional<std::int64_t> integer(std::string_view object, std::string_view attribute) const;
  std::optional<double> real(std::string_view object, std::string_view attribute) const;
  std::optional<std::vector<std::string>> texts(std::string_view object, std::string_view attribute) const;
  bool has_attribute(std::string_view object, std::string_view attribute) const;
  /// One number or a list of numbers; empty without such an attribute.
  std::vector<double> numbers(std::string_view object, std::string_view attribute) const;
  bool attribute_is_integer(std::string_view object, std::string_view attribute) const;
  /// True if netCDF wrote the dataset.
  bool is_netcdf(std::string_view dataset) const;
  /// The fill value of the dataset's unwritten parts, if one was set.
  std::optional<double> fill_value(std::string_view dataset) const;
  void set_text(std::string_view object, std::string_view attribute, std::string_view value);
  void set_integer(std::string_view object, std::string_view attribute, std::int64_t value);
  void set_real(std::string_view object, std::string_view attribute, double value);
  void set_texts(std::string_view object, std::string_view attribute, std::span<const std::string> values);

  /// Flushes and closes; checks both. After a failed write the handles are abandoned, never closed twice.
  void close();
  /// Reports a failed write that bypassed the library (by DatasetLayout::offset): the destructor then abandons the
  /// file, too.
  void give_up() noexcept;

 private:
  struct Handles;
  using VisitDataset = std::function<std::string(const Hdf5File&, const std::string&)>;
  std::string unwritten_here(const std::string& dataset, const std::function<void()>& alive,
                             const VisitDataset& visit) const;

  std::unique_ptr<Handles> handles_;
};

}  // namespace lockstep::io
