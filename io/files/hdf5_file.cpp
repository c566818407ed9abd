// Ownership of library handles: the file's identifier lives in Handles; every other identifier (dataset, dataspace,
// type, attribute) lives in an Id on the stack of one call, so that nothing but the file stays open between calls.
//
// Failed writes: once one write, flush or close has failed, the library's state of that file is unknown and a second
// close of the same identifier crashes. The identifier is then abandoned on purpose (its descriptor stays open until
// the process ends, which also keeps the inode from being reused under the library's feet) and the file is truncated to
// give its space back at once.
#include "io/files/hdf5_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

/// Held around every library call. The serial library is thread-safe by itself, but its lock is not fair and error
/// printing is per thread.
class LibraryLock {
 public:
  LibraryLock() : lock_(mutex()) {
    static const bool opened = [] {
      H5dont_atexit();  // else the library's exit handler closes files under other static destructors
      return H5open() >= 0;
    }();
    if (!opened) throw FileError("the HDF5 library cannot be initialised; check the installation of libhdf5");
    thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
    static_cast<void>(quiet);
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  std::lock_guard<std::mutex> lock_;
};

herr_t keep_innermost(unsigned position, const H5E_error2_t* error, void* out) {
  if (position != 0) return 0;
  try {
    static_cast<std::string*>(out)->assign(error->desc != nullptr ? error->desc : "");
  } catch (...) {
    return -1;
  }
  return 0;
}

struct Reason {
  std::string text;
  int error_number = 0;  ///< where the operating system said no
};

/// The reason at the bottom of the error stack. The library has it as a text alone.
Reason innermost_reason() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_innermost, &text);
  if (text.empty()) return {"the HDF5 library gives no reason"};
  constexpr std::string_view kErrno = "errno = ";
  if (const auto at = text.find(kErrno); at != std::string::npos) {
    int code = 0;
    const char* begin = text.data() + at + kErrno.size();
    std::from_chars(begin, text.data() + text.size(), code);
    if (code != 0) return {std::generic_category().message(code), code};
  }
  if (text.find("file signature not found") != std::string::npos) return {"it is not an HDF5 file"};
  if (text.find("bad superblock version") != std::string::npos) {
    return {"its HDF5 format version is unknown: written by a newer library, or damaged"};
  }
  if (text.find("truncated file") != std::string::npos) return {"the file is truncated (" + text + ")"};
  return {text};
}

class Id {
 public:
  using Close = herr_t (*)(hid_t);
  Id(hid_t value, Close closer) : value_(value), close_(closer) {}
  ~Id() {
    if (value_ >= 0) close_(value_);
  }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  hid_t get() const noexcept { return value_; }
  bool valid() const noexcept { return value_ >= 0; }
  /// The result matters where close may write; the identifier is gone either way.
  bool close() noexcept { return close_(std::exchange(value_, -1)) >= 0; }

 private:
  hid_t value_;
  Close close_;
};

hid_t memory_type(FileType type) {
  switch (type) {
    case FileType::uint8:
      return H5T_NATIVE_UINT8;
    case FileType::int8:
      return H5T_NATIVE_INT8;
    case FileType::uint16:
      return H5T_NATIVE_UINT16;
    case FileType::int16:
      return H5T_NATIVE_INT16;
    case FileType::int32:
      return H5T_NATIVE_INT32;
    case FileType::int64:
      return H5T_NATIVE_INT64;
    case FileType::uint32:
      return H5T_NATIVE_UINT32;
    case FileType::uint64:
      return H5T_NATIVE_UINT64;
    case FileType::float32:
      return H5T_NATIVE_FLOAT;
    case FileType::float64:
      return H5T_NATIVE_DOUBLE;
    case FileType::other:
      break;
  }
  throw std::invalid_argument("an HDF5 element type that is neither integer nor float cannot be read or written");
}

