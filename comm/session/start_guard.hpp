/// \file
/// Limits the time of MPI's start. In MPI_Init_thread, and in every creation of a communicator, MPI waits for all ranks
/// by itself, without a limit: a stopped rank, or a network that drops packets, would hold the others for ever.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/session/start_folders.hpp"

namespace lockstep::comm {

/// Open MPI's lists of network interfaces, from the environment; nullopt: not set. Like every reader of the
/// environment, it must not run concurrently with MPI's start, which writes there.
struct InterfaceLists {
  static InterfaceLists from_environment();
  std::optional<std::string> include, exclude;
};

/// The end of a message about ranks that do not reach each other: "this host has the interfaces eth0, ib0", and the
/// fault in Open MPI's list of interfaces, if there is one.
std::string network_hint(const InterfaceLists& lists = InterfaceLists::from_environment());

/// Ends the process with exit code 1 and one line if `call` has not returned after `seconds`. The line names a folder
/// that MPI needs and cannot use, if there is one. Rank 0 prints it; the others wait a second or more longer, so that
/// the launcher can end them first.
class StartGuard {
 public:
  StartGuard(const char* call, double seconds);
  /// Call it after the call has returned.
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  void watch(const std::stop_token& stop, const char* call, double seconds);

  int rank_;  ///< this and the next three members: state of the environment before the call
  InterfaceLists lists_;
  std::vector<StartFolder> folders_;
  double turn_;          ///< seconds that this rank waits longer than rank 0
  void (*before_)(int);  ///< earlier handler of SIGCONT
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
