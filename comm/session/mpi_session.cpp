#include "comm/session/mpi_session.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/session/backoff.hpp"
#include "comm/session/descriptor_limit.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/rendezvous.hpp"
#include "comm/session/start_folders.hpp"
#include "comm/session/start_guard.hpp"
#include "comm/session/supervisor.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

constexpr std::chrono::seconds kFinalizeUnderHydra{2};  ///< limit for MPI_Finalize after a barrier

/// Time limit for destructors after a failure.
constexpr std::chrono::seconds kUnwindLimit{30};
/// Seconds by which ranks that know the missing one report before those that only wait.
constexpr double kPrecedence = 6;

/// Sets Open MPI variables, unless the user has set them.
void set_mpi_defaults() {
  // Most containers forbid direct copies from another rank's memory (CMA), and each refusal prints a warning.
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  // If this MPI does not find the peers that a launcher offers, each process is a world of its own and needs no daemon.
  setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
  // Bytes read from a socket at a time. The default, 30 KiB, is half a segment of the ring. Two segments are 7 % faster
  // between two hosts limited by their cores; more segments are no faster.
  setenv("OMPI_MCA_btl_tcp_endpoint_cache", "131072", 0);
  // Suppress warnings, one per rank, about hardware that is present but unused.
  setenv("OMPI_MCA_btl_base_warn_component_unused", "0", 0);
  setenv("OMPI_MCA_btl_openib_warn_no_device_params_found", "0", 0);
  setenv("OMPI_MCA_opal_warn_on_missing_libcuda", "0", 0);
}

/// True if srun, not mpirun, has started this process. Call it before MPI_Init, which sets variables of its own.
bool started_by_srun() {
  return std::getenv("PMIX_NAMESPACE") && std::getenv("SLURM_STEP_ID") && !std::getenv("OMPI_COMM_WORLD_SIZE");
}
/// With PMIx from srun a rank may leave MPI_Init before its peers can receive. Its first message then makes them jump
/// to an invalid address: 13 of 80 starts of six ranks on three hosts (Open MPI 4.1.4, Slurm 22.05). With this delay 0
/// of 30 starts failed.
constexpr std::chrono::milliseconds kUntilPeersReceive{200};

/// If its start fails, Open MPI ends the process with a message that does not name the cause. So one rank per host
/// warns of it before the start.
void warn_of_full_folders() {
  if (number_in("OMPI_COMM_WORLD_LOCAL_RANK") != 0) return;
  std::vector<StartFolder> folders = start_folders();
  std::erase_if(folders, [](const StartFolder& folder) { return !folder.is_needed; });
  const std::string obstacle = obstacle_in(folders);
  if (obstacle.empty()) return;
  write_stderr(fmt::format("warning: MPI may not start on {}: {}\n", host_name(), obstacle));
}

/// Hydra drops output that it has not read when it ends a job: 2 of some 100 messages were lost, none with this delay.
constexpr std::chrono::milliseconds kUntilHydraHasRead{100};

/// Descriptor of a pipe to slurm/stop_in_time, used under launchers that do not pass on the exit code.
constexpr int kExitCodeDescriptor = 3;

/// Writes the exit code to the pipe as soon as the work is done, because this process may then wait for dead ranks.
void leave_exit_code(int exit_code) {
  const char* const pipe = std::getenv("LOCKSTEP_EXIT_CODE_PIPE");
  if (pipe == nullptr) return;
  std::error_code closed;  // set if the pipe is closed
  const auto open = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", kExitCodeDescriptor), closed);
  if (closed || open != pipe) return;
  const std::string word = fmt::format("code {}\n", exit_code);
  if (write(kExitCodeDescriptor, word.data(), word.size()) != static_cast<ssize_t>(word.size())) {
    write_stderr(fmt::format("lockstep: warning: the launcher cannot be told the exit code, {}\n", exit_code));
  }
}

/// Ends the process after `limit`, even if it is stuck; prints `words` first.
void end_process_after(std::chrono::duration<double> limit, int exit_code, std::string words = "") {
  std::thread([limit, exit_code, words = std::move(words)] {
    std::this_thread::sleep_for(limit);
    write_stderr(words);
    _exit(exit_code);
  }).detach();
}