hid_t disk_type(FileType type) {
  switch (type) {
    case FileType::uint8:
      return H5T_STD_U8LE;
    case FileType::int8:
      return H5T_STD_I8LE;
    case FileType::uint16:
      return H5T_STD_U16LE;
    case FileType::int16:
      return H5T_STD_I16LE;
    case FileType::int32:
      return H5T_STD_I32LE;
    case FileType::int64:
      return H5T_STD_I64LE;
    case FileType::uint32:
      return H5T_STD_U32LE;
    case FileType::uint64:
      return H5T_STD_U64LE;
    case FileType::float32:
      return H5T_IEEE_F32LE;
    case FileType::float64:
      return H5T_IEEE_F64LE;
    case FileType::other:
      break;
  }
  throw std::invalid_argument("an HDF5 element type that is neither integer nor float cannot be read or written");
}

FileType integer_type(std::size_t bytes, bool is_signed) {
  switch (bytes) {
    case 1:
      return is_signed ? FileType::int8 : FileType::uint8;
    case 2:
      return is_signed ? FileType::int16 : FileType::uint16;
    case 4:
      return is_signed ? FileType::int32 : FileType::uint32;
    case 8:
      return is_signed ? FileType::int64 : FileType::uint64;
    default:
      return FileType::other;
  }
}

FileType file_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return integer_type(H5Tget_size(type), H5Tget_sign(type) != H5T_SGN_NONE);
    case H5T_ENUM: {  // h5py's bool
      const Id base(H5Tget_super(type), H5Tclose);
      return integer_type(H5Tget_size(base.get()), H5Tget_sign(base.get()) != H5T_SGN_NONE);
    }
    case H5T_FLOAT:
      if (H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F32BE) > 0) return FileType::float32;
      if (H5Tequal(type, H5T_IEEE_F64LE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0) return FileType::float64;
      return FileType::other;
    default:
      return FileType::other;
  }
}

herr_t collect_name(hid_t, const char* name, const H5L_info_t*, void* out) {
  try {
    static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  } catch (...) {
    return -1;
  }
  return 0;
}

}  // namespace

std::size_t size_of(FileType type) noexcept {
  switch (type) {
    case FileType::uint8:
    case FileType::int8:
      return 1;
    case FileType::uint16:
    case FileType::int16:
      return 2;
    case FileType::int32:
    case FileType::uint32:
    case FileType::float32:
      return 4;
    case FileType::int64:
    case FileType::uint64:
    case FileType::float64:
      return 8;
    case FileType::other:
      break;
  }
  return 0;
}

const char* name_of(FileType type) noexcept {
  constexpr std::array<const char*, 11> kNames = {"uint8",  "int8",   "uint16",  "int16",   "int32", "int64",
                                                  "uint32", "uint64", "float32", "float64", "other"};
  return kNames[static_cast<std::size_t>(type)];
}

struct Hdf5File::Handles {
  std::filesystem::path path;
  Access access;
  hid_t file = -1;
  bool failed = false;

  ~Handles() {
    if (file < 0) return;
    try {
      const LibraryLock lock;
      if (!failed) {
        H5Fclose(file);
        return;
      }
    } catch (...) {  // the lock; nothing can be reported from here
    }
    abandon();
  }

  void abandon() noexcept {
    file = -1;
    if (::truncate(path.c_str(), 0) != 0) return;  // the caller removes the file; only its space was at stake
  }

  [[noreturn]] void fail(std::string_view action) {
    const Reason reason = innermost_reason();
    throw FileError(
        {.file = path, .what = fmt::format("cannot {}: {}", action, reason.text), .error_number = reason.error_number});
  }
  /// For steps that may leave the file half written.
  [[noreturn]] void fail_write(std::string_view action) {
    failed = true;
    fail(action);
  }

  hid_t usable() const {
    if (file < 0) throw std::invalid_argument(fmt::format("{} is closed already", path.string()));
    if (failed) throw std::invalid_argument(fmt::format("{}: an earlier write failed", path.string()));
    return file;
  }
  hid_t writable() const {
    if (access == Access::read) throw std::invalid_argument(fmt::format("{} is open for reading", path.string()));
    return usable();
  }

