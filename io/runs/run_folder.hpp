/// \file
/// A run's folder and its one owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/files/file_error.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

/// "host node7, pid 1234, since …", "in its container" where its process ids are not this process's ones: who has the
/// run in this folder; "" where no owner file is.
std::string owner_of(const std::filesystem::path& folder);

/// Throws FileError where a process that goes on with the run in this folder could not write or replace one of its
/// files. Changes nothing.
void require_writable_run(const std::filesystem::path& folder);

/// Creates RUN and RUN/checkpoints, takes ownership by writing a random token into RUN/owner. A second owner takes
/// over (the first is expected to be dead, or cut off): from then on the first one's still_owner() throws. It takes
/// over only what it can go on with: where it may not write, the first owner keeps the run.
///
/// Guarantee: the check and the change that follows are two steps, so a writer that is frozen exactly between them can
/// finish that one change afterwards. Each such change is one atomic rename of a whole, valid file.
class RunFolder {
 public:
  enum class Open { fresh, resume };
  /// fresh: the folder may exist without a run (else throws FileError that names --resume, --force or another --run).
  /// If two processes start afresh at once, one is refused. With `overwrite` an existing run is taken over, then the
  /// files of the run are removed; all others stay. resume: continues the run, if there is one. Temporaries of earlier
  /// writers are removed. RUN/checkpoints may not be a link, RUN may. A resuming caller lists the checkpoints again
  /// after this, because the previous owner may have written one until now. `deadline` limits each access, and outlives
  /// this.
  RunFolder(std::filesystem::path folder, Open open, bool overwrite, IoDeadline* deadline = nullptr);
  /// Removes the files of a run, as `overwrite` does.
  void start_over() const;
  const std::filesystem::path& path() const noexcept { return folder_; }
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  /// Throws FileError if another process has taken the folder since.
  void still_owner() const;
  /// True if a user has created a file of this name in the folder; removes it. A file that cannot be removed does not
  /// count.
  bool take_request(std::string_view name) const noexcept;
  /// Atomic (temporary, fsync, rename) replacement of a small text file in the folder; checks the ownership first.
  void write_text(std::string_view name, std::string_view text) const;

 private:
  void take_over() const;
  void remove_temporaries() const;

  std::filesystem::path folder_;
  IoDeadline* deadline_;
  std::string token_;
};

}  // namespace lockstep::io
