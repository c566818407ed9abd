/// \file
/// Everything that computes, on one rank: backend, model, and the sums of gradients over the ranks, made for its place.
#pragma once

#include <algorithm>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "app/engine/checkpointer.hpp"
#include "app/engine/local_rounds.hpp"
#include "app/engine/server_rounds.hpp"
#include "app/engine/trainer.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "comm/gradient_reducer.hpp"
#include "comm/host/forwarding_communicator.hpp"
#include "comm/servers/host_window.hpp"
#include "model/backend.hpp"
#include "model/training/training.hpp"

namespace lockstep::app {

class Engine {
 public:
  /// Collective. Allocates all that training takes. Throws comm::AgreedError where a rank's device has too little
  /// memory or NCCL does not start. All references must outlive the engine.
  /// `survivors`: the same as `communicator` where the plan has servers.
  Engine(comm::MpiSession& session, comm::Communicator& communicator, const Plan& plan,
         comm::SurvivorCommunicator* survivors = nullptr);
  ~Engine();

  model::Backend& backend() noexcept { return *backend_; }
  model::Training& training() noexcept { return *training_; }
  /// Between where the gradients live: GPUs, or the host's own.
  comm::Communicator& gradient_communicator() noexcept { return on_device_ ? *on_device_ : stepping(); }
  /// What rounding on the wire has kept back so far is forgotten (--wire bf16-feedback; else nothing happens): done
  /// where a checkpoint is written, so that a resumed run, which starts without it, repeats the uninterrupted one.
  void forget_residuals() noexcept {
    gradient_communicator().forget_rounding_errors();
    communicator_.forget_rounding_errors();
  }
  /// Between the ranks that take every step together: all, or those of an island (--agree-after: first these, then
  /// those).
  comm::Communicator& stepping() noexcept { return stepping_; }
  /// Where islands make steps by themselves; else nullptr.
  LocalRounds* local_rounds() noexcept { return rounds_ ? &*rounds_ : nullptr; }
  /// Where servers keep the parameters; else nullptr.
  ServerRounds* server_rounds() noexcept { return server_rounds_ ? &*server_rounds_ : nullptr; }
  /// What a checkpoint holds besides training().
  std::vector<CarriedGroup> carried() { return rounds_ ? rounds_->carried() : std::vector<CarriedGroup>(); }
  std::span<const comm::Slice> buckets() const noexcept { return reducer_->schedule(); }
  /// This rank's among those of the global batch: none of a rank that only serves.
  SequenceShare sequences(const WorkPlan& work) const;
  /// The part of the samples that this rank reads: that of a worker also on ranks that only serve, which never ask.
  int reads_as() const noexcept { return std::min(rank_, training_ranks_ - 1); }
  /// Ranks that share the samples.
  int training_ranks() const noexcept { return training_ranks_; }
  /// What a trainer needs.
  Trainer::Parts parts();
  /// What a checkpointer needs, where so many ranks write.
  Checkpointer::Parts saved(const WorkPlan& work, int writers);
  /// Collective. Where ranks share the update each one has its own parts of what only updates change or read (the
  /// gradients, the average of the weights): afterwards all of them. Else nothing happens.
  void bring_together(std::span<float> arena);
  /// Backend and sums, a line each.
  std::string description() const;

 private:
  comm::Communicator& communicator_;
  std::unique_ptr<comm::MpiSession> island_session_;
  std::unique_ptr<comm::Communicator> island_;
  comm::ForwardingCommunicator stepping_;
  std::unique_ptr<std::pmr::memory_resource> gradient_memory_;
  std::unique_ptr<std::pmr::memory_resource> parameter_memory_;  ///< where ranks bring each other weights
  std::optional<comm::HostWindow> window_;                       ///< of servers and workers
  std::unique_ptr<model::Backend> backend_;
  std::optional<comm::SummationTree> tree_;        ///< of the gradients' sums
  std::unique_ptr<comm::Communicator> on_device_;  ///< between GPUs
  std::unique_ptr<model::Training> training_;
  model::Arena kept_terms_;  ///< of gradients on a device
  std::unique_ptr<comm::GradientReducer> reducer_;
  std::optional<LocalRounds> rounds_;
  std::optional<ServerRounds> server_rounds_;
  Trainer::Update update_ = Trainer::Update::here;
  int rank_ = 0, training_ranks_ = 1;  ///< of the job as it began
};

/// Collective: the backend of a place. Throws comm::AgreedError on every rank where one of them has none.
std::unique_ptr<model::Backend> make_agreed_backend(comm::Communicator& communicator, const Place& place,
                                                    const ExecutionOptions& options);

}  // namespace lockstep::app
