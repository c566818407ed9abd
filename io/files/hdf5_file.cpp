#include "io/files/hdf5_file.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "io/files/durable_file.hpp"
#include "io/files/hdf5_handles.hpp"

namespace lockstep::io {
namespace {

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

void require_checksummed_structure(const std::filesystem::path& file) {
  constexpr std::array<std::byte, 8> kSignature = {std::byte{0x89}, std::byte{'H'},  std::byte{'D'},  std::byte{'F'},
                                                   std::byte{'\r'}, std::byte{'\n'}, std::byte{0x1A}, std::byte{'\n'}};
  constexpr std::byte kWithChecksums{2};
  std::array<std::byte, kSignature.size() + 1> head{};
  std::error_code error;
  if (std::filesystem::file_size(file, error) < head.size() || error) return;  // opening it reports the error
  read_at(open_file(file, O_RDONLY, "open"), head, 0, file);
  if (!std::equal(kSignature.begin(), kSignature.end(), head.begin()) || head.back() >= kWithChecksums) return;
  throw FileError({.file = file,
                   .what = "has an older HDF5 format than this program writes: it was changed, or was made by another "
                           "program; copy or make it again"});
}

std::string hdf5_version() {
#ifdef H5_HAVE_PARALLEL
  constexpr const char* kFlavour = ", parallel";
#else
  constexpr const char* kFlavour = "";
#endif
  const Hdf5Lock lock;
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}{}", major, minor, release, kFlavour);
}

Hdf5File::Hdf5File(const std::filesystem::path& path, Access access)
    : handles_(std::make_unique<Handles>(Handles{path, access})) {
  const Hdf5Lock lock;
  const Hdf5Id properties(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  // Network file systems answer locks with ENOLCK and the like; nothing here relies on locks. From V18 on, metadata
  // carries checksums, so every flipped bit is noticed.
  if (!properties.valid() || H5Pset_file_locking(properties.get(), 0, 1) < 0 ||
      H5Pset_fclose_degree(properties.get(), H5F_CLOSE_SEMI) < 0 ||
      H5Pset_libver_bounds(properties.get(), H5F_LIBVER_V18, H5F_LIBVER_LATEST) < 0 ||
      H5Pset_obj_track_times(creation.get(), false) < 0) {  // equal content, equal bytes
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
      handles_->file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), properties.get());
      break;
  }
  if (handles_->file < 0) handles_->fail(access == Access::create ? "create it" : "open it");
}

Hdf5File::~Hdf5File() = default;
Hdf5File::Hdf5File(Hdf5File&&) noexcept = default;
Hdf5File& Hdf5File::operator=(Hdf5File&&) noexcept = default;

const std::filesystem::path& Hdf5File::path() const noexcept { return handles_->path; }

bool Hdf5File::has(std::string_view object) const {
  const Hdf5Lock lock;
  const hid_t file = handles_->usable();
  std::string path = fmt::format("{}{}", object.starts_with('/') ? "" : "/", object);
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path == "/") return true;
  // H5Lexists checks the last link only, and fails if an earlier one is missing.
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string prefix = path.substr(0, end);
    const htri_t link = H5Lexists(file, prefix.c_str(), H5P_DEFAULT);
    const htri_t target = link > 0 ? H5Oexists_by_name(file, prefix.c_str(), H5P_DEFAULT) : link;
    if (target < 0) {  // also for a broken external link
      H5L_info_t info;
      const Hdf5Error error = innermost_error();
      const bool is_link =
          link > 0 && H5Lget_info(file, prefix.c_str(), &info, H5P_DEFAULT) >= 0 && info.type != H5L_TYPE_HARD;
      if (!is_link) {
        throw FileError({.file = handles_->path,
                         .what = fmt::format("cannot look for {}: {}", object, error.reason),
                         .error_number = error.error_number});
      }
    }
    if (target <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> Hdf5File::children(std::string_view group) const {
  const Hdf5Lock lock;
  const Hdf5Id id(H5Gopen2(handles_->usable(), std::string(group).c_str(), H5P_DEFAULT), H5Gclose);
  std::vector<std::string> names;
  if (!id.valid() || H5Literate(id.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, collect_name, &names) < 0) {
    handles_->fail(fmt::format("list group {}", group));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> Hdf5File::datasets(std::string_view group) const {
  constexpr int kMaxGroupDepth = 8;
  constexpr std::size_t kMaxNames = 10'000;
  const std::string root = fmt::format("{}{}", group, group.ends_with('/') ? "" : "/");
  std::vector<std::string> found, groups{""};
  for (int depth = 0; depth < kMaxGroupDepth && !groups.empty(); ++depth) {
    std::vector<std::string> deeper;
    for (const std::string& within : groups) {
      for (const std::string& name : children(root + within)) {
        const Hdf5Lock lock;
        const std::string relative = within + name, path = root + relative;
        H5L_info_t link;
        const bool is_hard =
            H5Lget_info(handles_->usable(), path.c_str(), &link, H5P_DEFAULT) >= 0 && link.type == H5L_TYPE_HARD;
        if (H5Oexists_by_name(handles_->usable(), path.c_str(), H5P_DEFAULT) <= 0) continue;  // a broken link
        const Hdf5Id object(H5Oopen(handles_->usable(), path.c_str(), H5P_DEFAULT), H5Oclose);
        if (!object.valid()) continue;  // a request for it by name reports the reason
        const H5I_type_t type = H5Iget_type(object.get());
        if (type == H5I_DATASET) found.push_back(relative);
        if (type == H5I_GROUP && is_hard) deeper.push_back(relative + "/");
        if (found.size() + deeper.size() >= kMaxNames) return found;
      }
    }
    groups = std::move(deeper);
  }
  return found;
}

void Hdf5File::give_up() noexcept { handles_->failed = true; }

void Hdf5File::close() {
  const Hdf5Lock lock;
  if (handles_->file < 0) return;
  handles_->usable();
  if (handles_->access != Access::read && H5Fflush(handles_->file, H5F_SCOPE_GLOBAL) < 0) {
    handles_->fail_write("flush it");
  }
  if (H5Fclose(std::exchange(handles_->file, -1)) < 0) {  // the identifier is invalid after any result
    const Hdf5Error error = innermost_error();
    if (handles_->access != Access::read) handles_->abandon();
    throw FileError({.file = path(), .what = "cannot close it: " + error.reason, .error_number = error.error_number});
  }
}

}  // namespace lockstep::io
