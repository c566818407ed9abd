/// \file
/// Files that survive a crash and a full disk: whole appends, flushes to the device, replacement in one step.
///
/// "Durable" after sync_file() and sync_folder() means: handed to the device. A rename without sync_folder() may be
/// undone by a power cut, but never shows half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/files/file_error.hpp"

namespace lockstep::io {

/// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(std::exchange(other.value_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const noexcept { return value_; }

 private:
  int value_ = -1;
};

/// open(2) with O_CLOEXEC and mode 0666 less the umask. Throws FileError "cannot ACTION FILE: reason".
Descriptor open_file(const std::filesystem::path& file, int flags, std::string_view action);

/// The same for a file of the program's own, below a run's folder: never through a link, which may lead to somebody
/// else's file, and never a pipe or device, which may hold up the program for ever. Throws FileError.
Descriptor open_own_file(const std::filesystem::path& file, int flags, std::string_view action);

/// The content of a regular file; nullopt when there is no such file. Throws FileError for all else, pipes included.
std::optional<std::string> read_whole(const std::filesystem::path& file);

/// Writes everything, however many calls it takes. Throws FileError.
void write_all(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file);

/// The same at a place of its own, `offset` bytes from the beginning. Throws FileError.
void write_at(const Descriptor& descriptor, std::span<const std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& file);
/// Fills `out` from there. Throws FileError, also where the file ends before.
void read_at(const Descriptor& descriptor, std::span<std::byte> out, std::uint64_t offset,
             const std::filesystem::path& file);

/// Takes space for a file of so many bytes beforehand, so that a full disk shows before the first byte; the file's size
/// stays as it is. Returns the error number where there is none, 0 where it is taken and where this file system cannot.
int reserve_space(const Descriptor& descriptor, std::uint64_t bytes) noexcept;

/// Appends all bytes (one write call; O_APPEND) or none: what a full disk let through is cut off again. For files with
/// one writer. Throws FileError.
void append_whole(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file);

/// Blocks until the file's content, or the folder's entries, are on the device. Throws FileError. File systems that
/// cannot sync a folder (EINVAL) are taken to need none.
void sync_file(const std::filesystem::path& file);
void sync_folder(const std::filesystem::path& folder);

/// Hidden, in the same folder, different for every call: FOLDER/.NAME.PID-HEX.tmp.
std::filesystem::path temporary_beside(const std::filesystem::path& file);
/// True for the names that temporary_beside() gives for a file named `name`.
bool is_temporary_of(std::string_view candidate, std::string_view name);

/// Makes `file` hold `text`: readers see the old content or the new one, also after a crash. Throws FileError and
/// leaves the old content.
void replace_file(const std::filesystem::path& file, std::string_view text);
/// The same, but an existing file stays and the answer is false. Two processes that try at once: one gets true.
bool create_file_once(const std::filesystem::path& file, std::string_view text);

/// Bytes an unprivileged process may still write where `path` (a file or a folder) lies; nullopt where nobody knows.
std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path);
/// The disk is full, or the quota, or the size limit of a process's files.
bool means_no_space(int error_number) noexcept;
/// "no space left on device: 24.0 MiB needed, 1.2 MiB free", for the end of a message.
std::string no_space_text(int error_number, const std::filesystem::path& path, std::uint64_t needed);
/// "24.0 MiB".
std::string size_text(std::uint64_t bytes);
/// 128 random bits from the operating system, as 32 hex digits.
std::string random_token();

}  // namespace lockstep::io
