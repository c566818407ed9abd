#include "io/exchange/output_file.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep::io {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

[[noreturn]] void refuse_existing(const fs::path& file) {
  throw FileError({.file = file, .what = "is there already: give --force to replace it", .error_number = EEXIST});
}

}  // namespace

void require_writable_name(const fs::path& file, IfThere if_there) {
  std::error_code unknown;
  const fs::file_status status = fs::status(file, unknown);
  if (fs::is_directory(status)) throw FileError({.file = file, .what = "is a folder: name a file"});
  if (fs::exists(status) && if_there == IfThere::refuse) refuse_existing(file);
}

OutputFile::OutputFile(fs::path file, IfThere if_there, std::uint64_t bytes)
    : file_(std::move(file)), temporary_(temporary_beside(file_)), if_there_(if_there), bytes_(bytes) {
  require_writable_name(file_, if_there);
  try {
    descriptor_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, "write");
  } catch (const FileError& error) {
    const int number = error.parts().error_number;
    throw FileError({.file = file_,
                     .what = "cannot be written: " +
                             (number != 0 ? std::generic_category().message(number) : std::string(error.what())),
                     .error_number = number});
  }
  if (const int error_number = reserve_space(descriptor_, bytes); error_number != 0) {
    ::unlink(temporary_.c_str());
    fail(error_number);
  }
}

OutputFile::~OutputFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(int error_number) const {
  throw FileError({.file = file_,
                   .what = "cannot be written: " + no_space_text(error_number, file_, bytes_),
                   .error_number = error_number});
}

void OutputFile::write(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (buffer_.size() + text.size() > kBufferBytes) flush();
  if (text.size() > kBufferBytes) return put(text);
  buffer_ += text;
}

void OutputFile::flush() {
  put(buffer_);
  buffer_.clear();
}

void OutputFile::put(std::string_view bytes) {
  written_ += bytes.size();
  try {
    write_all(descriptor_, bytes, temporary_);
  } catch (const FileError& error) {
    if (error.parts().error_number != 0) fail(error.parts().error_number);
    throw;
  }
}

void OutputFile::finish() {
  flush();
  while (::ftruncate(descriptor_.get(), static_cast<off_t>(written_)) != 0) {  // frees excess reserved space
    if (errno != EINTR) fail(errno);
  }
  sync_file(temporary_);
  const unsigned flags = if_there_ == IfThere::refuse ? RENAME_NOREPLACE : 0;
  int result = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, file_.c_str(), flags);
  if (result != 0 && (errno == EINVAL || errno == ENOSYS)) {  // the file system has no such flag
    require_writable_name(file_, if_there_);
    result = ::rename(temporary_.c_str(), file_.c_str());
  }
  if (result != 0 && errno == EEXIST) refuse_existing(file_);
  if (result != 0) fail(errno);
  temporary_.clear();
  sync_folder(file_.has_parent_path() ? file_.parent_path() : fs::path("."));
}

}  // namespace lockstep::io
