/// \file
/// The world that this process belongs to. Owner of MPI, where there is one: MPI_Init_thread in the constructor,
/// MPI_Finalize in the destructor.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// The world failed: a peer died, stopped or broke the protocol. The text names rank, host, pid and what it was doing.
class PeerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class MpiSession {
 public:
  /// Initialises MPI. A process that no launcher has started is a world of one and does without: MPI would make a
  /// folder for it, under a name that processes started at the same moment may share. argc/argv lose what MPI took from
  /// them. Throws PeerError when MPI cannot start. Where ranks do not come or do not reach each other within
  /// `start_limit` seconds (> 0) this process says so and ends (see abort).
  MpiSession(int& argc, char**& argv, double start_limit = 60);
  /// Finalises MPI where it was initialised. All communicators must be gone by then.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& host() const noexcept;
  /// Non-empty when srun has started several processes and offers them nothing to find each other by: said before MPI
  /// is started, which would end each of them with words of its own.
  static std::string launch_obstacle();
  /// Non-empty when a launcher has started several processes and yet MPI sees a world of one (srun without a PMI that
  /// this MPI knows, the mpirun of another MPI): what to tell the user. Each would do the whole job, into one folder.
  std::string launch_error() const;
  /// Non-empty when Slurm gave several tasks to this job and the program was started once, by hand: the sentence to
  /// warn the user with.
  std::string launch_warning() const;

  /// Collective: a session of the first `ranks` of these ranks (1 … size()), with the same rank numbers; nullptr on the
  /// others. It ends without ending MPI, before this one does; abort() ends all ranks of the job. Throws PeerError; a
  /// rank that does not come ends the job after `limit` seconds.
  std::unique_ptr<MpiSession> subset(int ranks, double limit);
  /// Collective: every rank names the group that it belongs to, `ranks` neighbours from rank `first` on, and gets a
  /// session of these, in which they have the numbers from 0 on; messages name them by their numbers in this one. Ends,
  /// and fails, as a subset.
  std::unique_ptr<MpiSession> group(int first, int ranks, double limit);

  /// Collective over `ranks`, ascending, this one among them, after all others have died: a session of these, which
  /// have the numbers from 0 on, in messages, too. MPI cannot be finalised any more: this session's end ends the
  /// process.
  std::unique_ptr<MpiSession> survivors(const std::vector<int>& ranks, double limit);
  /// "rank 1 (host node2, pid 4711)"
  std::string describe(int rank) const;

  /// What is done about a failure: says it and returns the exit code where all ranks know of it, else ends the job
  /// (abort). From any thread; called twice it says nothing more and returns the same.
  using FailureHandler = std::function<int(const std::exception_ptr&)>;
  /// Before any thread can fail. Without one, failures are only thrown.
  void set_failure_handler(FailureHandler handler);
  /// Runs `work` and returns the exit code that it returns; from here on the process ends with that one, also where a
  /// destructor or MPI_Finalize does not return (set_end_limit). Of a failure the handler hears first, then it is
  /// thrown: who gives up says the sentence before destructors run, and they have 30 s. May be nested.
  int conclude(const std::function<int()>& work);
  /// For a thread that cannot unwind the one that is stuck: the handler, and the end of this process. What conclude()
  /// has returned stays the exit code; `error` is a warning then.
  [[noreturn]] void end_in_failure(const std::exception_ptr& error) noexcept;
  /// Seconds that destructors and MPI_Finalize have when the work is done; 10 minutes at first: ranks may end minutes
  /// apart (one flushes its files), not hours.
  void set_end_limit(double seconds) noexcept;

  /// Says `message` on stderr and ends every rank with `exit_code`. Never returns; never hangs (if MPI_Abort does
  /// not end this process within a second, _exit does). When several ranks fail together one speaks at once
  /// (Suspects::speaks_first) and the others 1 s and more later, should they still live then: one line per job. Of
  /// several threads that call it the first ends the process.
  [[noreturn]] void abort(int exit_code, std::string_view message) noexcept;

  struct State;  ///< holds the MPI handles; defined in comm/mpi_state.hpp, private to comm/*.cpp
  State& state() noexcept { return *state_; }

 private:
  explicit MpiSession(std::unique_ptr<State> state);
  std::unique_ptr<MpiSession> part(bool member, int first, int ranks, double limit);
  /// Until all ranks have been heard; throws PeerError.
  void rendezvous(double limit);
  void settle(int exit_code);

  std::unique_ptr<State> state_;
};

}  // namespace lockstep::comm
