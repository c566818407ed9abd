/// \file
/// Agreement in every step (--agree all): the ranks sum their gradients, and all make the same update.
#pragma once

#include <memory>

#include "app/agree/agreement.hpp"

namespace lockstep::app {

class AllAgreement : public Agreement {
 public:
  explicit AllAgreement(int ranks) : Agreement({.training_ranks = ranks, .owner_of_most = ranks - 1}) {}

  StepGroup group_of(int /*rank*/) const override {
    return {.first = 0, .size = roles().training_ranks, .largest = roles().training_ranks};
  }
  std::unique_ptr<AgreementRounds> make_rounds(const RoundsContext& context) const override;
};

}  // namespace lockstep::app
