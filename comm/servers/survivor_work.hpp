/// \file
/// Collective work during which ranks may die. The survivors repeat it until all of them have done it.
///
/// RANK 0 JUDGES. At the end of the work, or after a collective has failed because of a death, each rank sends a report
/// to rank 0. After the reports of all living ranks, rank 0 sends them the dead ranks and the verdict: done or to be
/// repeated. The communicator then continues without the dead. This takes two messages per rank. The job cannot
/// continue without rank 0.
///
/// DEATHS SEEN ELSEWHERE. A rank in a collective may wait for a living rank that has given the collective up. So a rank
/// that sees a death reports it to rank 0, and rank 0 forwards it to every rank that has not reported yet. Ranks that
/// wait in a collective look for this message every 0.1 s (CommunicatorOptions::while_waiting) and give up, too. A
/// silent rank does not count as dead: rank 0 waits for every rank not known dead.
///
/// REPETITION. A death during a repetition causes another one. Rank 0 judges half a second after the last death,
/// because several ranks often die together. A death in the few milliseconds after that, while the survivors make their
/// communicator, ends the job after the deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "comm/servers/host_window.hpp"
#include "comm/servers/server_messages.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

class SurvivorWork {
 public:
  struct Options {
    /// Time for which rank 0 waits for a report, and the others for the verdict, unless a rank is busy.
    std::function<double()> limit_seconds = [] { return 60.0; };
    std::function<bool(int)> dispensable;  ///< true if the others can continue without this rank of the session
  };
  /// Collective. All outlive this.
  SurvivorWork(MpiSession& session, SurvivorCommunicator& communicator, HostWindow& window, Options options);
  ~SurvivorWork();
  SurvivorWork(const SurvivorWork&) = delete;
  SurvivorWork& operator=(const SurvivorWork&) = delete;

  /// Collective over the survivors; nothing else of theirs may be under way. Runs `work`, possibly several times; it
  /// uses the collectives of the communicator. Returns the session's ranks that have died; the communicator continues
  /// without them. Throws what `work` throws, or PeerError if the others cannot continue.
  ///
  /// `known_dead`: dead ranks of the session, the same on all ranks. They are left out from the start. Other dead ranks
  /// are found.
  std::vector<int> run(const std::function<void()>& work, const std::vector<int>& known_dead = {});

 private:
  bool attempt(const std::function<void()>& work);
  bool somebody_has_died();
  void watch_while_waiting();
  void find_deaths();
  void add_dead(const std::vector<int>& ranks);
  bool all_are_dispensable() const;
  void expect_dispensable();
  void take_in();
  void report_deaths();
  std::vector<int> awaited() const;
  bool judge();
  bool request_verdict();
  void send(int peer, MessageKind kind);
  bool watch_peers();
  void receive_until(const std::function<bool()>& enough);
  bool judges() const { return session_.rank() == 0; }

  MpiSession& session_;
  SurvivorCommunicator& communicator_;
  Options options_;
  ServerMessages messages_;
  MessageWait waiting_;
  std::exception_ptr error_;  ///< exception that ended the work
  // State of this attempt. While a collective is under way, it belongs to the thread that drives the collective.
  std::int64_t attempt_ = 0;  ///< number of the attempt, from 1 on, the same on all ranks
  bool working_ = false;      ///< the work is still running here
  bool whole_ = true;         ///< this rank has done the work; on rank 0: so have all ranks that have reported
  std::set<int> dead_;        ///< ranks that this rank has seen or been told to be dead
  std::chrono::steady_clock::time_point last_death_;
  std::size_t reported_deaths_ = 0;  ///< number of deaths reported so far
  std::set<int> reported_;           ///< rank 0: ranks that have reported
  std::optional<bool> verdict_;      ///< the other ranks: the work is done
};

}  // namespace lockstep::comm
