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

#include "app/agree/agreement.hpp"
#include "app/agree/local/islands.hpp"
#include "app/engine/snapshot.hpp"
#include "app/plan/plan.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/communicator.hpp"
#include "comm/host/forwarding_communicator.hpp"
#include "model/training/outer_optimizer.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

/// A round has three parts:
/// 1. Every island makes STEPS steps of the inner optimiser and sums gradients only within the island.
/// 2. One sum over all ranks adds the movements of the islands. An island's movement is the difference between its
/// weights and the weights at the beginning of the round (the anchor), weighted by the island's number of samples.
/// 3. One step of the outer optimiser moves the anchor, and all islands continue from it. Each island keeps the state
/// of its inner optimiser.
///
/// With --fragments, the elements are cut into equal parts that take turns: the islands agree on fragment f of F at
/// step (f + 1) STEPS / F of each round (Streaming DiLoCo: Douillard et al. 2025). With --delay T, the sum uses the
/// weights of T steps earlier and runs during those T steps; the island's movement in those steps is kept. Between
/// rounds the training's weights are the anchor, and this object keeps the island's own weights. At the end of the run,
/// all islands agree on the mean of their weights, also in a round that the end cuts short.
class LocalRounds : public AgreementRounds {
 public:
  /// Collective. `islands` must outlive the rounds. Throws comm::ConsensusError if --delay needs sums between islands
  /// while an island exchanges gradients as messages.
  LocalRounds(const RoundsContext& context, const Islands& islands);

  /// Also chooses the ranks that make the next step: all ranks (before --agree-after), or an island.
  void forget(std::int64_t steps) override;
  /// Before --agree-after, makes one step of all ranks. Later, makes the steps until the end of the round or of the
  /// run, then agrees. The figures are sums over the round and all ranks. Learning rate and gradient norm are those of
  /// the last step; the norm is that of rank 0's island.
  StepResult advance(Trainer& trainer, std::int64_t until, const LoopCalls& calls) override;
  const char* unit() const override { return "rounds"; }
  /// The training's own state is that of the first island. The groups returned are the outer optimiser's velocity, the
  /// inner optimisers' state of the other islands, and the weights of all islands if they differ from the anchor.
  std::vector<CarriedGroup> carried() override;

 private:
  /// Elements that the islands agree on together, and the steps of the round when the sum starts and ends.
  struct Fragment {
    std::size_t first = 0, count = 0;
    std::int64_t start = 0, end = 0;
  };
  std::vector<Fragment> cut() const;
  void choose_ranks(std::int64_t steps_done);
  /// Makes the present weights the anchor.
  void take_over(const Standing& start) override;
  void take_anchor();
  StepResult make_step(Trainer& trainer);
  StepResult step_of_all(Trainer& trainer, const LoopCalls& calls);
  StepResult steps(Trainer& trainer);
  /// Progress of an island in its current round.
  struct Progress {
    std::int64_t before = 0;  ///< steps done when this process began the round
    std::int64_t done = 0;    ///< steps done
    double samples = 0;       ///< samples of the island since `before`; NaN: it has diverged
  };
  void agree_on_what_is_due(Trainer& trainer, const Progress& progress);
  void agree_on_all(Trainer& trainer, const Progress& progress);
  void start(Trainer& trainer, const Fragment& fragment, const Progress& progress);
  void finish(Trainer& trainer, const model::OuterOptimizerOptions& outer, const Progress& progress);
  [[noreturn]] void fail(const Progress& progress);
  void be_patient(std::int64_t steps_done);
  std::span<float> weights() { return context_.training.parameters.weight_elements(model::Weights::current); }
  void save_inner_state(const std::string& group, int island, std::span<float> out);
  CarriedGroup weights_of(int island);

  RoundsContext context_;
  const Plan& plan_;
  const Islands& islands_;
  int own_island_;
  bool speaks_;        ///< true on the island's first rank, which contributes the island's values
  bool apart_ = true;  ///< true while islands make local steps
  std::vector<Fragment> fragments_;
  const Fragment* under_way_ = nullptr;  ///< fragment whose sum is in progress; nullptr: none
  std::array<double, 1> samples_{};      ///< number of samples in the sum in progress
  StopWatch round_;                      ///< time since the round began
  double mean_rate_ = 0;                 ///< mean learning rate of the round so far
  std::string divergence_;               ///< reason why this rank's island has diverged; empty: it has not
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::span<float> differences_;  ///< buffer of sums over all ranks
  std::vector<float> anchor_, velocity_;
  std::vector<float> own_;     ///< weights of this rank's island between rounds, if they differ from the anchor
  bool own_restored_ = false;  ///< true if `own_` comes from a checkpoint
  std::vector<float> left_;    ///< with --delay: the weights that the sum in progress uses
};

}  // namespace lockstep::app
