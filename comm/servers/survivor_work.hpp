/// \file
/// Work that all ranks do together and that some may die in: those who live do it again, until all of them have done
/// it.
///
/// RANK 0 JUDGES. Where a rank has come to the end of the work it says so to rank 0, and where a collective has failed
/// because a rank has died, too. When rank 0 has heard all who live, it tells them who has died, and whether the work
/// is done or to be done again; the communicator goes on without the dead. Two messages per rank. Nobody can do without
/// rank 0.
///
/// DEATHS SEEN ELSEWHERE. A rank in a collective may wait for one that lives and has given the collective up. A rank
/// that sees a death tells rank 0, and rank 0 tells every rank that has not spoken yet; ranks that wait in a collective
/// look for that word every 0.1 s (CommunicatorOptions::while_waiting) and give up, too. No rank counts as dead for
/// being silent: rank 0 waits for every rank not known dead.
///
/// AGAIN. A death while the work is repeated makes the next repetition. Before it judges, rank 0 waits for half a
/// second from the last death on: several often die together. One that comes in the few milliseconds after that, in
/// which those who are left make their communicator, ends the job after the deadline.
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
    /// Rank 0 waits so long for a word, or the others for its, while nobody says that it is busy.
    std::function<double()> limit_seconds = [] { return 60.0; };
    std::function<bool(int)> dispensable;  ///< the others can go on without this rank of the job
  };
  /// Collective. All outlive this.
  SurvivorWork(MpiSession& session, SurvivorCommunicator& communicator, HostWindow& window, Options options);
  ~SurvivorWork();
  SurvivorWork(const SurvivorWork&) = delete;
  SurvivorWork& operator=(const SurvivorWork&) = delete;

  /// Collective over those who live, when nothing else of theirs is under way. Runs `work`, whose collectives are those
  /// of the communicator, and which may be run again. Returns the ranks of the job that have died in it; the
  /// communicator goes on without them. Throws what `work` throws, and PeerError where the others cannot go on.
  /// Ranks of the job that are known to have died on all ranks alike are left out before; others that have are found.
  std::vector<int> run(const std::function<void()>& work, const std::vector<int>& known_dead = {});

 private:
  bool attempt(const std::function<void()>& work);
  bool somebody_has_died();
  void look_while_waiting();
  void look_for_the_dead();
  void add_dead(const std::vector<int>& ranks);
  bool all_are_dispensable() const;
  void expect_dispensable();
  void take_in();
  void tell_of_the_dead();
  std::vector<int> awaited() const;
  bool judge();
  bool ask();
  void say(int peer, MessageKind kind);
  bool look_around();
  void hear(const std::function<bool()>& enough);
  bool judges() const { return session_.rank() == 0; }

  MpiSession& session_;
  SurvivorCommunicator& communicator_;
  Options options_;
  ServerMessages messages_;
  MessageWait waiting_;
  std::exception_ptr error_;  ///< exception that ended the work
  // State of this attempt; while a collective is under way the thread that drives it has it.
  std::int64_t attempt_ = 0;  ///< the first is 1; the same on all ranks
  bool working_ = false;      ///< not judging yet
  bool whole_ = true;         ///< this rank has done it; on rank 0: and all ranks that it has heard
  std::set<int> dead_;        ///< seen or heard of
  std::chrono::steady_clock::time_point last_death_;
  std::size_t told_ = 0;         ///< how many of them the others were told of
  std::set<int> heard_;          ///< rank 0: ranks that have spoken
  std::optional<bool> verdict_;  ///< the others: it is done
};

}  // namespace lockstep::comm
