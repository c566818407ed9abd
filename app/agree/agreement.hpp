/// \file
/// The interface between training and the modes of agreement on the weights (--agree). Engine and training loop reach a
/// mode only through it; the plan also checks the options by combinations.hpp. Each mode is a folder beside this file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "app/options/train_options.hpp"
#include "app/report/step_figures.hpp"
#include "comm/communicator.hpp"
#include "model/model.hpp"
#include "model/state/memory_plan.hpp"

namespace lockstep::comm {
class ForwardingCommunicator;
class MpiSession;
}  // namespace lockstep::comm

namespace lockstep::model {
struct Training;
}  // namespace lockstep::model

namespace lockstep::app {

struct CarriedGroup;
struct DataCursor;
struct Plan;
struct Standing;
class Trainer;

/// One rank's requests for the next step.
struct StepRequest {
  bool stop = false;
  bool save = false;      ///< a checkpoint after the step, requested by a signal
  bool save_due = false;  ///< a checkpoint after the step, due by the clock or requested in the run folder
  std::string error;      ///< not empty: this rank has failed between steps (for example, its disk is full)

  bool any() const noexcept { return stop || save || save_due || !error.empty(); }
};

/// Figures of one or more steps, and the requests of all ranks.
struct StepResult {
  StepFigures figures;
  double step_samples = 0;  ///< number of samples in the mean loss, on all ranks that make the step
  int stop_requests = 0;
  int save_requests = 0;
  bool save_due = false;
};

/// Calls from the ranks that make steps into the training loop.
struct LoopCalls {
  std::function<StepRequest()> ask;                ///< returns this rank's requests, after each of its steps
  std::function<void(const StepFigures&)> report;  ///< rank 0: reports the steps since the last call
  /// Rank 0: appends bytes to a file in the run's folder. With `anew` it replaces the file first.
  std::function<void(const std::string& file, const std::string& bytes, bool anew)> record;
  /// Moves this rank's data cursor, because other ranks have made steps without it.
  std::function<void(DataCursor)> go_on_at;
};

/// The running part of a mode: makes the steps of all ranks, and does the mode's work between them.
class AgreementRounds {
 public:
  using Warn = std::function<void(const std::string&)>;

  AgreementRounds() = default;
  virtual ~AgreementRounds() = default;
  AgreementRounds(const AgreementRounds&) = delete;
  AgreementRounds& operator=(const AgreementRounds&) = delete;

  /// Forgets earlier steps. Call it before the state after `steps` steps and the groups of carried() are restored.
  virtual void forget(std::int64_t steps);
  /// Collective. Starts from the restored training state, which is at `start`. `warn` shows warnings on rank 0, now and
  /// later.
  void begin(const Standing& start, Warn warn) {
    warn_ = std::move(warn);
    take_over(start);
  }
  /// Collective. Makes one step of all ranks, or one round: ranks make steps independently, up to step `until` or the
  /// end of the mode's round, and then agree. Returns the figures that are not reported yet. Throws Divergence,
  /// comm::ConsensusError if a rank has failed between steps, and comm::PeerError if a rank has failed inside a step
  /// that the other ranks do not share.
  virtual StepResult advance(Trainer& trainer, std::int64_t until, const LoopCalls& calls) = 0;
  /// Returns the seconds until a stop can take effect, if `steps` steps have taken `seconds`.
  virtual double seconds_to_stop(double seconds, std::int64_t steps) const;
  /// The unit that advance() makes: "steps" or "rounds".
  virtual const char* unit() const = 0;
  /// Collective, between rounds: runs `work` on all ranks. If a rank dies in it and the others can go on without that
  /// rank, they run `work` again.
  virtual void together(const std::function<void()>& work);
  /// Returns the mode's own state, which checkpoints keep beside the training's.
  virtual std::vector<CarriedGroup> carried();
  /// Collective, after the last step: returns lines about the whole training for rank 0; "" if there are none.
  virtual std::string report();

 protected:
  /// Collective.
  virtual void take_over(const Standing& start);
  void warn(const std::string& text) const { warn_(text); }

