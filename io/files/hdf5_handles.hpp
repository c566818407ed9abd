/// \file
/// Shared by the sources of Hdf5File: the library's lock, owners of identifiers, element types, and the open file with
/// functions for both reading and writing. Internal to io/files.
///
/// Ownership of library handles: the file's identifier lives in Handles. Every other identifier (dataset, dataspace,
/// type, attribute) lives in an Hdf5Id on the stack of one call, so that only the file stays open between calls.
///
/// Failed writes: once a write, flush or close has failed, the library's state of that file is unknown, and a second
/// close of the same identifier crashes. The identifier is then abandoned on purpose. Its descriptor stays open until
/// the process ends, which also keeps the inode from being reused while the library still refers to it. The file is
/// truncated to free its space at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hdf5.h>

#include "io/files/hdf5_file.hpp"

namespace lockstep::io {

/// Held during every library call. The serial library is thread-safe by itself, but its lock is not fair, and its error
/// printing is per thread.
class Hdf5Lock {
 public:
  Hdf5Lock();  ///< throws FileError if the library cannot be initialised

 private:
  std::lock_guard<std::mutex> lock_;
};

struct Hdf5Error {
  std::string reason;
  int error_number = 0;  ///< errno, if the operating system reported the error
};
/// The innermost error of the last failed call since the lock was taken. It is saved as that call returns, because
/// every later call clears the library's own stack, even one that closes an identifier.
Hdf5Error innermost_error();

/// Owns one identifier of the library; a negative value owns none.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id(hid_t value, Close closer) : value_(value), close_(closer) {}
  ~Hdf5Id() {
    if (value_ >= 0) close_(value_);
  }
  Hdf5Id(const Hdf5Id&) = delete;
  Hdf5Id& operator=(const Hdf5Id&) = delete;
  hid_t get() const noexcept { return value_; }
  bool valid() const noexcept { return value_ >= 0; }
  /// The result matters if closing may write. The identifier is invalid in either case.
  bool close() noexcept { return close_(std::exchange(value_, -1)) >= 0; }

 private:
  hid_t value_;
  Close close_;
};

/// An element type in memory and on disk. Throws std::invalid_argument for FileType::other.
struct Hdf5Type {
  hid_t memory, disk;
};
Hdf5Type hdf5_type(FileType type);
FileType file_type(hid_t type);  ///< other: not an integer or float of at most 64 bits
/// Describes the elements of a type: "compound, records of r, i", "long double".
std::string type_in_words(hid_t type);
/// True if the elements have the bits of one of this machine's types, in any byte order.
bool has_plain_bits(hid_t type);

/// Another file that a dataset takes data from.
struct Hdf5Source {
  enum class Kind { link, storage, virtual_part };
  Kind kind = Kind::link;
  std::string name = {};            ///< name of the file, as stored in the dataset
  std::filesystem::path file = {};  ///< path at which the library finds it; empty: not found
  std::string dataset = {};         ///< name within that file; empty for raw storage
  std::string rows = {};            ///< text: the rows of the dataset that take their data from there
  std::vector<hsize_t> least = {};  ///< minimum extents of the source
  hsize_t elements = 0;             ///< minimum number of elements
  std::uint64_t bytes = 0;          ///< raw storage: minimum size of the file
};

struct Hdf5File::Handles {
  std::filesystem::path path;
  Access access;
  hid_t file = -1;
  bool failed = false;

  ~Handles();
  /// Abandons the identifier after a failed write, and frees the file's space.
  void abandon() noexcept;

  /// Throws FileError with the library's reason.
  [[noreturn]] void fail(std::string_view action) const;
  /// As fail(), for steps that may leave the file half written.
  [[noreturn]] void fail_write(std::string_view action);
  [[noreturn]] void wrong_type(std::string_view object, std::string_view attribute, std::string_view expected) const;
  [[noreturn]] void damaged(std::string_view dataset, std::string_view what) const;

  // The file's identifier. Throws std::invalid_argument if it is closed, if an earlier write failed, or if it is open
  // for reading alone.
  hid_t usable() const;
  hid_t writable() const;

