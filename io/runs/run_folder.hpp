/// \file
/// A run's folder and its one owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/files/file_error.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::io {

/// "host node7, pid 1234, since …": who has the run in this folder; "" where no owner file is.
std::string owner_of(const std::filesystem::path& folder);

/// Creates RUN and RUN/checkpoints, takes ownership by writing a random token into RUN/owner. A second owner takes
/// over (the first is expected to be dead, or cut off): from then on the first one's still_owner() throws.
///
/// What is guaranteed: the check and the change that follows are two steps, so a writer that is frozen exactly between
/// them can finish that one change afterwards; each such change is one atomic rename of a whole, valid file.
class RunFolder {
 public:
  enum class Open { fresh, resume };
  /// fresh: the folder must not exist or hold no run (throws FileError saying --resume, --force or another --run); of
  /// two processes that start afresh at once, one is refused. With `overwrite` an existing run is taken over, then the
  /// files that a run makes are removed; all others stay. resume: continues what is there, also nothing. What writers
  /// before left of temporaries is removed. RUN/checkpoints may not be a link, RUN may. Whoever resumes looks at the
  /// checkpoints again after this: the owner before may have written one more until here. `deadline` is that of each
  /// access, and outlives this.
  RunFolder(std::filesystem::path folder, Open open, bool overwrite, IoDeadline* deadline = nullptr);
  /// Removes the files that a run makes, as `overwrite` does.
  void start_over() const;
  const std::filesystem::path& path() const noexcept { return folder_; }
  std::filesystem::path checkpoints() const { return folder_ / "checkpoints"; }
  /// Throws FileError when another process has taken the folder since.
  void still_owner() const;
  /// Atomic (temporary, fsync, rename) replacement of a small text file in the folder; checks the ownership first.
  /// Whether somebody has made a file of this name in the folder, which is removed then. A file that cannot be removed
  /// asks for nothing.
  bool take_request(std::string_view name) const noexcept;
  void write_text(std::string_view name, std::string_view text) const;

 private:
  void take_over() const;
  void remove_temporaries() const;

  std::filesystem::path folder_;
  IoDeadline* deadline_;
  std::string token_;
};

}  // namespace lockstep::io
