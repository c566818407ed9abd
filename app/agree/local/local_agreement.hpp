/// \file
/// Agreement after local steps (--agree local=STEPS).
#pragma once

#include <memory>
#include <string>

#include "app/agree/agreement.hpp"
#include "app/agree/local/islands.hpp"

namespace lockstep::app {

class LocalAgreement : public Agreement {
 public:
  /// Throws UsageError if the options contradict each other.
  LocalAgreement(Islands islands, const AgreeOptions& options);

  StepGroup group_of(int rank) const override;
  void add_memory(const Plan& plan, const comm::Communicator& communicator, const model::ModelOptions& options,
                  model::MemoryPlan& memory) const override;
  std::string describe(const AgreeOptions& options, std::size_t elements) const override;
  std::unique_ptr<AgreementRounds> make_rounds(const RoundsContext& context) const override;

 private:
  Islands islands_;
  bool all_at_first_;
};

}  // namespace lockstep::app
