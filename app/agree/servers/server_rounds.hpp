/// \file
/// Steps between ranks that train and servers that keep the parameters (--agree async, --agree quorum).
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "app/agree/servers/parameter_server.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "comm/servers/host_window.hpp"
#include "comm/servers/server_messages.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "comm/servers/survivor_work.hpp"
#include "comm/session/launcher.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// A round lasts until something is due that takes all ranks: a validation, a checkpoint, a stop. In it workers and
/// servers talk to each other alone (ParameterServer); at its end no gradient is under way, and all ranks have the
/// servers' weights and state, so that what is due works as it does everywhere.
class ServerRounds {
 public:
  /// All must outlive the rounds.
  struct Parts {
    comm::MpiSession& session;
    comm::SurvivorCommunicator& communicator;  ///< between the host memories of all ranks
    model::Training& training;
    comm::HostWindow& window;
    /// Memory that the ranks of a host share: for servers' weights where these are read there (sums), else the
    /// workers'.
    std::pmr::memory_resource* weight_memory;
  };
  /// `plan` has servers, and outlives the rounds.
  ServerRounds(const Parts& parts, const Plan& plan);

  /// Collective. The servers take what training begins with, or goes back to. Between rounds.
  void begin(const ServedCourse& course);
  /// After begin(): so many steps are done where the record that is repeated (--replay) ends; -1: there is none.
  std::int64_t replay_ends() const noexcept { return replay_ends_; }
  /// The calls that a round makes on its rank.
  struct Calls {
    std::function<Trainer::Request()> ask;                ///< this rank's request, after each of its steps
    std::function<void(const StepFigures&)> report;       ///< rank 0: what has been done since the last call
    std::function<void(const std::string&)> warn;         ///< rank 0
    std::function<void(int, const std::string&)> record;  ///< rank 0: bytes for a server's file of arrivals
    std::function<void(DataPlace)> go_on_at;              ///< the data: others have made steps without this rank
  };
  /// Collective. Until `steps` are done in all, or somebody wants something. The figures are those that have not been
  /// reported. Throws Divergence where training has come apart, comm::AgreedError where a rank has failed between
  /// steps, comm::PeerError where one has in a step: the others do not know of it.
  Trainer::Result round(Trainer& trainer, std::int64_t steps, const Calls& calls);
  /// Collective, between rounds. Work of all ranks whose collectives are the communicator's, and which may be done
  /// again: it is, where a worker dies in it, without that one. Throws what `work` throws, comm::PeerError where the
  /// others cannot go on.
  void together(const std::function<void()>& work, const std::function<void(const std::string&)>& warn);
  /// Collective, between rounds: what came of the gradients, a few lines for rank 0.
  std::string report(const std::function<void(const std::string&)>& warn);

 private:
  void work(Trainer& trainer, const Calls& calls);
  Trainer::Result make_step(Trainer& trainer);
  void jump_to(std::int64_t step, const Calls& calls);
  std::optional<comm::ServerMessages::Received> hear();
  comm::ServerNote wait_for_word();
  bool read_in_place(int server, std::int64_t version);
  bool take_weights(const comm::ServerMessages::Received& message, std::int64_t least);
  void pull(const comm::ServerNote& word);
  void push(const Trainer::Result& result, std::int64_t step, bool wants_end);
  void tell(const comm::ServerNote& word, const Calls& calls);
  /// Until `done`; peers are watched meanwhile.
  template <class Done>
  void wait(const char* what, Done done);
  void look();
  bool is_dispensable(int rank) const;
  void see_the_dead(const std::vector<int>& dead, const std::function<void(const std::string&)>& warn);
  void collect();
  std::vector<std::string> share_records(const std::string& own);
  StepFigures unreported(std::int64_t steps, const std::vector<double>& sums);

  Parts parts_;
  const Plan& plan_;
  const Servers servers_;
  int rank_;
  bool sums_;
  std::optional<ParameterServer> server_;
  std::optional<comm::ServerMessages> to_servers_;  ///< a worker's
  std::optional<comm::SurvivorWork> work_;          ///< work of all ranks between rounds
  std::vector<float> arena_;
  std::vector<float*> servers_weights_;  ///< weights on each rank that keeps sums; nullptr: out of reach
  std::exception_ptr server_error_;      ///< error of the thread; guarded by server_failed_
  std::atomic<bool> server_failed_ = false;
  std::int64_t replay_ends_ = -1;
  std::int64_t own_steps_ = 0;                              ///< steps of this worker, in its samples
  std::int64_t epoch_ = 0, position_ = 0, first_step_ = 0;  ///< in the data, where this process began
  bool spares_survivors_ = comm::launcher_spares_survivors();
  double longest_ = 0;          ///< seconds of a step, as far as this worker knows
  double waited_ = 0;           ///< seconds for servers
  std::vector<int> seen_dead_;  ///< ranks that have died, as far as this one has seen or heard
  std::vector<int> warned_;     ///< rank 0: of these
  std::vector<int> dead_;       ///< as the coordinator has said by the last round's end: collectives go on without them
  bool brought_ = false;        ///< the weights of the coordinator are here, of the last go
  StepFigures reported_;        ///< sums of what has been reported
  std::string spoilt_;          ///< why this worker's training has come apart
  std::vector<std::uint32_t> blocks_;
  std::vector<float> packed_;  ///< blocks of the gradient
};

}  // namespace lockstep::app
