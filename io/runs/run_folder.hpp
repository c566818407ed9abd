/// \file
/// The folder of a run, and its only owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/files/file_error.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

/// Describes the owner of the run in this folder: "host node7, pid 1234, since …", with "in its container" if its
/// process ids are not those of this process; "" without an owner file.
std::string owner_of(const std::filesystem::path& folder);

/// Throws FileError if a process that continues the run in this folder could not write or replace one of its files.
/// Changes nothing.
void require_writable_run(const std::filesystem::path& folder);

/// Creates RUN and RUN/checkpoints, and takes ownership by writing a random token into RUN/owner. A later owner takes
/// over, because the earlier one is probably dead or cut off; from then on still_owner() of the earlier one throws. If
/// the later process could not write the run's files, it does not take over.
///
/// Guarantee: the check of ownership and the change after it are two steps. A process that is stopped exactly between
/// them can finish this one change later. Each such change is one atomic rename of a whole, valid file.
class RunFolder {
 public:
  enum class Open { fresh, resume };
  /// fresh: the folder may exist without a run; otherwise throws FileError that names --resume, --force and another
  /// --run. If two processes start afresh at once, one is refused. `overwrite` takes over an existing run and then
  /// removes its files, but no others. resume: continues the run, if there is one.
  ///
  /// Removes temporaries of earlier writers. RUN may be a link, RUN/checkpoints may not. A caller that resumes must
  /// list the checkpoints again, because the previous owner may have written one in the meantime. `deadline` limits
  /// each access, and outlives this.
  RunFolder(std::filesystem::path folder, Open open, bool overwrite, IoDeadline* deadline = nullptr);
  /// Removes the files of a run, as `overwrite` does.
  void start_over() const;
  const std::filesystem::path& path() const noexcept { return folder_; }
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  /// Throws FileError if another process has taken the folder since.
  void still_owner() const;
  /// Returns true if the folder has a file of this name, created by a user, and removes it. A file that cannot be
  /// removed does not count.
  bool take_request(std::string_view name) const noexcept;
  /// Atomically replaces a small text file in the folder (temporary, fsync, rename), after a check of the ownership.
  void write_text(std::string_view name, std::string_view text) const;

 private:
  void take_over() const;
  void remove_temporaries() const;

  std::filesystem::path folder_;
  IoDeadline* deadline_;
  std::string token_;
};

}  // namespace lockstep::io
