/// \file
/// Everything that computes on one rank: backend, model, and the sums of gradients over the ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/agree/agreement.hpp"
#include "app/engine/checkpointer.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/host/forwarding_communicator.hpp"
#include "model/backend.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

class Engine {
 public:
  /// Collective. Allocates all memory for training. Throws comm::ConsensusError if a rank's device has too little
  /// memory or NCCL does not start. All references must outlive the engine. `communicator` is from connect_ranks().
  Engine(comm::MpiSession& session, comm::Communicator& communicator, const Plan& plan);
  ~Engine();

  model::Backend& backend() noexcept { return *backend_; }
  model::Training& training() noexcept { return *training_; }
  /// Connects the memories that hold the gradients: of the GPUs, or of the hosts.
  comm::Communicator& gradient_communicator() noexcept { return on_device_ ? *on_device_ : stepping(); }
  /// Discards the rounding errors kept for feedback (--wire bf16-feedback; otherwise no effect). Called when a
  /// checkpoint is written: a resumed run starts without them and then repeats the uninterrupted one.
  void forget_residuals() noexcept {
    gradient_communicator().forget_rounding_errors();
    communicator_.forget_rounding_errors();
  }
  /// Prepares to continue after `step`. Call before the state is restored. Discards state that no checkpoint holds and
  /// state of steps that no longer count.
  void return_to(std::int64_t step);
  /// Connects the ranks that make the next step together.
  comm::Communicator& stepping() noexcept { return stepping_; }
  /// The running part of the mode of agreement.
  AgreementRounds& rounds() noexcept { return *rounds_; }
  std::span<const comm::Slice> buckets() const noexcept { return reducer_->schedule(); }
  /// This rank's sequences of the global batch; none on a rank that only serves.
  SequenceShare sequences(const WorkPlan& work) const;
  /// Index of the part of the samples that this rank reads. Ranks that only serve get a worker's index but never read.
  int reads_as() const noexcept { return std::min(rank_, training_ranks() - 1); }
  /// Number of ranks that share the samples.
  int training_ranks() const noexcept { return roles_.training_ranks; }
  /// References for a trainer.
  Trainer::Context trainer_context();
  /// References for a checkpointer with `writers` writing ranks.
  Checkpointer::Context checkpointer_context(const WorkPlan& work, int writers);
  /// Collective. Gives each rank the whole arena. Needed when ranks share the update: then each rank has only its own
  /// part of values that just updates change or read (gradients, the average of the weights). No effect if the update
  /// is not shared.
  void bring_together(std::span<float> arena);
  /// Describes the backend and the sums, one line each.
  std::string description() const;

 private:
  /// Connects the host memories of the ranks that share one state.
  comm::Communicator& sharing() noexcept { return group_ ? *group_ : communicator_; }

  comm::Communicator& communicator_;
  std::unique_ptr<comm::MpiSession> group_session_;
  std::unique_ptr<comm::Communicator> group_;
  comm::ForwardingCommunicator stepping_;
  std::unique_ptr<std::pmr::memory_resource> gradient_memory_;
  std::unique_ptr<std::pmr::memory_resource> parameter_memory_;  ///< used if ranks exchange updated weights
  std::unique_ptr<model::Backend> backend_;
  std::optional<comm::SummationTree> tree_;        ///< order of the gradients' sums
  std::unique_ptr<comm::Communicator> on_device_;  ///< communicator between GPUs
  std::unique_ptr<model::Training> training_;
  model::Arena kept_terms_;  ///< terms of gradients on a device
  std::unique_ptr<comm::GradientReducer> reducer_;
  std::unique_ptr<AgreementRounds> rounds_;
  Roles roles_;
  int rank_ = 0;  ///< rank at the start of the job
};

/// Collective: creates the backend of a place. Throws comm::ConsensusError on every rank if one rank cannot create its
/// backend.
std::unique_ptr<model::Backend> make_agreed_backend(comm::Communicator& communicator, const Place& place,
                                                    const ExecutionOptions& options);

}  // namespace lockstep::app