 private:
  Warn warn_;
};

/// Arguments of make_rounds(). The referenced objects must outlive the rounds.
struct RoundsContext {
  const Plan& plan;
  comm::MpiSession& session;
  comm::Communicator& communicator;        ///< between the host memories of all ranks, from connect_ranks()
  comm::Communicator& group;               ///< between the host memories of this rank's group
  comm::ForwardingCommunicator& stepping;  ///< between the ranks that make the trainer's next step together
  model::Training& training;
  std::span<const comm::Slice> buckets;        ///< buckets of the gradients; a group may share their update
  std::pmr::memory_resource* gradient_memory;  ///< memory as ArenaNeeds asks for; nullptr on devices
  std::pmr::memory_resource* weight_memory;    ///< nullptr unless ranks share weights
};

/// Neighbouring ranks that make steps together.
struct StepGroup {
  int first = 0, size = 1;
  int largest = 1;  ///< largest number of ranks in one of this rank's steps: all, with --agree-after
};

/// Requirements of a mode on the host memory of weights and gradients.
struct ArenaNeeds {
  bool reached_by_all = false;       ///< all ranks of a host map the memory, not only those of a group
  std::size_t beside_gradients = 0;  ///< bytes that the rounds allocate in the memory of the gradients
  bool shares_weights = false;       ///< ranks of a host map weights, too
  bool shares_own_weights = true;    ///< true: the training's weights are mapped; false: weights of the rounds
};

/// The ranks' parts in a mode.
struct Roles {
  int training_ranks = 1;     ///< number of ranks that share the samples of a step; they are the first ranks
  int servers = 0;            ///< number of servers
  bool groups = false;        ///< each group makes its own steps; otherwise all ranks make them together
  int owner_of_most = 0;      ///< rank with the largest part of a shared update
  int updates_per_step = 1;   ///< number of updates of the weights in a step
  bool updates_here = true;   ///< a step ends with an update; otherwise servers make it
  bool sums_further = false;  ///< servers add the gradients of several ranks, then add L2; otherwise ranks add L2
};

/// A mode of agreement. The plan chooses it, the same on all ranks.
class Agreement {
 public:
  virtual ~Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  const Roles& roles() const noexcept { return roles_; }
  /// The group of `rank`.
  virtual StepGroup group_of(int rank) const = 0;
  /// Adds the mode's memory to that of a rank that trains with `options`.
  virtual void add_memory(const Plan& plan, const comm::Communicator& communicator, const model::ModelOptions& options,
                          model::MemoryPlan& memory) const;
  /// Lines of the plan that say how the mode changes the mathematics; "" if it does not. `elements`: number of weights.
  virtual std::string describe(const AgreeOptions& options, std::size_t elements) const;
  /// Collective.
  virtual ArenaNeeds arena_needs(int rank, comm::Communicator& communicator) const;
  /// Collective, after all memory of training has been allocated.
  virtual std::unique_ptr<AgreementRounds> make_rounds(const RoundsContext& context) const = 0;

 protected:
  explicit Agreement(const Roles& roles) noexcept : roles_(roles) {}

 private:
  Roles roles_;
};

/// Makes the mode of these options without communication: groups have sizes as equal as possible. Throws UsageError if
/// the options contradict each other or the number of ranks.
std::shared_ptr<const Agreement> make_agreement(const AgreeOptions& agree, int ranks);
/// Collective. As above, but groups follow the hosts, and automatic values in `agree` are replaced by the decisions.
/// Throws UsageError, the same on all ranks.
std::shared_ptr<const Agreement> make_agreement(comm::Communicator& communicator, AgreeOptions& agree);
/// Collective: connects the host memories of all ranks as the mode needs it.
std::unique_ptr<comm::Communicator> connect_ranks(comm::MpiSession& session, const AgreeMode& mode,
                                                  const ExecutionOptions& execution);

/// Throws UsageError if a run with the options `was` cannot continue with the options `is`. `source` names the
/// checkpoint in the message. Returns a warning if the change loses state at `step`, otherwise "".
std::string check_resumed_mode(const std::string& source, const AgreeOptions& was, const AgreeOptions& is,
                               std::int64_t step);

}  // namespace lockstep::app
