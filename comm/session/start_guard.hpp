/// \file
/// The time that MPI gets to come up. Inside MPI_Init_thread, and wherever it makes a communicator, MPI waits for all
/// ranks by itself, without a limit: a rank that is stopped, or a network that swallows packets, would hold the others
/// for ever.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace lockstep::comm {

/// Open MPI's lists of network interfaces, as the environment has them; nullopt: not set. Like every reader of the
/// environment it must not run beside MPI's start, which writes there.
struct InterfaceLists {
  static InterfaceLists from_environment();
  std::optional<std::string> include, exclude;
};

/// "this host has the interfaces eth0, ib0", and what is wrong with Open MPI's list of those to use, if anything is:
/// the end of a message about ranks that do not reach each other.
std::string network_hint(const InterfaceLists& lists = InterfaceLists::from_environment());

/// Ends the process with exit code 1 and one line when `call` has not returned after `seconds`. The line is rank 0's;
/// the others wait a second and more for the launcher to end them.
class StartGuard {
 public:
  StartGuard(const char* call, double seconds);
  /// The call has returned.
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  void watch(const std::stop_token& stop, const char* call, double seconds);

  int rank_;  ///< these two as the environment had them before the call
  InterfaceLists lists_;
  void (*before_)(int);  ///< what SIGCONT did
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;
};

}  // namespace lockstep::comm
