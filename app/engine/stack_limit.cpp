#include "app/engine/stack_limit.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "comm/session/deadline.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::app {
namespace {

/// Training segfaults with 128 KiB, and runs with 160 KiB on one host; the needs of MPI and CUDA on others are unknown.
constexpr rlim_t kMinStack = rlim_t{1} << 20;
constexpr rlim_t kUsualStack = rlim_t{8} << 20;

}  // namespace

void require_stack(char** argv) {
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kMinStack) return;
  const rlim_t found = limit.rlim_cur;
  if (limit.rlim_max >= kMinStack) {
    limit.rlim_cur = std::min(limit.rlim_max, kUsualStack);
    if (setrlimit(RLIMIT_STACK, &limit) == 0) execv("/proc/self/exe", argv);
  }
  const int rank = comm::launched_rank().value_or(0);
  // All ranks of a host reach this line; the first rank that reports ends the job.
  std::this_thread::sleep_for(std::chrono::duration<double>(comm::precedence_seconds(rank == 0, rank)));
  comm::write_stderr(
      fmt::format("lockstep: error: the stack of a process may have {} KiB here, and 1024 are needed: raise the limit "
                  "before the start (ulimit -s 8192; a service or a batch system has a setting of its own)\n",
                  found / 1024));
  _exit(1);
}

}  // namespace lockstep::app
