#include "io/files/hdf5_handles.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
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

/// The reason of this thread's last failed call.
std::string& kept_reason() {
  thread_local std::string text;
  return text;
}

/// The library calls this function as a failed call returns.
herr_t keep_reason(hid_t stack, void*) {
  kept_reason().clear();
  H5Ewalk2(stack, H5E_WALK_UPWARD, keep_innermost, &kept_reason());
  return 0;
}

/// The smallest type for integers of this many bytes.
FileType integer_type(std::size_t bytes, bool is_signed) {
  if (bytes == 1) return is_signed ? FileType::int8 : FileType::uint8;
  if (bytes == 2) return is_signed ? FileType::int16 : FileType::uint16;
  if (bytes <= 4) return is_signed ? FileType::int32 : FileType::uint32;
  if (bytes <= 8) return is_signed ? FileType::int64 : FileType::uint64;
  return FileType::other;
}

std::string member_names(hid_t type) {
  constexpr int kMaxShown = 8;
  std::string names;
  const int count = H5Tget_nmembers(type);
  for (int i = 0; i < std::min(count, kMaxShown); ++i) {
    char* const name = H5Tget_member_name(type, static_cast<unsigned>(i));
    names += fmt::format("{}{}", i > 0 ? ", " : "", name != nullptr ? name : "?");
    H5free_memory(name);
  }
  return names + (count > kMaxShown ? ", ..." : "");
}

constexpr const char* kNoHdf5 = "it is not an HDF5 file";
/// The library's texts for an unknown version of a part of the file.
constexpr std::string_view kUnknownVersion[] = {"bad version number", "bad superblock version", "unknown layout class",
                                                "bad object header version", "bad version # of"};
/// The library's text for the part, and the version of HDF5 that introduced a newer form of it.
struct Novelty {
  std::string_view part, since;
};
constexpr Novelty kNovelties[] = {
    {"layout message", "2.0"},   {"datatype message", "1.12"},    {"superblock", "1.10"},
    {"encoded VDS heap", "2.0"}, {"hyperslab selection", "1.12"}, {"fill value message", "1.8"},
    {"point selection", "1.12"}, {"reference", "1.12"},           {"free-space header", "1.10"}};

std::string newer_format(std::string_view text) {
  const bool unknown =
      std::ranges::any_of(kUnknownVersion, [&](auto words) { return text.find(words) != std::string_view::npos; });
  if (!unknown) return "";
  const auto* const novelty = std::ranges::find_if(
      kNovelties, [&](const Novelty& one) { return text.find(one.part) != std::string_view::npos; });
  return fmt::format(
      "it was written in a form that the HDF5 library here ({}.{}.{}) does not know ({}){}. Build with a newer HDF5, "
      "or "
      "write the file again with an older format (h5py: libver=(\"earliest\", \"v110\"); h5repack --high=2 of that "
      "newer HDF5)",
      H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE, text,
      novelty == std::end(kNovelties) ? std::string(", or it is damaged")
                                      : fmt::format(": HDF5 {} or newer is needed, or it is damaged", novelty->since));
}

/// Returns "" unless the file begins as one of a format that is often taken for HDF5.
std::string remedy_for_other_format(const std::filesystem::path& file) {
  char first[4] = {};
  std::ifstream(file, std::ios::binary).read(first, sizeof(first));
  const std::string_view begin(first, sizeof(first));
  if (begin.starts_with("CDF")) return ", but of the classic NetCDF format; convert it: nccopy -k nc4 FILE NEW.nc";
  if (begin == "\x0e\x03\x13\x01") return ", but an HDF4 file; convert it: h4toh5 FILE NEW.h5";
  return "";
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library_mutex()) {
  static const bool opened = [] {
    H5dont_atexit();  // otherwise the library's exit handler closes files that other static destructors still use
    return H5open() >= 0;
  }();
  if (!opened) throw FileError("the HDF5 library cannot be initialised; check the installation of libhdf5");
  thread_local const bool kept = H5Eset_auto2(H5E_DEFAULT, keep_reason, nullptr) >= 0;
  static_cast<void>(kept);
  kept_reason().clear();
}