  Id open_dataset(std::string_view name) {
    const hid_t id = H5Dopen2(usable(), std::string(name).c_str(), H5P_DEFAULT);
    if (id < 0) fail(fmt::format("open dataset {}", name));
    return Id(id, H5Dclose);
  }
  Id open_object(std::string_view name) {
    const hid_t id = H5Oopen(usable(), std::string(name).c_str(), H5P_DEFAULT);
    if (id < 0) fail(fmt::format("open {}", name));
    return Id(id, H5Oclose);
  }
  /// Invalid when there is no such attribute.
  Id open_attribute(const Id& object, std::string_view object_name, std::string_view name) {
    const std::string text(name);
    const htri_t exists = H5Aexists(object.get(), text.c_str());
    if (exists < 0) fail(fmt::format("look for attribute {} of {}", name, object_name));
    if (exists == 0) return Id(-1, H5Aclose);
    const hid_t attribute = H5Aopen(object.get(), text.c_str(), H5P_DEFAULT);
    if (attribute < 0) fail(fmt::format("open attribute {} of {}", name, object_name));
    return Id(attribute, H5Aclose);
  }
  [[noreturn]] void wrong_type(std::string_view object, std::string_view attribute, std::string_view expected) const {
    throw FileError({.file = path, .what = fmt::format("attribute {} of {} is not {}", attribute, object, expected)});
  }

  [[noreturn]] void damaged(std::string_view dataset, std::string_view what) const {
    throw FileError(
        {.file = path,
         .what = fmt::format("the header of dataset {} is damaged: {}; copy or make the file again", dataset, what)});
  }

  struct Extents {
    std::vector<hsize_t> now, most;
  };
  Extents both_extents(const Id& dataset, std::string_view name) {
    const Id space(H5Dget_space(dataset.get()), H5Sclose);
    const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
    if (rank < 0) fail(fmt::format("read the shape of dataset {}", name));
    Extents result{std::vector<hsize_t>(static_cast<std::size_t>(rank)),
                   std::vector<hsize_t>(static_cast<std::size_t>(rank))};
    if (rank > 0 && H5Sget_simple_extent_dims(space.get(), result.now.data(), result.most.data()) < 0) {
      fail(fmt::format("read the shape of dataset {}", name));
    }
    // So that neither the elements nor their bytes overflow anywhere, whatever extents are left out of the product.
    constexpr hsize_t kMostElements = hsize_t{1} << 59;
    hsize_t elements = 1;
    for (const hsize_t extent : result.now) {
      if (extent > kMostElements / elements) {
        damaged(name, fmt::format("no file holds the shape ({})", fmt::join(result.now, ", ")));
      }
      elements *= std::max<hsize_t>(extent, 1);
    }
    return result;
  }
  std::vector<hsize_t> extents(const Id& dataset, std::string_view name) { return both_extents(dataset, name).now; }

  /// The library crashes on some chunks that it would not have written.
  std::vector<hsize_t> chunk_shape(const Id& properties, const Extents& extents, std::string_view name) {
    std::vector<hsize_t> chunk(extents.now.size());
    const int rank = H5Pget_chunk(properties.get(), static_cast<int>(chunk.size()), chunk.data());
    if (rank < 0) fail(fmt::format("read the chunk shape of dataset {}", name));
    if (static_cast<std::size_t>(rank) != chunk.size()) damaged(name, "its chunks have another rank than its shape");
    for (std::size_t axis = 0; axis < chunk.size(); ++axis) {
      const bool too_large = extents.most[axis] != H5S_UNLIMITED && chunk[axis] > extents.most[axis];
      if (chunk[axis] == 0 || too_large) {
        damaged(name, fmt::format("chunks of ({}) do not fit the shape ({})", fmt::join(chunk, ", "),
                                  fmt::join(extents.now, ", ")));
      }
    }
    return chunk;
  }

  /// Memory and file selections have the same rank: otherwise chunked data is read 10 to 500 times slower.
  template <class Transfer>
  bool transfer_rows(const Id& dataset, std::vector<hsize_t> extents, std::int64_t first, std::int64_t rows,
                     const Transfer& transfer) {
    std::vector<hsize_t> start(extents.size(), 0);
    start[0] = static_cast<hsize_t>(first);
    extents[0] = static_cast<hsize_t>(rows);
    const Id file_space(H5Dget_space(dataset.get()), H5Sclose);
    const Id memory_space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
    return file_space.valid() && memory_space.valid() &&
           H5Sselect_hyperslab(file_space.get(), H5S_SELECT_SET, start.data(), nullptr, extents.data(), nullptr) >= 0 &&
           transfer(memory_space.get(), file_space.get()) >= 0;
  }

