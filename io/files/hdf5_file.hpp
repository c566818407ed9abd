/// \file
/// One HDF5 file, its datasets and attributes; hdf5_*.cpp are the only home of the HDF5 C library. Every call takes one
/// mutex; errors become FileError with the innermost reason of HDF5's error stack in one sentence. Needs the serial
/// libhdf5. Not for the hot path: contiguous data is read by file offset (DatasetLayout::offset), and the values of
/// checkpoints are written so, too, lest a thread that writes them holds the mutex while another one wants to read
/// samples.
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

/// Element types that files hold and that we read; little-endian on disk when we write.
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

/// "1.10.8": of the HDF5 library that this process has loaded; "1.14.3, parallel" where it is of that flavour.
std::string hdf5_version();

struct DatasetLayout {
  FileType type = FileType::other;  ///< float16 counts as float32, integers of 3 bytes as those of 4
  bool text = false;                ///< strings; type is other
  std::string other = {};           ///< where type is other: what the elements are, in words
  std::size_t stored_size = 0;      ///< bytes of an element in the file
  bool native_order = true;         ///< element bytes are those of `type` in this machine's order, with all their bits
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> chunk;      ///< empty when contiguous
  bool compressed = false;              ///< any filter
  std::optional<std::uint64_t> offset;  ///< byte offset in this very file, when contiguous and allocated
  bool in_this_file = true;             ///< false: behind an external link, or in external or virtual storage
  bool dimension = false;               ///< netCDF's description of an axis, no data
};

/// Of a file that this program wrote. Throws FileError unless the library's structures in it have checksums (superblock
/// version 2 and later), without which damage to them can end the process inside the library.
void require_checksummed_structure(const std::filesystem::path& file);

class Hdf5File {
 public:
  enum class Access { read, create, modify };  ///< create: truncates; format bounds V18..latest; modify: must exist
  /// Throws FileError: missing, not HDF5, truncated, newer format, not readable/writable.
  Hdf5File(const std::filesystem::path& path, Access access);
  /// Closes without reporting; call close() where failure matters (always when writing).
  ~Hdf5File();
  Hdf5File(Hdf5File&&) noexcept;
  Hdf5File& operator=(Hdf5File&&) noexcept;

  const std::filesystem::path& path() const noexcept;
  bool has(std::string_view object) const;
  std::vector<std::string> children(std::string_view group) const;  ///< names, sorted
  /// Throws FileError for shapes and chunks that the library never writes: a damaged header.
  DatasetLayout layout(std::string_view dataset) const;

  /// Of files that this program wrote. Throws FileError unless links of this very file alone lead to the object and,
  /// where it is a dataset, its values lie contiguous in this very file: no external or virtual storage, which is wrong
  /// data or the end of the process, and no compression, which takes any memory.
  void require_plain(std::string_view object) const;

  /// Paths of the datasets below a group, "x" or "train/x"; sorted, nearer ones first. Groups are followed eight deep,
  /// where they are not mere links, and up to 10,000 datasets.
  std::vector<std::string> datasets(std::string_view group) const;
  /// Files besides this one that a dataset takes data from: behind an external link, of external storage, of a virtual
  /// dataset, and those of its sources in turn. Throws FileError where one is missing, unless `missing` is accepted,
  /// and for a virtual dataset that is made of itself.
  std::vector<std::filesystem::path> other_files(std::string_view dataset, bool accept_missing) const;
  /// The part of a dataset that nobody has written, where the library reads fill values: how much and where, in words;
  /// "" where all of it is there. Looks at chunks, at the sources of virtual datasets, and at external storage.
  /// `alive` is called now and then. Reads the whole index of the chunks: what is wrong with it anywhere throws
  /// FileError, or crashes the library.
  std::string unwritten(std::string_view dataset, const std::function<void()>& alive) const;
  /// Describes a link to something that is not there, in words; "" for any other name.
  std::string dangling(std::string_view object) const;
  /// All strings of a dataset, of fixed or variable length. Throws FileError: other elements, more than the file holds.
  std::vector<std::string> read_texts(std::string_view dataset) const;

  /// Whole dataset, or rows [first, first + rows) of it, as `type` (the library converts).
  void read(std::string_view dataset, FileType type, std::span<std::byte> out) const;
  void read_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                 std::span<std::byte> out) const;

  void create_group(std::string_view group);
  /// Contiguous, space allocated at once. Intermediate groups are created.
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
  /// One number or a list of them; empty where there is no such attribute.
  std::vector<double> numbers(std::string_view object, std::string_view attribute) const;
  bool attribute_is_integer(std::string_view object, std::string_view attribute) const;
  /// Tells whether netCDF wrote a dataset, and the fill value of its unwritten parts, if one was set.
  bool is_netcdf(std::string_view dataset) const;
  std::optional<double> fill_value(std::string_view dataset) const;
  void set_text(std::string_view object, std::string_view attribute, std::string_view value);
  void set_integer(std::string_view object, std::string_view attribute, std::int64_t value);
  void set_real(std::string_view object, std::string_view attribute, double value);
  void set_texts(std::string_view object, std::string_view attribute, std::span<const std::string> values);

  /// Flush and close, checking both. After a failed write the handles are abandoned, never closed twice.
  void close();
  /// A write into the file that went past the library (by DatasetLayout::offset) has failed: the destructor abandons
  /// the file, too.
  void give_up() noexcept;

 private:
  struct Handles;
  using VisitDataset = std::function<std::string(const Hdf5File&, const std::string&)>;
  std::string unwritten_here(const std::string& dataset, const std::function<void()>& alive,
                             const VisitDataset& visit) const;

  std::unique_ptr<Handles> handles_;
};

}  // namespace lockstep::io
