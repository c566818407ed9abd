/// \file
/// Work that all ranks do together and that some may die in: those who live do it again, until all of them have done
/// it.
///
/// RANK 0 JUDGES. Where a rank has come to the end of the work it says so to rank 0, and where a collective has failed
/// because a rank has died, too. When rank 0 has heard all who live, it tells them who has died, and whether the work
/// is done or to be done again; the communicator goes on without the dead. Two messages per rank. Nobody can do without
/// rank 0.
///
/// Where collectives travel as messages the work is not done again: what the dead were in the middle of sending may
/// still come.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "comm/servers/host_window.hpp"
#include "comm/servers/server_messages.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "comm/session/mpi_session.hpp"

namespace lockstep::comm {

class SurvivorWork {
 public:
  struct Options {
    double limit_seconds =
        60;  ///< that rank 0 waits for a word, or the others for its, while nobody says that it is busy
    std::function<bool(int)> dispensable;  ///< the others can go on without this rank of the job
    std::shared_ptr<TurnMutex> mpi;
  };
  /// Collective. All outlive this.
  SurvivorWork(MpiSession& session, SurvivorCommunicator& communicator, HostWindow& window, Options options);

  /// Collective over those who live, when nothing else of theirs is under way. Runs `work`, whose collectives are those
  /// of the communicator, and which may be run again. Returns the ranks of the job that have died in it; the
  /// communicator goes on without them. Throws what `work` throws, and PeerError where the others cannot go on.
  std::vector<int> run(const std::function<void()>& work);

 private:
  bool attempt(const std::function<void()>& work);
  std::vector<int> newly_dead();
  void expect_dispensable(const std::vector<int>& dead);
  bool judge(bool whole, std::vector<int>& dead);
  bool ask(bool whole, std::vector<int>& dead);
  std::optional<ServerMessages::Received> hear(std::string_view whom, const std::function<bool()>& enough,
                                               const std::function<void(const std::vector<int>&)>& see);

  MpiSession& session_;
  SurvivorCommunicator& communicator_;
  HostWindow& window_;
  Options options_;
  ServerMessages messages_;
  std::exception_ptr error_;  ///< of the work's end
};

}  // namespace lockstep::comm