  /// Checks rows and buffer against the shape; returns the extents.
  std::vector<hsize_t> checked_rows(const Id& dataset, std::string_view name, FileType type, std::int64_t first,
                                    std::int64_t rows, std::size_t bytes) {
    std::vector<hsize_t> shape = extents(dataset, name);
    if (shape.empty() || first < 0 || rows < 0 || static_cast<hsize_t>(first + rows) > shape[0]) {
      throw std::invalid_argument(
          fmt::format("{}: dataset {} has no rows [{}, {})", path.string(), name, first, first + rows));
    }
    hsize_t expected = static_cast<hsize_t>(rows) * size_of(type);
    for (std::size_t axis = 1; axis < shape.size(); ++axis) expected *= shape[axis];
    check_bytes(name, expected, bytes);
    return shape;
  }
  void check_bytes(std::string_view name, std::uint64_t expected, std::size_t bytes) const {
    if (bytes != expected) {
      throw std::invalid_argument(
          fmt::format("{}: dataset {} moves {} bytes, the buffer has {}", path.string(), name, expected, bytes));
    }
  }

  void write_attribute(std::string_view object_name, std::string_view name, hid_t disk, hid_t space, const void* value,
                       hid_t memory) {
    const std::string action = fmt::format("write attribute {} of {}", name, object_name);
    const std::string text(name);
    writable();
    Id object = open_object(object_name);
    if (H5Aexists(object.get(), text.c_str()) > 0 && H5Adelete(object.get(), text.c_str()) < 0) fail_write(action);
    Id attribute(H5Acreate2(object.get(), text.c_str(), disk, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    if (!attribute.valid() || H5Awrite(attribute.get(), memory, value) < 0) fail_write(action);
    if (!attribute.close() || !object.close()) fail_write(action);
  }
};

Hdf5File::Hdf5File(const std::filesystem::path& path, Access access)
    : handles_(std::make_unique<Handles>(Handles{path, access})) {
  const LibraryLock lock;
  const Id properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Network file systems answer ENOLCK and the like to locks; nobody here relies on them. From V18 on, metadata
  // carries checksums: every flipped bit is noticed.
  if (!properties.valid() || H5Pset_file_locking(properties.get(), 0, 1) < 0 ||
      H5Pset_fclose_degree(properties.get(), H5F_CLOSE_SEMI) < 0 ||
      H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0) {
    handles_->fail("prepare access");
  }
  switch (access) {
    case Access::read:
      handles_->file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, properties.get());
      break;
    case Access::modify:
      handles_->file = H5Fopen(path.c_str(), H5F_ACC_RDWR, properties.get());
      break;
    case Access::create:
      handles_->file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, properties.get());
      break;
  }
  if (handles_->file < 0) handles_->fail(access == Access::create ? "create it" : "open it");
}

Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

const std::filesystem::path& Hdf5File::path() const noexcept { return handles_->path; }

