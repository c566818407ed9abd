/// \file
/// A tiny file system, and limits of a process, with which writes really fail.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/io_test_support.hpp"

namespace lockstep::io {

/// A tmpfs of the given size; needs root. `reason` states why there is none.
class SmallDisk {
 public:
  explicit SmallDisk(const std::string& size) {
    const std::string options = "size=" + size;
    if (::mount("tmpfs", folder_.path().c_str(), "tmpfs", MS_NOSUID | MS_NODEV, options.c_str()) != 0) {
      reason = "mounting a small tmpfs is not allowed here: " + std::string(std::strerror(errno));
    }
  }
  ~SmallDisk() {
    if (reason.empty()) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  const std::filesystem::path& path() const noexcept { return folder_.path(); }
  /// Fills the disk except for about `left` bytes.
  void fill(std::uintmax_t left) const {
    const std::uintmax_t free = std::filesystem::space(path()).available;
    if (free > left) write_text(path() / "filler", std::string(free - left, 'f'));
  }

  std::string reason;

 private:
  TemporaryFolder folder_;
};

/// Limits this process's files to `bytes` while it exists: longer writes fail with EFBIG. Works for every user.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = SIG_DFL;
};

/// The text that `work` returns when an ordinary user runs it. Permissions do not restrict root.
template <class Work>
std::string said_by_ordinary_user(const Work& work) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(1);
    const std::string text = work();
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

}  // namespace lockstep::io
