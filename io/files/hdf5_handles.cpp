#include "io/files/hdf5_handles.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

std::mutex& library_mutex() {
  static std::mutex one;
  return one;
}

herr_t keep_innermost(unsigned position, const H5E_error2_t* error, void* out) {
  if (position != 0) return 0;
  try {
    static_cast<std::string*>(out)->assign(error->desc != nullptr ? error->desc : "");
  } catch (...) {
    return -1;
  }
  return 0;
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

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  static const bool opened = [] {
    H5dont_atexit();  // else the library's exit handler closes files under other static destructors
    return H5open() >= 0;
  }();
  if (!opened) throw FileError("the HDF5 library cannot be initialised; check the installation of libhdf5");
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(quiet);
}

Hdf5Error innermost_error() {
  // The library has the reason as a text alone.
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
  if (text.find("bad version number for hyperslab selection") != std::string::npos ||
      text.find("encoded VDS heap information") != std::string::npos) {
    return {
        fmt::format("it is a virtual dataset, described in a way that the HDF5 library here ({}) does not know. Copy "
                    "its data into one plain dataset with the program that made it, or build with a newer HDF5",
                    H5_VERS_INFO)};
  }
  if (text.find("truncated file") != std::string::npos) return {"the file is truncated (" + text + ")"};
  return {text};
}

Hdf5Type hdf5_type(FileType type) {
  switch (type) {
    case FileType::uint8:
      return {H5T_NATIVE_UINT8, H5T_STD_U8LE};
    case FileType::int8:
      return {H5T_NATIVE_INT8, H5T_STD_I8LE};
    case FileType::uint16:
      return {H5T_NATIVE_UINT16, H5T_STD_U16LE};
    case FileType::int16:
      return {H5T_NATIVE_INT16, H5T_STD_I16LE};
    case FileType::int32:
      return {H5T_NATIVE_INT32, H5T_STD_I32LE};
    case FileType::int64:
      return {H5T_NATIVE_INT64, H5T_STD_I64LE};
    case FileType::uint32:
      return {H5T_NATIVE_UINT32, H5T_STD_U32LE};
    case FileType::uint64:
      return {H5T_NATIVE_UINT64, H5T_STD_U64LE};
    case FileType::float32:
      return {H5T_NATIVE_FLOAT, H5T_IEEE_F32LE};
    case FileType::float64:
      return {H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE};
    case FileType::other:
      break;
  }
  throw std::invalid_argument("an HDF5 element type that is neither integer nor float cannot be read or written");
}

FileType file_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER:
      return integer_type(H5Tget_size(type), H5Tget_sign(type) != H5T_SGN_NONE);
    case H5T_ENUM: {  // h5py's bool
      const Hdf5Id base(H5Tget_super(type), H5Tclose);
      return integer_type(H5Tget_size(base.get()), H5Tget_sign(base.get()) != H5T_SGN_NONE);
    }
    case H5T_FLOAT:
      if (H5Tequal(type, H5T_IEEE_F32LE) > 0 || H5Tequal(type, H5T_IEEE_F32BE) > 0) return FileType::float32;
      if (H5Tequal(type, H5T_IEEE_F64LE) > 0 || H5Tequal(type, H5T_IEEE_F64BE) > 0) return FileType::float64;
      return H5Tget_size(type) == 2 ? FileType::float32 : FileType::other;  // float16: the library converts it
    default:
      return FileType::other;
  }
}

Hdf5File::Handles::~Handles() {
  if (file < 0) return;
  try {
    const Hdf5Lock lock;
    if (!failed) {
      H5Fclose(file);
      return;
    }
  } catch (...) {  // the lock; nothing can be reported from here
  }
  abandon();
}

void Hdf5File::Handles::abandon() noexcept {
  file = -1;
  if (::truncate(path.c_str(), 0) != 0) return;  // the caller removes the file; only its space was at stake
}