bool Hdf5File::has(std::string_view object) const {
  const LibraryLock lock;
  const hid_t file = handles_->usable();
  std::string path = fmt::format("{}{}", object.starts_with('/') ? "" : "/", object);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/") return true;
  // H5Lexists answers for the last link only and fails when an earlier one is missing.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    const htri_t link = H5Lexists(file, prefix.c_str(), H5P_DEFAULT);
    const htri_t target = link > 0 ? H5Oexists_by_name(file, prefix.c_str(), H5P_DEFAULT) : link;
    if (target < 0) handles_->fail(fmt::format("look for {}", object));
    if (target == 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> Hdf5File::children(std::string_view group) const {
  const LibraryLock lock;
  const Id id(H5Gopen2(handles_->usable(), std::string(group).c_str(), H5P_DEFAULT), H5Gclose);
  std::vector<std::string> names;
  if (!id.valid() || H5Literate(id.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_name, &names) < 0) {
    handles_->fail(fmt::format("list group {}", group));
  }
  std::sort(names.begin(), names.end());
  return names;
}

DatasetLayout Hdf5File::layout(std::string_view dataset) const {
  const LibraryLock lock;
  const Id id = handles_->open_dataset(dataset);
  DatasetLayout result;
  const Handles::Extents extents = handles_->both_extents(id, dataset);
  result.shape.assign(extents.now.begin(), extents.now.end());
  const Id type(H5Dget_type(id.get()), H5Tclose);
  const Id properties(H5Dget_create_plist(id.get()), H5Pclose);
  if (!type.valid() || !properties.valid()) handles_->fail(fmt::format("read the layout of dataset {}", dataset));
  result.type = file_type(type.get());
  result.native_order = size_of(result.type) == 1 || H5Tget_order(type.get()) == H5Tget_order(H5T_NATIVE_INT);
  result.compressed = H5Pget_nfilters(properties.get()) > 0;
  const H5D_layout_t layout = H5Pget_layout(properties.get());
  result.in_this_file = layout != H5D_VIRTUAL && H5Pget_external_count(properties.get()) == 0;
  if (layout == H5D_CHUNKED) {
    const std::vector<hsize_t> chunk = handles_->chunk_shape(properties, extents, dataset);
    result.chunk.assign(chunk.begin(), chunk.end());
  } else if (layout == H5D_CONTIGUOUS && result.in_this_file) {
    const haddr_t offset = H5Dget_offset(id.get());
    if (offset != HADDR_UNDEF) result.offset = offset;
  }
  return result;
}

void Hdf5File::read(std::string_view dataset, FileType type, std::span<std::byte> out) const {
  const LibraryLock lock;
  const hid_t memory = memory_type(type);
  const Id id = handles_->open_dataset(dataset);
  std::uint64_t expected = size_of(type);
  for (const hsize_t extent : handles_->extents(id, dataset)) expected *= extent;
  handles_->check_bytes(dataset, expected, out.size());
  if (expected > 0 && H5Dread(id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0) {
    handles_->fail(fmt::format("read dataset {}", dataset));
  }
}

void Hdf5File::read_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                         std::span<std::byte> out) const {
  const LibraryLock lock;
  const hid_t memory = memory_type(type);
  const Id id = handles_->open_dataset(dataset);
  const std::vector<hsize_t> shape = handles_->checked_rows(id, dataset, type, first, rows, out.size());
  if (out.empty()) return;
  if (!handles_->transfer_rows(id, shape, first, rows, [&](hid_t memory_space, hid_t file_space) {
        return H5Dread(id.get(), memory, memory_space, file_space, H5P_DEFAULT, out.data());
      })) {
    handles_->fail(fmt::format("read rows [{}, {}) of dataset {}", first, first + rows, dataset));
  }
}

void Hdf5File::create_group(std::string_view group) {
  const LibraryLock lock;
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.get(), 1);
  Id id(H5Gcreate2(handles_->writable(), std::string(group).c_str(), links.get(), H5P_DEFAULT, H5P_DEFAULT), H5Gclose);
  if (!id.valid() || !id.close()) handles_->fail_write(fmt::format("create group {}", group));
}

void Hdf5File::create_dataset(std::string_view dataset, FileType type, std::span<const std::int64_t> shape) {
  const LibraryLock lock;
  const std::string action = fmt::format("create dataset {}", dataset);
  const hid_t disk = disk_type(type);
  const hid_t file = handles_->writable();
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t extent) { return extent < 0; })) {
    throw std::invalid_argument(fmt::format("dataset {}: negative extent", dataset));
  }
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Id space(extents.empty() ? H5Screate(H5S_SCALAR)
                                 : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
                 H5Sclose);
  const Id links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  const Id properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (!space.valid() || H5Pset_create_intermediate_group(links.get(), 1) < 0 ||
      H5Pset_layout(properties.get(), H5D_CONTIGUOUS) < 0 ||
      H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER) < 0) {
    handles_->fail_write(action);
  }
  Id id(H5Dcreate2(file, std::string(dataset).c_str(), disk, space.get(), links.get(), properties.get(), H5P_DEFAULT),
        H5Dclose);
  if (!id.valid() || !id.close()) handles_->fail_write(action);
}