/// Does for the ranks of this machine what MPI_Abort does elsewhere. SIGCONT ends ranks that wait for their turn to
/// report, without output. A second later SIGKILL ends all others.
void end_neighbours(const PeerTable& peers, int own_rank) {
  constexpr std::chrono::milliseconds kBetween{50};
  constexpr int kRounds = 20;
  for (int round = 0; round <= kRounds; ++round) {
    for (int rank = 0; rank < peers.size(); ++rank) {
      const ProcessState state = rank == own_rank ? ProcessState::gone : peers.process_state(rank);
      const bool runs = state == ProcessState::running || state == ProcessState::blocked;
      if (round == kRounds && (runs || state == ProcessState::stopped)) kill(peers.info(rank).pid, SIGKILL);
      if (round < kRounds && runs) kill(peers.info(rank).pid, SIGCONT);
    }
    if (round < kRounds) std::this_thread::sleep_for(kBetween);
  }
}

/// The exit code of a process that waits for its turn to report. Static, because a signal handler can reach only static
/// storage; atomic, because it may run in any thread.
std::atomic<int> silent_exit_code = 1;
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

void check(int code, const char* call, const MpiSession::State& state, int peer) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  state.suspects->mark_lost_peer();
  throw MpiCallError(fmt::format(
      "{} failed on rank {} (host {}, pid {}){}: {}", call, state.first_rank + state.rank, state.host, getpid(),
      peer < 0 ? "" : fmt::format(" talking to rank {}", state.first_rank + peer),
      length > 0 ? std::string(text, static_cast<std::size_t>(length)) : fmt::format("error code {}", code)));
}

namespace {

/// Duplicates a communicator without blocking inside MPI: ranks wait for each other several times in it, so each waits
/// with Backoff. The duplicate inherits the error handler.
void duplicate(MPI_Comm from, MPI_Comm& to, const MpiSession::State& state) {
  using std::chrono::microseconds;
  constexpr const char* kCall = "MPI_Comm_idup";
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Comm_idup(from, &to, &request), kCall, state);
  Backoff backoff({.spin = {}, .yield = microseconds(1000), .sleep = microseconds(100), .ceiling = microseconds(1000)});
  for (int done = 0;;) {
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), kCall, state);
    if (done != 0) return;
    backoff.pause();
  }
}

}  // namespace

void call_back(std::span<MPI_Request> receives) noexcept {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (MPI_Request& request : receives) {
    if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
  }
  for (MPI_Request& request : receives) {
    for (int done = 0; request != MPI_REQUEST_NULL;) {
      if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) break;
      if (std::chrono::steady_clock::now() >= end) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
}

LeaveTaking::Entry LeaveTaking::add(std::function<void()> farewell) {
  const std::lock_guard lock(mutex_);
  return farewells_.insert(farewells_.end(), std::move(farewell));
}

void LeaveTaking::remove(Entry entry) {
  const std::lock_guard lock(mutex_);
  farewells_.erase(entry);
}

void LeaveTaking::say_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& farewell : farewells_) farewell();
}

void KeptMemory::add(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  memory_.push_back(std::move(memory));
}

