#include "app/engine/engine.hpp"

#include <exception>
#include <new>
#include <stdexcept>

#include <fmt/format.h>

#include "app/plan/host_memory.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "comm/host/reduction_memory.hpp"

namespace lockstep::app {

std::unique_ptr<model::Backend> make_agreed_backend(comm::Communicator& communicator, const Place& place,
                                                    const ExecutionOptions& options) {
  std::unique_ptr<model::Backend> backend;
  comm::all_succeed(communicator, [&] { backend = make_backend(place, options); });
  return backend;
}

Engine::Engine(comm::MpiSession& session, comm::Communicator& communicator, const Plan& plan)
    : communicator_(communicator),
      stepping_(communicator),
      tree_(plan.tree),
      roles_(plan.agreement->roles()),
      rank_(communicator.rank()) {
  const StepGroup step_group = plan.agreement->group_of(rank_);
  if (roles_.groups) {
    group_session_ = session.group(step_group.first, step_group.size, plan.settings.execution.deadline);
    group_ = comm::make_communicator(*group_session_, communicator_options(plan.settings.execution));
    stepping_.go_on_with(*group_);
  }
  const Workload& workload = plan.workload;
  const ExecutionOptions& options = plan.settings.execution;
  const model::Network& network = *workload.network;
  const ArenaNeeds needs = plan.agreement->arena_needs(rank_, communicator);
  comm::Communicator& reaching = needs.reached_by_all ? communicator : stepping();
  require_host_memory(communicator,
                      training_memory(plan.place, plan.memory, workload, rank_, reaching.ranks_sharing_memory()));
  require_gpu_memory(communicator, plan.place, plan.memory, workload.model.max_batch,
                     [&](std::int64_t batch) { return memory_with(plan, communicator, batch); });
  backend_ = make_agreed_backend(communicator, plan.place, options);
  if (tree_) {
    const comm::FingerprintItem kind{"arithmetic (--reproducible)", backend_->arithmetic()};
    comm::require_equal(communicator, {&kind, 1});
  }
  if (plan.place.gpu) {
    on_device_ =
        make_device_communicator(session, communicator, plan.place, *backend_, options, tree_ ? &*tree_ : nullptr);
  }
  model::ModelOptions model_options = workload.model;
  model::ParameterStateOptions state_options{.optimizer = workload.optimizer, .owned = owned_ranges(plan, rank_)};
  if (backend_->is_host()) {
    const std::size_t arena = network.parameters().arena_elements() * sizeof(float);
    const std::size_t gradients = network.parameters().updated_elements() * sizeof(float);
    const std::size_t kept = tree_ ? static_cast<std::size_t>(tree_->most_kept()) * gradients : 0;
    gradient_memory_ = reaching.reduction_memory(needs.beside_gradients + comm::rounded_up(gradients) + kept);
    state_options.gradient_memory = gradient_memory_.get();
    if (plan.shards_optimizer || needs.shares_weights) {
      parameter_memory_ = reaching.reduction_memory(arena, comm::MemoryUse::gathered);
      if (needs.shares_own_weights) state_options.parameter_memory = parameter_memory_.get();
    }
  }
  if (step_group.largest > 1 && network.synchronizes()) {
    model_options.sum_over_ranks = [this](const model::Tensor& sums) {
      gradient_communicator().urgent_all_reduce(sums.elements<double>());
    };
  }
  comm::all_succeed(communicator, [&] {
    try {
      training_ = std::make_unique<model::Training>(*backend_, network, model_options, state_options);
    } catch (const std::bad_alloc&) {
      throw std::runtime_error(
          fmt::format("out of memory: the network takes {} (`lockstep train --dry-run` tells for "
                      "what), and this process gets no more",
                      format_bytes(plan.memory.total())));
    }
  });
  comm::OrderedTerms terms;
  if (tree_) {
    const std::size_t kept = static_cast<std::size_t>(tree_->most_kept()) * training_->parameters.updated_elements();
    terms.tree = &*tree_;
    if (gradient_memory_) {
      terms.kept = {static_cast<float*>(gradient_memory_->allocate(kept * sizeof(float), alignof(float))), kept};
    } else {
      comm::all_succeed(communicator,
                        [&] { kept_terms_ = model::Arena(backend_->memory(), model::ElementType::float32, kept); });
      terms.kept = kept_terms_.tensor().elements<float>();
    }
  }
  reducer_ = std::make_unique<comm::GradientReducer>(
      gradient_communicator(), training_->parameters.gradient_elements(), plan.buckets,
      training_->optimizer.is_partitioned() ? comm::SumsFor::owners : comm::SumsFor::everybody, terms);
  rounds_ = plan.agreement->make_rounds({.plan = plan,
                                         .session = session,
                                         .communicator = communicator,
                                         .group = sharing(),
                                         .stepping = stepping_,
                                         .training = *training_,
                                         .buckets = buckets(),
                                         .gradient_memory = gradient_memory_.get(),
                                         .weight_memory = parameter_memory_.get()});
}

Engine::~Engine() {
  // After a failure, a sum may still wait for a peer, and freeing memory would wait for the sum. So the sums are
  // aborted first.
  if (std::uncaught_exceptions() > 0) on_device_.reset();
  backend_->forget_recordings();  // recordings contain sums of the communicator, whose destructor waits for them
}

void Engine::return_to(std::int64_t step) {
  backend_->forget_recordings();  // recordings refer to memory of the previous trainer
  forget_residuals();
  // Clears the gaps between parameters, too: no backward pass writes there, and a sum in blocks would spread non-finite
  // values from them.
  backend_->fill_zero(training_->parameters.gradients());
  rounds_->forget(step);
}

void Engine::bring_together(std::span<float> arena) {
  if (!training_->optimizer.is_partitioned()) return;
  for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) reducer_->gather(arena, bucket);
  reducer_->finish_gathering();
  gradient_communicator().wait("bringing the ranks' parts together", -1);
}

Trainer::Context Engine::trainer_context() {
  return {.backend = *backend_,
          .training = *training_,
          .communicator = stepping(),
          .gradient_communicator = gradient_communicator(),
          .reducer = *reducer_,
          .tree = tree_ ? &*tree_ : nullptr,
          .updates = roles_.updates_here,
          .sums_further = roles_.sums_further};
}

SequenceShare Engine::sequences(const WorkPlan& work) const {
  if (rank_ < training_ranks()) return share_of(work, rank_, training_ranks()).sequences;
  return {.all = work.global_batch, .first = work.global_batch, .count = 0};
}

Checkpointer::Context Engine::checkpointer_context(const WorkPlan& work, int writers) {
  return {.communicator = communicator_,
          .sharing = sharing(),
          .training = *training_,
          .buckets = buckets(),
          .sequences = sequences(work),
          .writers = writers,
          .carried = rounds_->carried(),
          .memory = backend_->is_host() ? backend_->memory() : backend_->host_memory()};
}

std::string Engine::description() const {
  const std::string sums = on_device_ ? on_device_->description() : communicator_.description();
  return backend_->description() + (sums.empty() ? "" : "\n" + sums);
}

}  // namespace lockstep::app
