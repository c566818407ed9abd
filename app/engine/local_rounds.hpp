/// \file
/// Local steps (--agree local=STEPS): islands of ranks train by themselves for a round, then agree on the weights.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "app/engine/snapshot.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "comm/host/forwarding_communicator.hpp"
#include "model/training/outer_optimizer.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// A round is: STEPS steps of the inner optimiser on every island, whose gradients are summed within the island alone;
/// one sum over all ranks of how far each island has come from the weights that the round began with (the anchor), by
/// the samples that it has seen; one step of the outer optimiser on the anchor, with which all islands go on. The inner
/// optimiser's state stays where it is.
class LocalRounds {
 public:
  /// All must outlive the rounds.
  struct Parts {
    comm::Communicator& communicator;        ///< between the host memories of all ranks
    comm::Communicator& island;              ///< of this rank's island
    comm::ForwardingCommunicator& stepping;  ///< between those that the trainer makes a step with
    model::Training& training;
  };
  /// Collective. `plan` has islands, and outlives the rounds.
  LocalRounds(const Parts& parts, const Plan& plan);

  /// So many steps are done: with all ranks, or in rounds (--agree-after). Before a checkpoint's state is restored.
  void start_at(std::int64_t steps_done);
  /// The weights are what training begins with: they become the anchor. Before the first round.
  void begin();
  /// Collective. A step of all ranks, as long as all of them agree in every step. Else the steps until the round is
  /// over, or the run, then the agreement. `ask`: what this rank wants, asked when its steps are done. The figures are
  /// sums over the round and all ranks; rate and gradient norm those of the last step (the norm: of rank 0's island).
  /// Throws comm::AgreedError where a rank has failed, comm::PeerError where an island has: the others do not know of
  /// it.
  Trainer::Result round(Trainer& trainer, const std::function<Trainer::Request()>& ask);

  /// What a checkpoint holds besides the training's own state, which is that of the first island: the outer
  /// optimiser's velocity, and the inner optimisers' state of the other islands.
  std::vector<CarriedGroup> carried();

 private:
  Trainer::Result step_of_all(Trainer& trainer, const std::function<Trainer::Request()>& ask);
  Trainer::Result steps(Trainer& trainer);
  void agree(double weight, std::int64_t step);

  Parts parts_;
  const Plan& plan_;
  int own_island_;
  bool speaks_;        ///< for its island: the first of its ranks
  bool apart_ = true;  ///< the islands make steps by themselves
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::span<float> differences_;  ///< where all ranks sum
  std::vector<float> anchor_, velocity_;
};

}  // namespace lockstep::app