MpiSession::MpiSession(int& argc, char**& argv, double start_limit) : state_(std::make_unique<State>()) {
  state_->host = host_name();
  if (!launcher_offers_peers()) {
    state_->peers.push_back(own_info());
    return;
  }
  int initialized = 0;
  check(MPI_Initialized(&initialized), "MPI_Initialized", *state_);
  if (initialized) throw PeerError("MPI can be started once per process, and it was already");
  run_under_supervisor();
  set_mpi_defaults();
  raise_descriptor_limit();
  warn_of_full_folders();
  const bool by_srun = started_by_srun();
  // One thread at a time calls MPI: the main thread; during its declared long operations, the heartbeat thread; during
  // its computation, the thread that sums between hosts. Prefetch and compute threads never do.
  int provided = 0;
  {
    const StartGuard guard("MPI_Init_thread", start_limit);
    check(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread", *state_);
  }
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", *state_);
  check(MPI_Comm_rank(MPI_COMM_WORLD, &state_->rank), "MPI_Comm_rank", *state_);
  check(MPI_Comm_size(MPI_COMM_WORLD, &state_->size), "MPI_Comm_size", *state_);
  if (provided < MPI_THREAD_SERIALIZED) {
    throw PeerError(
        "this MPI library cannot be called from more than one thread (MPI_THREAD_SERIALIZED): "
        "rebuild it with thread support");
  }
  state_->yield = std::make_shared<MpiYield>();
  if (by_srun && state_->size > 1) std::this_thread::sleep_for(kUntilPeersReceive);
  try {
    rendezvous(start_limit);
  } catch (const PeerError& error) {
    abort(1, fmt::format("lockstep: error on rank {} ({}): {}", rank(), host(), error.what()));
  }
}

void MpiSession::rendezvous(double limit) {
  // Point-to-point messages first, because they can name a silent rank; collectives only after all ranks have answered.
  struct Words {
    PeerInfo info;
    WatchAddress address;
  };
  state_->data = MPI_COMM_WORLD;
  Words own{.info = own_info(), .address = {}};
  if (size() > 1) {
    state_->connections = std::make_shared<ConnectionWatch>(rank(), own.info.machine);
    own.address = state_->connections->address();
    std::vector<WatchAddress> addresses;
    try {
      for (const Words& theirs : exchange(*this, own, limit)) {
        state_->peers.push_back(theirs.info);
        addresses.push_back(theirs.address);
      }
    } catch (const PeerError& error) {
      throw PeerError(fmt::format("{} ({})", error.what(), network_hint()));
    }
    state_->connections->join(addresses);
  } else {
    state_->peers.push_back(own.info);
  }
  const StartGuard guard("MPI_Comm_idup", limit + kPrecedence);
  MPI_Comm data = MPI_COMM_NULL;
  duplicate(MPI_COMM_WORLD, data, *state_);
  state_->data = data;
  duplicate(MPI_COMM_WORLD, state_->status, *state_);
}

MpiSession::MpiSession(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<MpiSession> MpiSession::subset(int ranks, double limit) {
  if (ranks < 1 || ranks > size()) {
    throw std::invalid_argument(fmt::format("a session of {} of {} ranks", ranks, size()));
  }
  return part(rank() < ranks, 0, ranks, limit);
}

std::unique_ptr<MpiSession> MpiSession::group(int first, int ranks, double limit) {
  if (first < 0 || ranks < 1 || first + ranks > size() || rank() < first || rank() >= first + ranks) {
    throw std::invalid_argument(
        fmt::format("a group of the ranks {} to {} for rank {} of {}", first, first + ranks - 1, rank(), size()));
  }
  return part(true, first, ranks, limit);
}

std::unique_ptr<MpiSession> MpiSession::part(bool member, int first, int ranks, double limit) {
  MPI_Comm part = MPI_COMM_NULL;
  const StartGuard guard("MPI_Comm_split", limit);
  const std::lock_guard lock(*state_->mpi);
  if (state_->uses_mpi()) {
    const MpiYield::WhileBlocking yields(state_->yield.get());
    check(MPI_Comm_split(state_->data, member ? first : MPI_UNDEFINED, rank(), &part), "MPI_Comm_split", *state_);
  }
  if (!member) return nullptr;
  auto state = std::make_unique<State>();
  state->rank = rank() - first;
  state->size = ranks;
  state->first_rank = state_->first_rank + first;
  state->host = state_->host;
  state->peers.assign(state_->peers.begin() + first, state_->peers.begin() + first + ranks);
  state->connections = state_->connections;
  state->leave_taking = state_->leave_taking;
  state->kept = state_->kept;
  state->mpi = state_->mpi;
  state->yield = state_->yield;
  state->suspects = state_->suspects;
  state->failure_handler = state_->failure_handler;
  state->is_subset = true;
  if (!state_->uses_mpi()) return std::unique_ptr<MpiSession>(new MpiSession(std::move(state)));
  state->data = part;
  duplicate(part, state->status, *state);
  return std::unique_ptr<MpiSession>(new MpiSession(std::move(state)));
}

std::unique_ptr<MpiSession> MpiSession::survivors(const std::vector<int>& ranks, double limit) {
  constexpr int kSurvivorsTag = 91;  // used by no collective
  const StartGuard guard("MPI_Comm_create_group", limit);
  const std::lock_guard lock(*state_->mpi);
  MPI_Group all = MPI_GROUP_NULL, living = MPI_GROUP_NULL;
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_group(state_->data, &all), "MPI_Comm_group", *state_);
  check(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &living), "MPI_Group_incl", *state_);
  {
    const MpiYield::WhileBlocking yields(state_->yield.get());
    check(MPI_Comm_create_group(state_->data, living, kSurvivorsTag, &part), "MPI_Comm_create_group", *state_);
  }
  MPI_Group_free(&living);
  MPI_Group_free(&all);
  state_->has_lost_ranks = true;
  auto state = std::make_unique<State>();
  state->size = static_cast<int>(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] == rank()) state->rank = static_cast<int>(i);
    state->peers.push_back(state_->peers[static_cast<std::size_t>(ranks[i])]);
  }
  state->host = state_->host;
  state->survivors = ranks;
  state->connections = state_->connections;
  state->leave_taking = state_->leave_taking;
  state->kept = state_->kept;
  state->mpi = state_->mpi;
  state->yield = state_->yield;
  state->is_subset = true;
  state->data = part;
  duplicate(part, state->status, *state);
  return std::unique_ptr<MpiSession>(new MpiSession(std::move(state)));
}

