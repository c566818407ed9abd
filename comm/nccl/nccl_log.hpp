/// \file
/// NCCL's own log. NCCL decides once per process whether and where it logs, and from then on writes a line for every
/// enqueued sum. It therefore writes to an anonymous file in memory, and all but its end is freed from time to time.
/// The log shows how NCCL communicates, and its last warnings before a failure.
#pragma once

#include <string>

#include <sys/types.h>

namespace lockstep::comm {

/// Collects the log during the lifetime of this object.
class NcclLog {
 public:
  /// Must be constructed before the process's first NCCL call. If the user has set NCCL_DEBUG or NCCL_DEBUG_FILE, the
  /// log is theirs, and this does nothing. Only one object at a time.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  bool listens() const noexcept;
  /// The log since construction; empty if it cannot be read.
  std::string text() const;

 private:
  off_t begin_ = 0;  ///< offset in the memory
};

/// "; NCCL's last warnings: TEXT; TEXT": the newest, at most 2 KiB of them, from the last 64 KiB of the log. Empty
/// without warnings, and if the log is the user's. For the end of a message.
std::string last_nccl_warnings();
/// Frees memory that is older than last_nccl_warnings() needs, when there is enough of it. Call it every step; it costs
/// one system call.
void trim_nccl_log() noexcept;

}  // namespace lockstep::comm
