/// \file
/// Rounds of ranks that train and servers that keep the parameters (--agree async, --agree quorum).
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

/// A round lasts until the next event that needs all ranks: a validation, a checkpoint, a stop. During a round, workers
/// exchange messages only with servers (ParameterServer). At the end of a round no gradient is in progress, and all
/// ranks have the servers' weights and state. So these events work as in every other mode.
class ServerRounds : public AgreementRounds {
 public:
  /// Collective. The communicator must be a comm::SurvivorCommunicator. `servers` must outlive the rounds.
  ServerRounds(const RoundsContext& context, const Servers& servers);

  /// Ends before `until` steps if a rank has a request. Throws Divergence if training has diverged.
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
    /// Memory that the ranks of a host share. With sums it holds servers' weights, which workers read there; otherwise
    /// it holds the workers' weights.
    std::pmr::memory_resource* weight_memory;
  };
  /// Copies the state of training to the servers. Warns if a repeated record (--replay) ends before the run.
  void take_over(const Standing& start) override;
  void follow_scripts();
  void work(Trainer& trainer, const Calls& calls);
  Trainer::Result make_step(Trainer& trainer);
  void jump_to(std::int64_t step, const Calls& calls);
  std::optional<comm::ServerMessages::Received> next_message();
  comm::ServerHeader wait_for_coordinator();
  bool read_in_place(int server, std::int64_t version);
  bool take_weights(const comm::ServerMessages::Received& message, std::int64_t least);
  void pull(const comm::ServerHeader& command);
  void push(const Trainer::Result& result, std::int64_t step, bool wants_end);
  void report_figures(const comm::ServerHeader& command, const Calls& calls);
  /// Waits until `done` returns true; watches the peers meanwhile.
  void wait(const char* what, const std::function<bool()>& done);
  bool watch_peers();
  bool is_dispensable(int rank) const;
  void note_deaths(const std::vector<int>& dead);
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
  std::optional<comm::ServerMessages> to_servers_;  ///< on workers only
  std::optional<comm::MessageWait> waiting_;        ///< on workers only
  std::optional<comm::SurvivorWork> work_;          ///< work of all ranks between rounds
  std::vector<float> arena_;
  std::vector<float*> servers_weights_;  ///< weights of the server on each rank, with sums; nullptr: on another host
  std::exception_ptr server_error_;      ///< error of the server's thread; read it only if server_failed_
  std::atomic<bool> server_failed_ = false;
  std::int64_t own_steps_ = 0;                              ///< step that this worker's data cursor has reached
  std::int64_t epoch_ = 0, position_ = 0, first_step_ = 0;  ///< data cursor and step after take_over()
  bool spares_survivors_ = comm::launcher_spares_survivors();
  double longest_ = 0;         ///< seconds of the longest step that this rank knows
  double waited_ = 0;          ///< seconds spent waiting for servers
  std::set<int> seen_dead_;    ///< dead ranks that this rank knows
  std::set<int> warned_;       ///< rank 0: dead ranks that it has warned of
  std::vector<int> dead_;      ///< dead ranks announced by the coordinator; collectives go on without them
  bool brought_ = false;       ///< the last `go` brought the coordinator's weights
  StepFigures reported_;       ///< sums of the figures reported so far
  std::vector<bool> records_;  ///< rank 0, per server: its file of arrivals has been begun since begin()
  std::string divergence_;     ///< reason why this worker has diverged; empty: it has not
  std::vector<std::uint32_t> blocks_;
};

}  // namespace lockstep::app
