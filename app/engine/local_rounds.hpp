/// \file
/// Local steps (--agree local=STEPS): islands of ranks train by themselves for a round, then agree on the weights.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include "app/engine/snapshot.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/communicator.hpp"
#include "comm/host/forwarding_communicator.hpp"
#include "model/training/outer_optimizer.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// A round is: STEPS steps of the inner optimiser on every island, whose gradients are summed within the island alone;
/// one sum over all ranks of how far each island has come from the weights that the round began with (the anchor), by
/// the samples that it has seen; one step of the outer optimiser on the anchor, with which all islands go on. The inner
/// optimiser's state stays where it is.
///
/// With --fragments the elements are cut into equal parts that take turns: the f-th of F is agreed on at step
/// (f + 1) STEPS / F of each round (Streaming DiLoCo: Douillard et al. 2025). With --delay T its sum is of the weights
/// T steps earlier and travels meanwhile; what an island has come in those steps it keeps. Between rounds the
/// training's weights are the anchor, and each island's own wait here. At the end of a run, and of a
/// round that it cuts short, all agree on the mean of all.
class LocalRounds {
 public:
  /// All must outlive the rounds.
  struct Parts {
    comm::Communicator& communicator;        ///< between the host memories of all ranks
    comm::Communicator& island;              ///< of this rank's island
    comm::ForwardingCommunicator& stepping;  ///< between those that the trainer makes a step with
    model::Training& training;
    std::span<const comm::Slice> buckets;  ///< in which the ranks of an island share the update, where they do
  };
  /// Collective. `plan` has islands, and outlives the rounds.
  LocalRounds(const Parts& parts, const Plan& plan);

  /// So many steps are done: with all ranks, or in rounds (--agree-after). Before a checkpoint's state is restored;
  /// what rounds before have left is forgotten.
  void start_at(std::int64_t steps_done);
  /// The weights are what training begins with: they become the anchor. Before the first round.
  void begin();
  /// Collective. A step of all ranks, as long as all of them agree in every step. Else the steps until the round is
  /// over, or the run, then the agreement. `ask`: what this rank wants, asked when its steps are done. The figures are
  /// sums over the round and all ranks; rate and gradient norm those of the last step (the norm: of rank 0's island).
  /// Throws Divergence where training has come apart, comm::AgreedError where a rank has failed, comm::PeerError where
  /// an island has: the others do not know of it.
  Trainer::Result round(Trainer& trainer, const std::function<Trainer::Request()>& ask);

  /// What a checkpoint holds besides the training's own state, which is that of the first island: the outer
  /// optimiser's velocity, the inner optimisers' state of the other islands, and the weights of all islands where they
  /// are not the anchor.
  std::vector<CarriedGroup> carried();

 private:
  /// Elements that are agreed on together, and when: steps of the round.
  struct Fragment {
    std::size_t first = 0, count = 0;
    std::int64_t start = 0, end = 0;
  };
  std::vector<Fragment> cut() const;
  void choose_ranks(std::int64_t steps_done);
  Trainer::Result make_step(Trainer& trainer);
  Trainer::Result step_of_all(Trainer& trainer, const std::function<Trainer::Request()>& ask);
  Trainer::Result steps(Trainer& trainer);
  /// How far an island has come in its round.
  struct Way {
    std::int64_t before = 0;  ///< steps done when the round began here
    std::int64_t done = 0;    ///< steps
    double samples = 0;       ///< of the island since then; NaN: it has come apart
  };
  void agree_on_what_is_due(Trainer& trainer, const Way& way);
  void agree_on_all(Trainer& trainer, const Way& way);
  void start(Trainer& trainer, const Fragment& fragment, const Way& way);
  void finish(Trainer& trainer, const model::OuterOptimizerOptions& outer, const Way& way);
  [[noreturn]] void fail(const Way& way);
  void be_patient(std::int64_t steps_done);
  std::span<float> weights() { return parts_.training.parameters.weight_elements(model::Weights::current); }
  void save_inner_state(const std::string& group, int island, std::span<float> out);
  CarriedGroup weights_of(int island);

  Parts parts_;
  const Plan& plan_;
  int own_island_;
  bool speaks_;        ///< for its island: the first of its ranks
  bool apart_ = true;  ///< the islands make steps by themselves
  std::vector<Fragment> fragments_;
  const Fragment* under_way_ = nullptr;  ///< its sum
  std::array<double, 1> samples_{};      ///< that the sum under way is of
  StopWatch round_;                      ///< since the round began
  double inner_rate_ = 0;                ///< of the last step
  std::string spoilt_;                   ///< why training has come apart on this rank's island
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::span<float> differences_;  ///< where all ranks sum
  std::vector<float> anchor_, velocity_;
  std::vector<float> own_;     ///< between rounds, where they are not the anchor: the weights of this rank's island
  bool own_restored_ = false;  ///< by a checkpoint
  std::vector<float> left_;    ///< with --delay: the weights that the sum under way is of
};

}  // namespace lockstep::app
