#include "io/files/durable_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

[[noreturn]] void throw_write_failure(const std::filesystem::path& file, std::size_t bytes, int error_number) {
  throw FileError(fmt::format("cannot write {}: {}", file.string(), no_space_text(error_number, file, bytes)),
                  {.file = file, .what = "cannot write it", .error_number = error_number});
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
}

/// Syncs the folder or file of a descriptor.
void sync_descriptor(const Descriptor& descriptor, const std::filesystem::path& path) {
  while (::fsync(descriptor.get()) != 0) {
    if (errno == EINTR) continue;
    const int error_number = errno;
    throw FileError(fmt::format("cannot flush {} to the disk: {}", path.string(), no_space_text(error_number, path, 0)),
                    {.file = path, .what = "cannot flush it to the disk", .error_number = error_number});
  }
}

/// Writes and syncs the temporary; removes it when that fails.
void write_temporary(const std::filesystem::path& temporary, std::string_view text) {
  try {
    const Descriptor descriptor = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL, "create");
    write_all(descriptor, text, temporary);
    sync_descriptor(descriptor, temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

constexpr std::string_view kNoRegularFile = "it is a folder, a pipe or a device, not a file";

bool is_regular(const Descriptor& descriptor) {
  struct stat status {};
  return ::fstat(descriptor.get(), &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(value_, other.value_);
  return *this;
}

Descriptor open_file(const std::filesystem::path& file, int flags, std::string_view action) {
  for (;;) {
    const int value = ::open(file.c_str(), flags | O_CLOEXEC, 0666);
    if (value >= 0) return Descriptor(value);
    if (errno == EINTR) continue;
    const int error_number = errno;
    throw FileError(
        fmt::format("cannot {} {}: {}", action, file.string(),
                    means_no_space(error_number) ? no_space_text(error_number, file, 0) : reason(error_number)),
        {.file = file, .what = fmt::format("cannot {} it", action), .error_number = error_number});
  }
}

Descriptor open_own_file(const std::filesystem::path& file, int flags, std::string_view action) {
  const auto refuse = [&](std::string_view why) {
    throw FileError(fmt::format("cannot {} {}: {}; remove it", action, file.string(), why));
  };
  int value = -1;
  do {
    value = ::open(file.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  } while (value < 0 && errno == EINTR);
  if (value < 0 && errno == ELOOP) refuse("it is a link, and the program writes into files of its own alone");
  if (value < 0 && errno == ENXIO) refuse(kNoRegularFile);
  if (value < 0) return open_file(file, flags | O_NOFOLLOW, action);  // throws the reason
  Descriptor descriptor(value);
  if (!is_regular(descriptor)) refuse(kNoRegularFile);
  return descriptor;
}

std::optional<std::string> read_whole(const std::filesystem::path& file) {
  int value = -1;
  do {
    value = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (value < 0 && errno == EINTR);
  if (value < 0 && errno == ENOENT) return std::nullopt;
  const Descriptor descriptor(value);
  if (value >= 0 && !is_regular(descriptor)) {
    throw FileError(fmt::format("cannot read {}: {}", file.string(), kNoRegularFile));
  }
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const ssize_t count = value < 0 ? -1 : ::read(descriptor.get(), part.data(), part.size());
    if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) {
      throw FileError(fmt::format("cannot read {}: {}", file.string(), reason(errno)));
    }
  }
}

void write_all(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_write_failure(file, bytes.size(), written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void write_at(const Descriptor& descriptor, std::span<const std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& file) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_write_failure(file, bytes.size(), written < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
}

void read_at(const Descriptor& descriptor, std::span<std::byte> out, std::uint64_t offset,
             const std::filesystem::path& file) {
  while (!out.empty()) {
    const ssize_t count = ::pread(descriptor.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error_number = count < 0 ? errno : 0;
      const std::string what =
          fmt::format("cannot read {} bytes at {}: {}", out.size(), offset,
                      error_number != 0 ? reason(error_number) : std::string("the file ends before"));
      throw FileError({.file = file, .what = what, .error_number = error_number});
    }
    out = out.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

int reserve_space(const Descriptor& descriptor, std::uint64_t bytes) noexcept {
  while (::fallocate(descriptor.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes)) != 0) {
    if (means_no_space(errno)) return errno;
    if (errno != EINTR)
      break;  // EOPNOTSUPP, EINVAL …: this file system cannot reserve; a full disk shows in the writes
  }
  return 0;
}

void append_whole(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file) {
  struct stat before {};
  if (::fstat(descriptor.get(), &before) != 0) throw_write_failure(file, bytes.size(), errno);
  try {
    write_all(descriptor, bytes, file);
  } catch (const FileError&) {
    while (::ftruncate(descriptor.get(), before.st_size) != 0 && errno == EINTR) {
    }
    throw;
  }
}

void sync_file(const std::filesystem::path& file) { sync_descriptor(open_file(file, O_RDONLY, "open"), file); }

void sync_folder(const std::filesystem::path& folder) {
  const std::filesystem::path real = folder.empty() ? std::filesystem::path(".") : folder;
  const Descriptor descriptor = open_file(real, O_RDONLY | O_DIRECTORY, "open folder");
  while (::fsync(descriptor.get()) != 0) {
    if (errno == EINVAL || errno == ENOTSUP) return;
    if (errno != EINTR) {
      throw FileError(fmt::format("cannot flush folder {} to the disk: {}", real.string(), reason(errno)));
    }
  }
}

std::filesystem::path temporary_beside(const std::filesystem::path& file) {
  return folder_of(file) /
         fmt::format(".{}.{}-{}.tmp", file.filename().string(), ::getpid(), random_token().substr(0, 16));
}

bool is_temporary_of(std::string_view candidate, std::string_view name) {
  return candidate.size() > name.size() + 6 && candidate.front() == '.' && candidate.substr(1, name.size()) == name &&
         candidate[name.size() + 1] == '.' && candidate.ends_with(".tmp");
}

void replace_file(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path temporary = temporary_beside(file);
  write_temporary(temporary, text);
  if (::rename(temporary.c_str(), file.c_str()) != 0) {
    const int error_number = errno;
    ::unlink(temporary.c_str());
    throw FileError(fmt::format("cannot replace {}: {}", file.string(), no_space_text(error_number, file, 0)));
  }
  sync_folder(folder_of(file));
}

bool create_file_once(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path temporary = temporary_beside(file);
  write_temporary(temporary, text);
  const bool created = ::link(temporary.c_str(), file.c_str()) == 0;
  int error_number = created ? 0 : errno;
  if (!created && error_number != EEXIST) {  // no hard links here (FAT, some FUSE): two steps are the best option
    std::error_code unknown;
    if (std::filesystem::exists(file, unknown)) {
      error_number = EEXIST;
    } else if (::rename(temporary.c_str(), file.c_str()) == 0) {
      error_number = 0;
    }
  }
  ::unlink(temporary.c_str());
  if (error_number == EEXIST) return false;
  if (error_number != 0) {
    throw FileError(fmt::format("cannot create {}: {}", file.string(), no_space_text(error_number, file, 0)));
  }
  sync_folder(folder_of(file));
  return true;
}

std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path) {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0 && ::statvfs(folder_of(path).c_str(), &status) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

bool means_no_space(int error_number) noexcept {
  return error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
}

std::string no_space_text(int error_number, const std::filesystem::path& path, std::uint64_t needed) {
  std::string text = reason(error_number);
  if (!means_no_space(error_number)) return text;
  if (error_number == EFBIG) text += " (the limit on this process's file sizes: ulimit -f)";
  text += ":";
  if (needed > 0) text += fmt::format(" {} needed,", size_text(needed));
  const auto free = free_bytes(path);
  text += free ? fmt::format(" {} free", size_text(*free)) : " free space unknown";
  if (error_number == ENOSPC) text += "; free some space there";
  return text;
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string random_token() {
  std::array<unsigned char, 16> bits{};
  std::size_t filled = 0;
  while (filled < bits.size()) {
    const ssize_t count = ::getrandom(bits.data() + filled, bits.size() - filled, 0);
    if (count < 0 && errno != EINTR) {
      throw FileError(fmt::format("the operating system gives no random numbers: {}", reason(errno)));
    }
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  std::string text;
  for (const unsigned char byte : bits) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace lockstep::io