void Hdf5File::write(std::string_view dataset, FileType type, std::span<const std::byte> data) {
  const LibraryLock lock;
  const hid_t memory = memory_type(type);
  handles_->writable();
  Id id = handles_->open_dataset(dataset);
  std::uint64_t expected = size_of(type);
  for (const hsize_t extent : handles_->extents(id, dataset)) expected *= extent;
  handles_->check_bytes(dataset, expected, data.size());
  const bool written = expected == 0 || H5Dwrite(id.get(), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data()) >= 0;
  if (!written || !id.close()) handles_->fail_write(fmt::format("write dataset {}", dataset));
}

void Hdf5File::write_rows(std::string_view dataset, FileType type, std::int64_t first, std::int64_t rows,
                          std::span<const std::byte> data) {
  const LibraryLock lock;
  const hid_t memory = memory_type(type);
  handles_->writable();
  Id id = handles_->open_dataset(dataset);
  const std::vector<hsize_t> shape = handles_->checked_rows(id, dataset, type, first, rows, data.size());
  const bool written =
      data.empty() || handles_->transfer_rows(id, shape, first, rows, [&](hid_t memory_space, hid_t file_space) {
        return H5Dwrite(id.get(), memory, memory_space, file_space, H5P_DEFAULT, data.data());
      });
  if (!written || !id.close()) {
    handles_->fail_write(fmt::format("write rows [{}, {}) of dataset {}", first, first + rows, dataset));
  }
}

std::optional<std::vector<std::string>> Hdf5File::texts(std::string_view object, std::string_view attribute) const {
  const LibraryLock lock;
  const Id owner = handles_->open_object(object);
  const Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return std::nullopt;
  const std::string action = fmt::format("read attribute {} of {}", attribute, object);
  const Id type(H5Aget_type(id.get()), H5Tclose);
  const Id space(H5Aget_space(id.get()), H5Sclose);
  if (!type.valid() || !space.valid()) handles_->fail(action);
  if (H5Tget_class(type.get()) != H5T_STRING) handles_->wrong_type(object, attribute, "text");
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  const std::size_t width = H5Tget_size(type.get());
  if (count < 0 || width == 0) handles_->fail(action);
  std::error_code unknown;
  const std::uintmax_t file_bytes = std::filesystem::file_size(path(), unknown);
  if (!unknown && static_cast<std::uintmax_t>(count) > file_bytes / width) {
    throw FileError({.file = path(),
                     .what = fmt::format("attribute {} of {} is damaged: {} texts of {} bytes are more than the file "
                                         "holds; copy or make it again",
                                         attribute, object, count, width)});
  }
  std::vector<std::string> result;
  result.reserve(static_cast<std::size_t>(count));
  if (count == 0) return result;
  if (H5Tis_variable_str(type.get()) > 0) {
    std::vector<char*> values(static_cast<std::size_t>(count), nullptr);
    if (H5Aread(id.get(), type.get(), values.data()) < 0) handles_->fail(action);
    for (const char* value : values) result.emplace_back(value != nullptr ? value : "");
    H5Dvlen_reclaim(type.get(), space.get(), H5P_DEFAULT, values.data());
    return result;
  }
  std::vector<char> values(static_cast<std::size_t>(count) * width);
  if (H5Aread(id.get(), type.get(), values.data()) < 0) handles_->fail(action);
  const bool padded_by_spaces = H5Tget_strpad(type.get()) == H5T_STR_SPACEPAD;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const char* begin = values.data() + i * width;
    std::size_t length = ::strnlen(begin, width);
    while (padded_by_spaces && length > 0 && begin[length - 1] == ' ') --length;
    result.emplace_back(begin, length);
  }
  return result;
}

std::optional<std::string> Hdf5File::text(std::string_view object, std::string_view attribute) const {
  const auto values = texts(object, attribute);
  if (!values) return std::nullopt;
  if (values->size() != 1) handles_->wrong_type(object, attribute, "a single text");
  return values->front();
}

