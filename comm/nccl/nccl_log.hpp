/// \file
/// NCCL's own log, for as long as somebody listens. NCCL decides once in a process whether it logs and where to, and
/// from then on writes a line for every sum that is enqueued: so it is told to write to memory of ours, and when we
/// have heard enough, its descriptor is led to /dev/null.
#pragma once

#include <string>

namespace lockstep::comm {

class NcclLog {
 public:
  /// Before the process's first NCCL call. Where the user has set NCCL_DEBUG or NCCL_DEBUG_FILE the log is theirs, and
  /// this does nothing. Not two at a time.
  NcclLog();
  ~NcclLog();
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;

  bool listens() const noexcept { return memory_ >= 0; }
  /// What NCCL has said since construction; empty when it cannot be read.
  std::string text() const;

 private:
  int memory_ = -1;  ///< descriptor of an anonymous file
};

}  // namespace lockstep::comm