std::string MpiSession::describe(int rank) const { return PeerTable(this->rank(), state_->peers).describe(rank); }

MpiSession::~MpiSession() {
  if (!state_->uses_mpi()) return;
  if (state_->is_subset) {
    const std::lock_guard lock(*state_->mpi);
    MPI_Comm_free(&state_->data);
    MPI_Comm_free(&state_->status);
    return;
  }
  settle(1);  // no effect after conclude()
  state_->connections.reset();
  if (state_->has_lost_ranks) {  // MPI_Finalize would wait for the lost ranks
    std::fflush(nullptr);
    _exit(*state_->exit_code);
  }
  MPI_Comm_free(&state_->data);
  MPI_Comm_free(&state_->status);
  state_->yield.reset();
  // With MPICH 4.0 and UCX over TCP, in half of all jobs some ranks' MPI_Finalize waits for peers that already wait.
  if (launched_by_hydra() && MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS) {
    std::fflush(nullptr);
    end_process_after(kFinalizeUnderHydra, *state_->exit_code);
  }
  if (MPI_Finalize() != MPI_SUCCESS) write_stderr("lockstep: MPI_Finalize reported an error\n");
}

int MpiSession::rank() const noexcept { return state_->rank; }
int MpiSession::size() const noexcept { return state_->size; }
const std::string& MpiSession::host() const noexcept { return state_->host; }

std::string MpiSession::launch_obstacle() {
  if (launcher_offers_peers()) return "";
  const std::optional<std::string> variable = launched_size_variable();
  return variable && number_in(*variable) > 1 ? each_alone(*variable, mpi_library_version()) : "";
}

std::string MpiSession::launch_error() const {
  if (state_->size > 1) return "";
  const std::optional<std::string> variable = launched_size_variable();
  return variable && number_in(*variable) > 1 ? each_alone(*variable, mpi_library_version()) : "";
}

std::string MpiSession::launch_warning() const {
  if (state_->size > 1 || launched_size_variable()) return "";  // started by a launcher: launch_error() decides
  const long tasks = number_in("SLURM_NTASKS");
  if (tasks <= 1) return "";
  return fmt::format(
      "MPI sees a world of one, but SLURM_NTASKS={}: only this one process was started. Start the job with "
      "`mpirun` inside the sbatch script, or with `srun --mpi=pmix`.",
      tasks);
}

