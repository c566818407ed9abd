#include "app/agree/servers/servers_agreement.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "app/agree/servers/server_rounds.hpp"
#include "app/plan/plan.hpp"
#include "app/report/figures.hpp"
#include "comm/servers/host_window.hpp"
#include "comm/servers/survivor_communicator.hpp"

namespace lockstep::app {

ServersAgreement::ServersAgreement(const Servers& servers, const AgreeOptions& options)
    : Agreement({.training_ranks = servers.workers,
                 .servers = servers.count,
                 .groups = true,
                 .updates_per_step = options.sums_on_servers() ? 1 : servers.workers,
                 .updates_here = false,
                 .sums_further = options.sums_on_servers()}),
      servers_(servers) {}

void ServersAgreement::add_memory(const Plan& plan, const comm::Communicator& communicator,
                                  const model::ModelOptions& /*options*/, model::MemoryPlan& memory) const {
  // Memory of a server beside training: its own arenas, and one message per worker; sums need a copy.
  const std::size_t elements = plan.workload.network->parameters().arena_elements();
  const std::size_t arena = elements * sizeof(float);
  const std::size_t part = served_part(servers_, elements, servers_.count - 1).count * sizeof(float);
  memory.optimizer += 3 * arena + (servers_.count == 1 ? memory.optimizer : memory.optimizer / servers_.count + part) +
                      4 * part * static_cast<std::size_t>(servers_.workers) +
                      2 * arena;  // messages that a worker sends and receives
  if (communicator.uses_network()) memory.optimizer += std::min(arena, comm::SurvivorCommunicator::kMaxCopied);
}

std::string ServersAgreement::describe(const AgreeOptions& options, std::size_t elements) const {
  const std::string keep =
      servers_.shared && servers_.count == 1 ? std::string("rank 0 keeps the parameters beside its training")
      : servers_.shared ? fmt::format("every rank keeps 1/{} of the parameters beside its training", servers_.count)
      : servers_.count == 1
          ? fmt::format("rank {} keeps the parameters, {} train", servers_.rank_of(0),
                        counted(servers_.workers, "rank"))
          : fmt::format("ranks {} to {} keep 1/{} of the parameters each, {} train", servers_.rank_of(0),
                        servers_.rank_of(servers_.count - 1), servers_.count, counted(servers_.workers, "rank"));
  const std::string bytes = format_bytes(2 * elements * sizeof(float));
  std::string rule;
  if (options.quorum > 0) {
    rule = fmt::format("an update is the mean of the first {} of {} gradients of a step, later ones are dropped whole",
                       options.quorum, servers_.workers);
  } else if (options.staleness == 0) {
    rule = "an update is the sum of all gradients of a step, in rank order: what --agree all computes";
  } else {
    rule = fmt::format(
        "every gradient is an update as soon as it comes, {} make a step; {}{}", counted(servers_.workers, "update"),
        options.staleness < 0 ? std::string("nothing bounds how far ranks are apart")
                              : fmt::format("the fastest rank is at most {} ahead", counted(options.staleness, "step")),
        options.stale_rate == StaleRate::scale ? "; the learning rate is divided by the staleness" : "");
  }
  return fmt::format("agreement: {}; {}; {} per gradient and rank. {}\n", keep, rule, bytes,
                     options.asynchronous && options.staleness == 0
                         ? "Runs repeat bit for bit"
                         : "What a run computes depends on who comes first: it does not repeat bit for bit");
}

ArenaNeeds ServersAgreement::arena_needs(int rank, comm::Communicator& communicator) const {
  const bool has_server = servers_.on(rank) >= 0;
  return {.reached_by_all = true,
          .beside_gradients = comm::HostWindow::bytes(communicator),
          .shares_weights = true,
          .shares_own_weights = !(roles().sums_further && has_server)};
}

std::unique_ptr<AgreementRounds> ServersAgreement::make_rounds(const RoundsContext& context) const {
  return std::make_unique<ServerRounds>(context, servers_);
}

}  // namespace lockstep::app
