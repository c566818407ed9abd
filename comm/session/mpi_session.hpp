/// \file
/// The world of this process, and the owner of MPI if it is used: MPI_Init_thread in the constructor, MPI_Finalize in
/// the destructor.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// A failure of the world: a peer died, stopped or broke the protocol. The text names rank, host, pid and its activity.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class MpiSession {
 public:
  /// Initialises MPI. A process without a launcher is a world of one and does not use MPI: MPI would create a folder
  /// for it, under a name that processes started at the same moment may share. MPI removes its arguments from
  /// argc/argv. Throws PeerError if MPI cannot start. If ranks do not come, or do not reach each other, within
  /// `start_limit` seconds (> 0), this process reports that and ends (see abort).
  MpiSession(int& argc, char**& argv, double start_limit = 60);
  /// Finalises MPI if it was initialised. All communicators must be destroyed before.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& host() const noexcept;
  /// Non-empty if srun has started several processes without a way to find each other. The caller prints it before MPI
  /// starts, because MPI would end each process with a message of its own.
  static std::string launch_obstacle();
  /// Non-empty if a launcher has started several processes but MPI sees a world of one (srun without a PMI that this
  /// MPI supports, the mpirun of another MPI): a message for users. Otherwise each process would do the whole job, into
  /// one folder.
  std::string launch_error() const;
  /// Non-empty if Slurm gave several tasks to this job and the program was started only once, by hand: a warning for
  /// users.
  std::string launch_warning() const;

  /// Collective: a session of the first `ranks` of these ranks (1 … size()), with the same rank numbers; nullptr on the
  /// others. It ends before this one, without ending MPI; abort() ends all ranks of the job. Throws PeerError; a rank
  /// that does not come ends the job after `limit` seconds.
  std::unique_ptr<MpiSession> subset(int ranks, double limit);
  /// Collective: every rank names its group, `ranks` neighbours from rank `first` on, and gets a session of them,
  /// numbered from 0 on; messages use their numbers in this session. It ends, and fails, like a subset.
  std::unique_ptr<MpiSession> group(int first, int ranks, double limit);

  /// Collective over `ranks`, ascending and including this one, after all others have died: a session of them, numbered
  /// from 0 on, also in messages. MPI can no longer be finalised: the end of this session ends the process.
  std::unique_ptr<MpiSession> survivors(const std::vector<int>& ranks, double limit);
  /// "rank 1 (host node2, pid 4711)"
  std::string describe(int rank) const;

  /// Handles a failure: if all ranks know of it, reports it and returns the exit code; otherwise ends the job (abort).
  /// Any thread may call it; a second call reports nothing and returns the same code.
  using FailureHandler = std::function<int(const std::exception_ptr&)>;
  /// Call it before any thread can fail. Without a handler, failures are only thrown.
  void set_failure_handler(FailureHandler handler);
  /// Runs `work` and returns its exit code. From then on the process ends with this code, even if a destructor or
  /// MPI_Finalize hangs (set_end_limit). A failure goes to the handler first, then it is thrown: the message comes
  /// before destructors run, which have 30 s. May be nested.
  int conclude(const std::function<int()>& work);
  /// For a thread that cannot unwind a stuck one: calls the handler and ends this process. An exit code that conclude()
  /// has returned stays; `error` is then a warning.
  [[noreturn]] void end_in_failure(const std::exception_ptr& error) noexcept;
  /// Time limit in seconds for destructors and MPI_Finalize after the work; initially 10 minutes, because ranks may end
  /// minutes apart (one flushes its files), but not hours.
  void set_end_limit(double seconds) noexcept;

  /// Prints `message` on stderr and ends every rank with `exit_code`. Never returns and never hangs (if MPI_Abort does
  /// not end this process within a second, _exit does). If several ranks fail together, one reports at once
  /// (Suspects::speaks_first), and the others 1 s and more later if they still live: one line per job. If several
  /// threads call it, the first ends the process.
  [[noreturn]] void abort(int exit_code, std::string_view message) noexcept;

  struct State;  ///< holds the MPI handles; defined in comm/session/mpi_state.hpp, private to comm/
  State& state() noexcept { return *state_; }

 private:
  explicit MpiSession(std::unique_ptr<State> state);
  std::unique_ptr<MpiSession> part(bool member, int first, int ranks, double limit);
  /// Returns after all ranks have answered; throws PeerError.
  void rendezvous(double limit);
  void settle(int exit_code);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::comm
