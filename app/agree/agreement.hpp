/// \file
/// The seam between training and the modes of agreement on the weights (--agree): all that plan, engine and loop know
/// of them. Each mode is a folder beside this file.
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
  bool save = false;      ///< a checkpoint after it, requested by a signal
  bool save_due = false;  ///< a checkpoint after it, due by the clock or requested in the run folder
  std::string error;      ///< not empty: this rank failed between steps (a full disk …)

  bool any() const noexcept { return stop || save || save_due || !error.empty(); }
};

/// Figures of one or more steps, and the requests of all ranks.
struct StepResult {
  StepFigures figures;
  double step_samples = 0;  ///< number of samples that the mean loss is over, on all ranks that make the step
  int stop_requests = 0;
  int save_requests = 0;
  bool save_due = false;
};

/// Services of the loop for the ranks that make steps.
struct LoopCalls {
  std::function<StepRequest()> ask;                ///< this rank's request, after each of its steps
  std::function<void(const StepFigures&)> report;  ///< rank 0: figures of the steps since the last call
  /// Rank 0: appends bytes to a file of the run's folder; `anew`: the file begins with them.
  std::function<void(const std::string& file, const std::string& bytes, bool anew)> record;
  std::function<void(DataCursor)> go_on_at;  ///< moves this rank in the data: others have made its steps
};

/// A mode at work: the steps of all ranks, and what the mode does between them.
class AgreementRounds {
 public:
  using Warn = std::function<void(const std::string&)>;

  AgreementRounds() = default;
  virtual ~AgreementRounds() = default;
  AgreementRounds(const AgreementRounds&) = delete;
  AgreementRounds& operator=(const AgreementRounds&) = delete;

  /// Forgets earlier steps. Call before the state after `steps` steps is restored, with carried().
  virtual void forget(std::int64_t steps);
  /// Collective. Takes over the restored state of training, at `start`. `warn` shows rank 0's warnings, also later
  /// ones.
  void begin(const Standing& start, Warn warn) {
    warn_ = std::move(warn);
    take_over(start);
  }
  /// Collective. A step of all ranks, or a round: steps that ranks make apart, up to `until` steps in all, and the
  /// agreement after them. The figures are those not yet reported. Throws Divergence, comm::ConsensusError if a rank
  /// has failed between steps, and comm::PeerError if one has failed in a step of which the others do not know.
  virtual StepResult advance(Trainer& trainer, std::int64_t until, const LoopCalls& calls) = 0;
  /// Seconds until a stop can take effect, if `steps` steps have taken `seconds`.
  virtual double seconds_to_stop(double seconds, std::int64_t steps) const;
  /// The word for what advance() makes: "steps" or "rounds".
  virtual const char* unit() const = 0;
  /// Collective, between rounds: work of all ranks. If a rank dies in it that the others can do without, they repeat
  /// it.
  virtual void together(const std::function<void()>& work);
  /// State for checkpoints besides the training's.
  virtual std::vector<CarriedGroup> carried();
  /// Collective, after the last step: lines about the whole training, for rank 0; "" if there is nothing to say.
  virtual std::string report();

 protected:
  /// Collective.
  virtual void take_over(const Standing& start);
  void warn(const std::string& text) const { warn_(text); }

 private:
  Warn warn_;
};

/// References for rounds, which must outlive them.
struct RoundsContext {
  const Plan& plan;
  comm::MpiSession& session;
  comm::Communicator& communicator;        ///< between the host memories of all ranks, from connect_ranks()
  comm::Communicator& group;               ///< between those of this rank's group
  comm::ForwardingCommunicator& stepping;  ///< between the ranks that make the trainer's next step together
  model::Training& training;
  std::span<const comm::Slice> buckets;        ///< buckets in which a group shares the update, if it does
  std::pmr::memory_resource* gradient_memory;  ///< memory that ArenaNeeds describes; nullptr on devices
  std::pmr::memory_resource* weight_memory;    ///< nullptr unless ranks share weights
};

/// Neighbouring ranks that make steps together.
struct StepGroup {
  int first = 0, size = 1;
  int largest = 1;  ///< number of ranks in this rank's largest step: before groups are apart all ranks may make steps
};

/// Host memory of weights and gradients.
struct ArenaNeeds {
  bool reached_by_all = false;       ///< all ranks of a host reach it, not only those of a group
  std::size_t beside_gradients = 0;  ///< bytes that rounds allocate there
  bool shares_weights = false;       ///< ranks of a host reach weights, too
  bool shares_own_weights = true;    ///< these are the weights of the training, not the rounds'
};

/// The ranks' parts in a mode.
struct Roles {
  int training_ranks = 1;     ///< number of ranks that share the samples of a step, the first ones
  int servers = 0;            ///< number of servers
  bool groups = false;        ///< each group of ranks makes steps by itself; otherwise all make them together
  int owner_of_most = 0;      ///< rank with the largest part of a shared update
  bool updates_here = true;   ///< a step ends with an update; otherwise servers make it
  bool sums_further = false;  ///< servers add the gradients of ranks, then those of L2; otherwise a rank adds L2
};

/// A mode of agreement, decided with the plan; the same on all ranks.
class Agreement {
 public:
  virtual ~Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  const Roles& roles() const noexcept { return roles_; }
  /// The group of `rank`.
  virtual StepGroup group_of(int rank) const = 0;
  /// Adds the mode's memory to that of a rank that trains with these options of the model.
  virtual void add_memory(const Plan& plan, const comm::Communicator& communicator, const model::ModelOptions& options,
                          model::MemoryPlan& memory) const;
  /// Lines of the plan: what the mode does to the mathematics; "" if it does nothing. `elements`: number of weights.
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

/// The mode of these options without a question to other ranks: groups are as equal as can be. Throws UsageError if its
/// options contradict each other or the number of ranks.
std::shared_ptr<const Agreement> make_agreement(const AgreeOptions& agree, int ranks);
/// Collective. The same, with groups by hosts; automatic values in `agree` become decisions. Throws UsageError alike
/// on all ranks.
std::shared_ptr<const Agreement> make_agreement(comm::Communicator& communicator, AgreeOptions& agree);
/// Collective: connects the host memories of all ranks as the mode needs it.
std::unique_ptr<comm::Communicator> connect_ranks(comm::MpiSession& session, const AgreeMode& mode,
                                                  const ExecutionOptions& execution);

/// Throws UsageError, which names the checkpoint's place `source`, if a run with the options `was` cannot continue with
/// the options `is`. Returns a warning if that loses state at `step`; otherwise "".
std::string check_resumed_mode(const std::string& source, const AgreeOptions& was, const AgreeOptions& is,
                               std::int64_t step);

}  // namespace lockstep::app
