/// \file
/// NCCL's own log. NCCL decides once in a process whether it logs and where to, and from then on writes a line for
/// every sum that is enqueued: so it is told to write to memory of ours, of which all but the end is given back again
/// and again. What is there tells how NCCL communicates, and what it warned of before it failed.
#pragma once

#include <string>

#include <sys/types.h>

namespace lockstep::comm {

/// The log for as long as somebody listens.
class NcclLog {
 public:
  /// Before the process's first NCCL call. Where the user has set NCCL_DEBUG or NCCL_DEBUG_FILE the log is theirs, and
  /// this does nothing. Not two at a time.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  bool listens() const noexcept;
  /// What NCCL has said since construction; empty when it cannot be read.
  std::string text() const;

 private:
  off_t begin_ = 0;  ///< in the memory
};

/// "; NCCL's last warnings: TEXT; TEXT": the newest, at most 2 KiB of them, out of the last 64 KiB of the log. Empty
/// where there is none and where the log is the user's. For the end of a message.
std::string last_nccl_warnings();
/// Gives back the memory of what is older than last_nccl_warnings() reads, when enough has come together. To be called
/// every step; one call of the system.
void trim_nccl_log() noexcept;

}  // namespace lockstep::comm