Hdf5Error innermost_error() {
  // The library offers the reason only as text.
  const std::string text = kept_reason();
  if (text.empty()) return {"the HDF5 library gives no reason"};
  constexpr std::string_view kErrno = "errno = ";
  if (const auto at = text.find(kErrno); at != std::string::npos) {
    int code = 0;
    const char* begin = text.data() + at + kErrno.size();
    std::from_chars(begin, text.data() + text.size(), code);
    if (code != 0) return {std::generic_category().message(code), code};
  }
  if (text.find("file signature not found") != std::string::npos) return {kNoHdf5};
  if (std::string newer = newer_format(text); !newer.empty()) return {std::move(newer)};
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
      // The library converts float16, bfloat16 and other forms.
      if (H5Tget_size(type) <= 4) return FileType::float32;
      return H5Tget_size(type) <= 8 ? FileType::float64 : FileType::other;
    default:
      return FileType::other;
  }
}

std::string type_in_words(hid_t type) {
  const std::size_t bits = 8 * H5Tget_size(type);
  switch (H5Tget_class(type)) {
    case H5T_COMPOUND:
      if (const std::string names = member_names(type); names == "r, i" || names == "real, imag") {
        return "complex numbers: store real and imaginary parts as numbers of their own";
      } else {
        return fmt::format("compound, records of {}: write the members into a dataset of numbers", names);
      }
    case H5T_FLOAT:
      return fmt::format("long double, floats of {} bits: store them as float64", bits);
    case H5T_INTEGER:
    case H5T_ENUM:
      return fmt::format("integers of {} bits: store them as int64 or float64", bits);
    case H5T_ARRAY:
      return "arrays (H5T_ARRAY): give the dataset another dimension instead";
    case H5T_VLEN:
      return "sequences of variable length: pad them to one length";
    case H5T_STRING:
      return "texts";
    case H5T_OPAQUE:
      return "opaque bytes: store them as uint8";
    case H5T_BITFIELD:
      return fmt::format("bit fields of {} bits: store them as unsigned integers", bits);
    case H5T_REFERENCE:
      return "references to other objects: store what they refer to";
    case H5T_TIME:
      return "times (H5T_TIME): store them as numbers";
    default:
      return "of a class that the HDF5 library here does not know: store them as numbers";
  }
}

bool has_plain_bits(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: {
      const std::size_t size = H5Tget_size(type);
      const H5T_order_t order = H5Tget_order(type);
      return (size == 1 || size == 2 || size == 4 || size == 8) && H5Tget_precision(type) == 8 * size &&
             H5Tget_offset(type) == 0 && (order == H5T_ORDER_LE || order == H5T_ORDER_BE);
    }
    case H5T_ENUM: {
      const Hdf5Id base(H5Tget_super(type), H5Tclose);
      return base.valid() && has_plain_bits(base.get());
    }
    case H5T_FLOAT:
      for (const hid_t plain : {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE}) {
        if (H5Tequal(type, plain) > 0) return true;
      }
      return false;
    default:
      return false;
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
  } catch (...) {  // the lock failed; a destructor cannot report it
  }
  abandon();
}

void Hdf5File::Handles::abandon() noexcept {
  file = -1;
  if (::truncate(path.c_str(), 0) != 0) return;  // the caller removes the file; only its space mattered
}

void Hdf5File::Handles::fail(std::string_view action) const {
  Hdf5Error error = innermost_error();
  if (error.reason == kNoHdf5) error.reason += remedy_for_other_format(path);
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
  constexpr hsize_t kMaxElements = hsize_t{1} << 59;
  hsize_t elements = 1;
  for (const hsize_t extent : result.now) {
    if (extent > kMaxElements / elements) {
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
