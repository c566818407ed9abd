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

/// As open_file(), for a file that this program has written, below a run's folder. Refuses links, which may lead to
/// other people's files, and pipes and devices, which may block for ever. Throws FileError.
Descriptor open_own_file(const std::filesystem::path& file, int flags, std::string_view action);

/// The content of a regular file; nullopt: no such file. Throws FileError for everything else, including pipes.
std::optional<std::string> read_whole(const std::filesystem::path& file);

/// Writes everything, in as many calls as needed. Throws FileError.
void write_all(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file);

/// As above, at `offset` bytes from the beginning. Throws FileError.
void write_at(const Descriptor& descriptor, std::span<const std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& file);
/// Fills `out` from `offset` on. Throws FileError, also if the file ends too early.
void read_at(const Descriptor& descriptor, std::span<std::byte> out, std::uint64_t offset,
             const std::filesystem::path& file);

/// Reserves space for a file of this size, so that a full disk shows before the first byte. The file's size does not
/// change. Returns the error number if there is no space; 0 if it is reserved or the file system cannot reserve.
int reserve_space(const Descriptor& descriptor, std::uint64_t bytes) noexcept;

/// Appends all bytes (one write call; O_APPEND) or none: a partial write on a full disk is cut off again. For files
/// with one writer. Throws FileError.
void append_whole(const Descriptor& descriptor, std::string_view bytes, const std::filesystem::path& file);

/// Blocks until the file's content, or the folder's entries, are on the device. Throws FileError. File systems that
/// cannot sync a folder (EINVAL) count as needing none.
void sync_file(const std::filesystem::path& file);
void sync_folder(const std::filesystem::path& folder);

/// A hidden name in the same folder, different for every call: FOLDER/.NAME.PID-HEX.tmp.
std::filesystem::path temporary_beside(const std::filesystem::path& file);
/// True for names that temporary_beside() makes for a file named `name`.
bool is_temporary_of(std::string_view candidate, std::string_view name);

/// Replaces the content of `file` by `text`: readers see the old content or the new one, also after a crash. Throws
/// FileError and keeps the old content.
void replace_file(const std::filesystem::path& file, std::string_view text);
/// As replace_file(), but an existing file stays and the result is false. If two processes call it at once, only one
/// gets true.
bool create_file_once(const std::filesystem::path& file, std::string_view text);

/// Bytes that an unprivileged process can still write at `path` (a file or a folder); nullopt: unknown.
std::optional<std::uint64_t> free_bytes(const std::filesystem::path& path);
/// True if the disk, the quota or the size limit of a process's files is exhausted.
bool means_no_space(int error_number) noexcept;
/// "no space left on device: 24.0 MiB needed, 1.2 MiB free", for the end of a message.
std::string no_space_text(int error_number, const std::filesystem::path& path, std::uint64_t needed);
/// "24.0 MiB".
std::string size_text(std::uint64_t bytes);
/// 128 random bits from the operating system, as 32 hex digits.
std::string random_token();

}  // namespace lockstep::io
