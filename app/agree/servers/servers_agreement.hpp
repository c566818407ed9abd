/// \file
/// Agreement by servers that keep the parameters (--agree quorum, --agree async).
#pragma once

#include <memory>
#include <string>

#include "app/agree/agreement.hpp"
#include "app/agree/servers/servers.hpp"

namespace lockstep::app {

class ServersAgreement : public Agreement {
 public:
  ServersAgreement(const Servers& servers, const AgreeOptions& options);

  /// Each rank makes its steps alone.
  StepGroup group_of(int rank) const override { return {.first = rank, .size = 1, .largest = 1}; }
  void add_memory(const Plan& plan, const comm::Communicator& communicator, const model::ModelOptions& options,
                  model::MemoryPlan& memory) const override;
  std::string describe(const AgreeOptions& options, std::size_t elements) const override;
  ArenaNeeds arena_needs(int rank, comm::Communicator& communicator) const override;
  std::unique_ptr<AgreementRounds> make_rounds(const RoundsContext& context) const override;

 private:
  Servers servers_;
};

}  // namespace lockstep::app
