#include "comm/session/supervisor.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/session/launcher.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

/// Time for the other ranks to see a death and to end the job themselves. Computing ranks check less often.
constexpr std::chrono::seconds kForTheOthers{6};

/// Waits for the rank's end and returns its status. Passes all signals on to the rank meanwhile.
int wait_for_end(pid_t rank, const sigset_t& all) {
  for (;;) {
    siginfo_t info{};
    const int signal = sigwaitinfo(&all, &info);
    if (signal > 0 && signal != SIGCHLD) kill(rank, signal);
    int status = 0;
    const pid_t ended = signal == SIGCHLD ? waitpid(rank, &status, WNOHANG) : 0;
    if (ended == rank) return status;
    if (ended < 0) return W_EXITCODE(1, 0);  // it has ended with an unknown status
  }
}

[[noreturn]] void supervise(pid_t rank, const sigset_t& all) {
  const int status = wait_for_end(rank, all);
  if (!WIFSIGNALED(status)) _exit(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  const timespec limit{.tv_sec = kForTheOthers.count(), .tv_nsec = 0};
  const bool told_to_end = sigtimedwait(&all, nullptr, &limit) > 0;  // killing the job signals this process, too
  if (!told_to_end) {
    write_stderr(
        fmt::format("lockstep: rank {} (host {}, pid {}) has been ended by signal {} ({}). Its host's system "
                    "log may say why (out of memory?). Ending the job.\n",
                    launched_rank().value_or(0), host_name(), rank, signal, strsignal(signal)));
  }
  _exit(128 + signal);
}

}  // namespace

void run_under_supervisor() {
  if (!launched_by_hydra()) return;
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  std::signal(SIGCHLD, SIG_DFL);  // without this, an ignored SIGCHLD would hide the end
  std::fflush(nullptr);           // avoids duplicate output
  const pid_t parent = getpid(), rank = fork();
  if (rank > 0) supervise(rank, all);
  if (rank == 0) {
    setpgid(0, 0);  // Hydra signals groups: the rank gets each signal once, from its parent
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace lockstep::comm
