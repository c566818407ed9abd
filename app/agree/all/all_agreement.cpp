#include "app/agree/all/all_agreement.hpp"

#include "app/engine/trainer.hpp"

namespace lockstep::app {

namespace {

class Steps : public AgreementRounds {
 public:
  StepResult advance(Trainer& trainer, std::int64_t /*until*/, const LoopCalls& calls) override {
    return trainer.step(calls.ask());
  }
  const char* unit() const override { return "steps"; }
};

}  // namespace

std::unique_ptr<AgreementRounds> AllAgreement::make_rounds(const RoundsContext& /*context*/) const {
  return std::make_unique<Steps>();
}

}  // namespace lockstep::app