std::optional<std::int64_t> Hdf5File::integer(std::string_view object, std::string_view attribute) const {
  const LibraryLock lock;
  const Id owner = handles_->open_object(object);
  const Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return std::nullopt;
  const Id type(H5Aget_type(id.get()), H5Tclose);
  const Id space(H5Aget_space(id.get()), H5Sclose);
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Sget_simple_extent_npoints(space.get()) != 1) {
    handles_->wrong_type(object, attribute, "a single integer");
  }
  std::int64_t value = 0;
  if (H5Aread(id.get(), H5T_NATIVE_INT64, &value) < 0) {
    handles_->fail(fmt::format("read attribute {} of {}", attribute, object));
  }
  return value;
}

std::optional<double> Hdf5File::real(std::string_view object, std::string_view attribute) const {
  const LibraryLock lock;
  const Id owner = handles_->open_object(object);
  const Id id = handles_->open_attribute(owner, object, attribute);
  if (!id.valid()) return std::nullopt;
  const Id type(H5Aget_type(id.get()), H5Tclose);
  const Id space(H5Aget_space(id.get()), H5Sclose);
  const H5T_class_t kind = H5Tget_class(type.get());
  if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || H5Sget_simple_extent_npoints(space.get()) != 1) {
    handles_->wrong_type(object, attribute, "a single number");
  }
  double value = 0;
  if (H5Aread(id.get(), H5T_NATIVE_DOUBLE, &value) < 0) {
    handles_->fail(fmt::format("read attribute {} of {}", attribute, object));
  }
  return value;
}

namespace {

/// Fixed length on purpose: variable-length strings live in the global heap, which has no checksum.
hid_t make_text_type(std::size_t bytes) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  if (type >= 0) {
    H5Tset_size(type, std::max<std::size_t>(bytes, 1));
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    H5Tset_cset(type, H5T_CSET_UTF8);
  }
  return type;
}

}  // namespace

void Hdf5File::set_text(std::string_view object, std::string_view attribute, std::string_view value) {
  const LibraryLock lock;
  const Id type(make_text_type(value.size()), H5Tclose);
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  const std::string padded(value.empty() ? std::string(1, '\0') : std::string(value));
  handles_->write_attribute(object, attribute, type.get(), space.get(), padded.data(), type.get());
}

void Hdf5File::set_texts(std::string_view object, std::string_view attribute, std::span<const std::string> values) {
  const LibraryLock lock;
  std::size_t width = 1;
  for (const std::string& value : values) width = std::max(width, value.size());
  std::vector<char> padded(std::max<std::size_t>(values.size(), 1) * width, '\0');
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::copy(values[i].begin(), values[i].end(), padded.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  const hsize_t count = values.size();
  const Id type(make_text_type(width), H5Tclose);
  const Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  handles_->write_attribute(object, attribute, type.get(), space.get(), padded.data(), type.get());
}

void Hdf5File::set_integer(std::string_view object, std::string_view attribute, std::int64_t value) {
  const LibraryLock lock;
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(object, attribute, H5T_STD_I64LE, space.get(), &value, H5T_NATIVE_INT64);
}

void Hdf5File::set_real(std::string_view object, std::string_view attribute, double value) {
  const LibraryLock lock;
  const Id space(H5Screate(H5S_SCALAR), H5Sclose);
  handles_->write_attribute(object, attribute, H5T_IEEE_F64LE, space.get(), &value, H5T_NATIVE_DOUBLE);
}

void Hdf5File::give_up() noexcept { handles_->failed = true; }

void Hdf5File::close() {
  const LibraryLock lock;
  if (handles_->file < 0) return;
  handles_->usable();
  if (handles_->access != Access::read && H5Fflush(handles_->file, H5F_SCOPE_GLOBAL) < 0) {
    handles_->fail_write("flush it");
  }
  if (H5Fclose(std::exchange(handles_->file, -1)) < 0) {  // the identifier is spent whatever the answer is
    const Reason reason = innermost_reason();
    if (handles_->access != Access::read) handles_->abandon();
    throw FileError({.file = path(), .what = "cannot close it: " + reason.text, .error_number = reason.error_number});
  }
}

}  // namespace lockstep::io