// The end -------------------------------------------------------------------------------------------------------------

void MpiSession::set_failure_handler(FailureHandler handler) { state_->failure_handler = std::move(handler); }

void MpiSession::set_end_limit(double seconds) noexcept { state_->end_limit = seconds; }

/// Sets the exit code and the time limit for the end. Only the first call has an effect.
void MpiSession::settle(int exit_code) {
  {
    const std::lock_guard lock(state_->ending);
    if (state_->exit_code) return;
    state_->exit_code = exit_code;
  }
  // The limits are staggered: when the first rank has reported and ended, the launcher ends those that still wait.
  const double limit = state_->end_limit + precedence_seconds(rank() == 0, rank());
  try {
    end_process_after(
        std::chrono::duration<double>(limit), exit_code,
        fmt::format("warning: rank {} (host {}, pid {}) is done, but some rank has not come to the end of "
                    "the job for {} s. Ending with exit code {}, as the work did.\n",
                    rank(), host(), getpid(), seconds_text(state_->end_limit), exit_code));
  } catch (const std::exception&) {  // no thread available: no limit
  }
}

int MpiSession::conclude(const std::function<int()>& work) {
  try {
    const int exit_code = work();
    if (rank() == 0) leave_exit_code(exit_code);
    settle(exit_code);
    return exit_code;
  } catch (...) {
    if (state_->failure_handler) {
      const int exit_code = state_->failure_handler(std::current_exception());
      if (rank() == 0) leave_exit_code(exit_code);
      end_process_after(kUnwindLimit, exit_code);
    }
    throw;
  }
}

void MpiSession::end_in_failure(const std::exception_ptr& error) noexcept {
  std::optional<int> exit_code;
  {
    const std::lock_guard lock(state_->ending);
    exit_code = state_->exit_code;
  }
  if (!exit_code) _exit(state_->failure_handler ? state_->failure_handler(error) : 1);
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& late) {
    write_stderr(fmt::format("warning: rank {} (host {}) is done, but {}. Ending with exit code {}, as the work did.\n",
                             rank(), host(), late.what(), *exit_code));
  }
  _exit(*exit_code);
}

void MpiSession::abort(int exit_code, std::string_view message) noexcept {
  // All survivors of a failure come here at about the same time. One reports. The others give it time to end the job,
  // each a little longer than the previous one, and report only if the job still lives. When the job ends, or the
  // launcher itself has seen a death, Open MPI's daemons send SIGCONT, then SIGTERM. To the waiting ranks, SIGCONT
  // means that another one reports; the reporting rank ignores both signals until its line is out.
  if (state_->aborts.exchange(true)) {
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  constexpr std::chrono::milliseconds limit{1000};
  const bool speaks_first = state_->suspects->speaks_first(state_->rank, state_->size);
  const std::chrono::milliseconds delay(static_cast<int>(1000 * precedence_seconds(speaks_first, state_->rank)));
  std::signal(SIGTERM, speaks_first ? SIG_IGN : SIG_DFL);  // too late for an orderly stop
  silent_exit_code = exit_code;
  if (!speaks_first) std::signal(SIGCONT, [](int) { _exit(silent_exit_code); });
  try {
    end_process_after(delay + 3 * limit, exit_code);
    if (state_->connections) state_->connections->take_leave();
    state_->leave_taking->say_all();
    std::this_thread::sleep_for(delay);
    std::string line(message);
    if (!line.ends_with('\n')) line += '\n';
    write_stderr(line);
    if (launched_by_hydra()) std::this_thread::sleep_for(kUntilHydraHasRead);
    if (launcher_spares_survivors()) {
      end_neighbours(PeerTable(state_->rank, state_->peers, state_->first_rank), state_->rank);
    }
    std::signal(SIGTERM, SIG_DFL);
    end_process_after(limit, exit_code);
    if (state_->uses_mpi()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  } catch (...) {  // out of memory or threads: the exit code still ends the job
  }
  _exit(exit_code);
}

}  // namespace lockstep::comm
