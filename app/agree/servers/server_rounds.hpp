/// \file
/// Steps between ranks that train and servers that keep the parameters (--agree async, --agree quorum).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "app/agree/agreement.hpp"
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
class ServerRounds : public AgreementRounds {
 public:
  /// Collective. The communicator is a comm::SurvivorCommunicator. `servers` outlives the rounds.
  ServerRounds(const RoundsContext& context, const Servers& servers);

  /// Ends before `until` steps if somebody wants something. Throws Divergence if training has diverged.
  StepResult advance(Trainer& trainer, std::int64_t until, const LoopCalls& calls) override;
  double seconds_to_stop(double seconds, std::int64_t steps) const override {
    return seconds / static_cast<double>(std::max<std::int64_t>(1, steps));
  }
  const char* unit() const override { return "rounds"; }
  void together(const std::function<void()>& work) override;
  std::string report() override;

 private:
  using Calls = LoopCalls;
  struct Context {
    comm::MpiSession& session;
    comm::SurvivorCommunicator& communicator;  ///< between the host memories of all ranks
    model::Training& training;
    comm::HostWindow& window;
    /// Memory that the ranks of a host share: for servers' weights where these are read there (sums), else the
    /// workers'.
    std::pmr::memory_resource* weight_memory;
  };
  /// The servers take the state of training. Warns if a record that is repeated (--replay) ends before the run.
  void take_over(const Standing& start) override;
  void follow_scripts();
  void work(Trainer& trainer, const Calls& calls);
  Trainer::Result make_step(Trainer& trainer);
  void jump_to(std::int64_t step, const Calls& calls);
  std::optional<comm::ServerMessages::Received> hear();
  comm::ServerHeader wait_for_word();
  bool read_in_place(int server, std::int64_t version);
  bool take_weights(const comm::ServerMessages::Received& message, std::int64_t least);
  void pull(const comm::ServerHeader& word);
  void push(const Trainer::Result& result, std::int64_t step, bool wants_end);
  void tell(const comm::ServerHeader& word, const Calls& calls);
  /// Until `done`; peers are watched meanwhile.
  void wait(const char* what, const std::function<bool()>& done);
  bool look();
  bool is_dispensable(int rank) const;
  void see_the_dead(const std::vector<int>& dead);
  void collect();
  std::vector<std::string> share_records(const std::string& own);
  StepFigures unreported(const StepFigures& all);

  comm::HostWindow window_;
  Context context_;
  const Plan& plan_;
  const Servers& servers_;
  int rank_;
  bool sums_;
  std::optional<ParameterServer> server_;
  std::optional<comm::ServerMessages> to_servers_;  ///< a worker's
  std::optional<comm::MessageWait> waiting_;        ///< a worker's
  std::optional<comm::SurvivorWork> work_;          ///< work of all ranks between rounds
  std::vector<float> arena_;
  std::vector<float*> servers_weights_;  ///< weights on each rank that keeps sums; nullptr: out of reach
  std::exception_ptr server_error_;      ///< error of the thread; guarded by server_failed_
  std::atomic<bool> server_failed_ = false;
  std::int64_t own_steps_ = 0;                              ///< steps of this worker, in its samples
  std::int64_t epoch_ = 0, position_ = 0, first_step_ = 0;  ///< in the data, where this process began
  bool spares_survivors_ = comm::launcher_spares_survivors();
  double longest_ = 0;         ///< seconds of a step, as far as this worker knows
  double waited_ = 0;          ///< seconds for servers
  std::set<int> seen_dead_;    ///< ranks that have died, as far as this one has seen or heard
  std::set<int> warned_;       ///< rank 0: of these
  std::vector<int> dead_;      ///< as the coordinator has said by the last round's end: collectives go on without them
  bool brought_ = false;       ///< the weights of the coordinator are here, of the last go
  StepFigures reported_;       ///< sums of what has been reported
  std::vector<bool> records_;  ///< rank 0: the servers whose files of arrivals have begun since begin()
  std::string divergence_;     ///< why this worker's training has come apart
  std::vector<std::uint32_t> blocks_;
};

}  // namespace lockstep::app