void Hdf5File::Handles::fail(std::string_view action) const {
  const Hdf5Error error = innermost_error();
  throw FileError(
      {.file = path, .what = fmt::format("cannot {}: {}", action, error.reason), .error_number = error.error_number});
}

void Hdf5File::Handles::fail_write(std::string_view action) {
  failed = true;
  fail(action);
}

void Hdf5File::Handles::wrong_type(std::string_view object, std::string_view attribute,
                                   std::string_view expected) const {
  throw FileError({.file = path, .what = fmt::format("attribute {} of {} is not {}", attribute, object, expected)});
}

void Hdf5File::Handles::damaged(std::string_view dataset, std::string_view what) const {
  throw FileError(
      {.file = path,
       .what = fmt::format("the header of dataset {} is damaged: {}; copy or make the file again", dataset, what)});
}

hid_t Hdf5File::Handles::usable() const {
  if (file < 0) throw std::invalid_argument(fmt::format("{} is closed already", path.string()));
  if (failed) throw std::invalid_argument(fmt::format("{}: an earlier write failed", path.string()));
  return file;
}

hid_t Hdf5File::Handles::writable() const {
  if (access == Access::read) throw std::invalid_argument(fmt::format("{} is open for reading", path.string()));
  return usable();
}

Hdf5Id Hdf5File::Handles::open_dataset(std::string_view name) const {
  const hid_t id = H5Dopen2(usable(), std::string(name).c_str(), H5P_DEFAULT);
  if (id < 0) fail(fmt::format("open dataset {}", name));
  return Hdf5Id(id, H5Dclose);
}

Hdf5Id Hdf5File::Handles::open_object(std::string_view name) const {
  const hid_t id = H5Oopen(usable(), std::string(name).c_str(), H5P_DEFAULT);
  if (id < 0) fail(fmt::format("open {}", name));
  return Hdf5Id(id, H5Oclose);
}

Hdf5File::Handles::Extents Hdf5File::Handles::extents(const Hdf5Id& dataset, std::string_view name) const {
  const Hdf5Id space(H5Dget_space(dataset.get()), H5Sclose);
  const int rank = space.valid() ? H5Sget_simple_extent_ndims(space.get()) : -1;
  if (rank < 0) fail(fmt::format("read the shape of dataset {}", name));
  Extents result{std::vector<hsize_t>(static_cast<std::size_t>(rank)),
                 std::vector<hsize_t>(static_cast<std::size_t>(rank))};
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), result.now.data(), result.most.data()) < 0) {
    fail(fmt::format("read the shape of dataset {}", name));
  }
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

void Hdf5File::Handles::check_whole(const Hdf5Id& dataset, std::string_view name, FileType type,
                                    std::size_t bytes) const {
  std::uint64_t expected = size_of(type);
  for (const hsize_t extent : extents(dataset, name).now) expected *= extent;
  check_bytes(name, expected, bytes);
}

std::vector<hsize_t> Hdf5File::Handles::checked_rows(const Hdf5Id& dataset, std::string_view name, FileType type,
                                                     std::int64_t first, std::int64_t rows, std::size_t bytes) const {
  std::vector<hsize_t> shape = extents(dataset, name).now;
  if (shape.empty() || first < 0 || rows < 0 || static_cast<hsize_t>(first + rows) > shape[0]) {
    throw std::invalid_argument(
        fmt::format("{}: dataset {} has no rows [{}, {})", path.string(), name, first, first + rows));
  }
  hsize_t expected = static_cast<hsize_t>(rows) * size_of(type);
  for (std::size_t axis = 1; axis < shape.size(); ++axis) expected *= shape[axis];
  check_bytes(name, expected, bytes);
  return shape;
}

void Hdf5File::Handles::check_bytes(std::string_view name, std::uint64_t expected, std::size_t bytes) const {
  if (bytes != expected) {
    throw std::invalid_argument(
        fmt::format("{}: dataset {} moves {} bytes, the buffer has {}", path.string(), name, expected, bytes));
  }
}

}  // namespace lockstep::io
