#include "app/agree/agreement.hpp"

#include <fmt/format.h>

#include "app/agree/all/all_agreement.hpp"
#include "app/agree/local/local_agreement.hpp"
#include "app/agree/servers/servers_agreement.hpp"
#include "app/engine/snapshot.hpp"
#include "app/place/placement.hpp"
#include "comm/servers/survivor_communicator.hpp"

namespace lockstep::app {

void AgreementRounds::forget(std::int64_t /*steps*/) {}

void AgreementRounds::take_over(const Standing& /*start*/) {}

double AgreementRounds::seconds_to_stop(double seconds, std::int64_t /*steps*/) const { return seconds; }

void AgreementRounds::together(const std::function<void()>& work) { work(); }

std::vector<CarriedGroup> AgreementRounds::carried() { return {}; }

std::string AgreementRounds::report() { return ""; }

void Agreement::add_memory(const Plan& /*plan*/, const comm::Communicator& /*communicator*/,
                           const model::ModelOptions& /*options*/, model::MemoryPlan& /*memory*/) const {}

std::string Agreement::describe(const AgreeOptions& /*options*/, std::size_t /*elements*/) const { return ""; }

ArenaNeeds Agreement::arena_needs(int /*rank*/, comm::Communicator& /*communicator*/) const { return {}; }

std::shared_ptr<const Agreement> make_agreement(const AgreeOptions& agree, int ranks) {
  if (agree.uses_servers()) return std::make_shared<ServersAgreement>(find_servers(agree, ranks), agree);
  if (agree.local_steps > 0) return std::make_shared<LocalAgreement>(equal_islands(agree, ranks), agree);
  return std::make_shared<AllAgreement>(ranks);
}

std::shared_ptr<const Agreement> make_agreement(comm::Communicator& communicator, AgreeOptions& agree) {
  if (agree.local_steps == 0) return make_agreement(agree, communicator.size());
  Islands islands = find_islands(communicator, agree);
  if (agree.islands == 0) agree.islands = islands.count();
  return std::make_shared<LocalAgreement>(std::move(islands), agree);
}

std::unique_ptr<comm::Communicator> connect_ranks(comm::MpiSession& session, const AgreeMode& mode,
                                                  const ExecutionOptions& execution) {
  const comm::CommunicatorOptions how = communicator_options(execution);
  if (!mode.uses_servers()) return comm::make_communicator(session, how);
  return std::make_unique<comm::SurvivorCommunicator>(session, how);
}

std::string check_resumed_mode(const std::string& source, const AgreeOptions& was, const AgreeOptions& is,
                               std::int64_t step) {
  if (was.local_steps > 0 && is.local_steps > 0 && was.islands != is.islands) {
    throw UsageError(fmt::format("{}: the checkpoint holds the optimisers of {} islands, not {}: give --islands {}",
                                 source, was.islands, is.islands, was.islands));
  }
  if (was.islands <= 1 || !was.is_apart(step - 1) || is.is_apart(step)) return "";
  return "the islands' optimisers become one, the first island's: the others' state is left behind";
}

}  // namespace lockstep::app