  Hdf5Id open_dataset(std::string_view name) const;
  Hdf5Id open_object(std::string_view name) const;

  struct Extents {
    std::vector<hsize_t> now, most;
  };
  /// Throws FileError if the product of any subset of the extents, in elements or bytes, could overflow.
  Extents extents(const Hdf5Id& dataset, std::string_view name) const;

  /// Throws std::invalid_argument if the buffer does not have the size of the whole dataset.
  void check_whole(const Hdf5Id& dataset, std::string_view name, FileType type, std::size_t bytes) const;
  /// Checks rows and buffer against the shape; returns the extents.
  std::vector<hsize_t> checked_rows(const Hdf5Id& dataset, std::string_view name, FileType type, std::int64_t first,
                                    std::int64_t rows, std::size_t bytes) const;
  /// Memory and file selections have the same rank: otherwise chunked data are read 10 to 500 times more slowly.
  template <class Transfer>
  bool transfer_rows(const Hdf5Id& dataset, std::vector<hsize_t> extents, std::int64_t first, std::int64_t rows,
                     const Transfer& transfer) const {
    std::vector<hsize_t> start(extents.size(), 0);
    start[0] = static_cast<hsize_t>(first);
    extents[0] = static_cast<hsize_t>(rows);
    const Hdf5Id file_space(H5Dget_space(dataset.get()), H5Sclose);
    const Hdf5Id memory_space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
    return file_space.valid() && memory_space.valid() &&
           H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr) >= 0 &&
           transfer(memory_space.get(), file_space.get()) >= 0;
  }

  // Sources of data (hdf5_sources.cpp).
  /// True if the object is in this file, not behind an external link to another.
  bool is_in_this_file(const Hdf5Id& object, std::string_view name) const;
  std::filesystem::path home_of(const Hdf5Id& object) const;
  std::vector<Hdf5Source> sources(const Hdf5Id& dataset, std::string_view name) const;
  std::vector<Hdf5Source> storage_of(const Hdf5Id& dataset, const Hdf5Id& properties, std::string_view name) const;
  std::vector<Hdf5Source> virtual_parts(const Hdf5Id& properties, std::size_t index, const std::vector<hsize_t>& now,
                                        const std::filesystem::path& home) const;
  std::string rows_without_source(const Hdf5Id& dataset, const Hdf5Id& properties, std::string_view name) const;
  std::string missing_chunks(const Hdf5Id& dataset, const Hdf5Id& properties, std::string_view name,
                             const std::function<void()>& alive) const;

  // Reading (hdf5_read.cpp).
  /// Throws the error of a failed read of rows [first, first + rows), after it has tried again chunk by chunk.
  [[noreturn]] void fail_rows(const Hdf5Id& dataset, std::string_view name, hid_t memory, std::int64_t first,
                              std::int64_t rows) const;
  [[noreturn]] void fail_read(const Hdf5Id& dataset, std::string_view name, std::string_view action,
                              const Hdf5Error& error) const;
  std::vector<hsize_t> chunk_shape(const Hdf5Id& properties, const Extents& extents, std::string_view name) const;
  /// Invalid without such an attribute.
  Hdf5Id open_attribute(const Hdf5Id& object, std::string_view object_name, std::string_view name) const;
  /// An attribute of one number of one of these classes; `expected` describes them.
  template <class Number>
  std::optional<Number> number(std::string_view object, std::string_view attribute, hid_t memory,
                               std::initializer_list<H5T_class_t> classes, std::string_view expected) const;

  template <class Read>
  std::vector<std::string> decode_texts(const Hdf5Id& type, const Hdf5Id& space, std::size_t count,
                                        const Read& read) const;

  // Writing (hdf5_write.cpp).
  void write_attribute(std::string_view object_name, std::string_view name, hid_t disk, hid_t space, const void* value,
                       hid_t memory);

 private:
  void check_bytes(std::string_view name, std::uint64_t expected, std::size_t bytes) const;
};

}  // namespace lockstep::io
