#include "app/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "app/sharding.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

std::unique_ptr<model::Backend> make_agreed_backend(comm::Communicator& communicator, const Place& place,
                                                    const ExecutionOptions& options) {
  std::unique_ptr<model::Backend> backend;
  comm::all_succeed(communicator, [&] { backend = make_backend(place, options); });
  return backend;
}

model::MemoryPlan plan_engine(const comm::Communicator& communicator, const Place& place, const TrainOptions& options,
                              const model::Network& network, model::ModelOptions model_options,
                              std::span<const comm::Slice> buckets, std::int64_t batch) {
  model_options.max_batch = batch;
  model_options.owned = most_owned_ranges(options, buckets, communicator.size());
  model::MemoryPlan plan = model::plan_memory(network, model_options, memory_types(place));
  const std::string& wire = options.execution.wire;
  const bool copies = place.gpu && wire == "bf16" && communicator.size() > 1;
  const bool keeps_residuals = !place.gpu && communicator.uses_network() && wire == "bf16-feedback";
  const std::size_t elements = network.parameters().arena_elements();
  if (copies) plan.gradients += elements * sizeof(std::uint16_t);
  if (keeps_residuals) plan.gradients += elements * sizeof(float);
  return plan;
}

Engine::Engine(comm::MpiSession& session, comm::Communicator& communicator, const Place& place,
               const TrainOptions& options, const model::Network& network, model::ModelOptions model_options,
               std::vector<comm::Slice> buckets)
    : communicator_(communicator),
      wire_is_bf16_(place.gpu && options.execution.wire == "bf16" && communicator.size() > 1) {
  const bool on_network = !place.gpu && communicator.uses_network();
  const bool keeps_residuals = on_network && options.execution.wire == "bf16-feedback";
  wire_on_host_.bf16 = on_network && options.execution.wire != "fp32";
  const auto plan_for = [&](std::int64_t batch) {
    return plan_engine(communicator, place, options, network, model_options, buckets, batch);
  };
  require_memory(communicator, place, plan_for(model_options.max_batch), model_options.max_batch, plan_for);
  backend_ = make_agreed_backend(communicator, place, options.execution);
  reduction_ = make_reduction(session, communicator, place, *backend_, options.execution);
  if (backend_->is_host()) {
    const std::size_t arena = network.parameters().arena_elements() * sizeof(float);
    const bool shared = shards_optimizer(options, communicator.size());
    reduction_memory_ = communicator.reduction_memory(shared ? 2 * (arena + 256) : arena);
    model_options.gradient_memory = reduction_memory_.get();
    if (shared) model_options.parameter_memory = reduction_memory_.get();
  }
  model_options.owned = owned_ranges(options, buckets, communicator.rank(), communicator.size());
  if (keeps_residuals) {
    comm::all_succeed(communicator, [&] { residuals_.resize(network.parameters().arena_elements()); });
    wire_on_host_.residual = residuals_;
  }
  if (communicator.size() > 1 && network.synchronizes()) {
    model_options.sum_over_ranks = [this](const model::Tensor& sums) {
      reduction_->sum(sums.elements<double>());
      reduction_->join();
    };
  }
  comm::all_succeed(communicator, [&] { model_ = std::make_unique<model::Model>(*backend_, network, model_options); });
  comm::GradientWire wire{.device = {}, .host = wire_on_host_};
  if (wire_is_bf16_) wire.device = bf16_wire();
  reducer_ =
      std::make_unique<comm::GradientReducer>(*reduction_, model_->gradients(), std::move(buckets), std::move(wire),
                                              model_->updates_all() ? comm::SumsFor::everybody : comm::SumsFor::owners);
}

void Engine::forget_residuals() noexcept { std::fill(residuals_.begin(), residuals_.end(), 0.0f); }

Engine::~Engine() {
  // After a failure a sum may still wait for a peer: freeing memory would wait for it. Aborted sums wait for nobody.
  if (std::uncaught_exceptions() > 0) reduction_.reset();
  backend_->forget_recordings();  // they hold sums of the reduction, which waits for them in its own end
  if (wire_.data != nullptr)
    backend_->memory()->deallocate(wire_.data, model_->arena_elements() * sizeof(std::uint16_t), 256);
}

comm::Bf16Wire Engine::bf16_wire() {
  const std::size_t elements = model_->arena_elements();
  comm::all_succeed(communicator_, [&] {
    wire_ = {backend_->memory()->allocate(elements * sizeof(std::uint16_t), 256), model::ElementType::bfloat16, 1,
             static_cast<std::int64_t>(elements)};
  });
  const model::Tensor gradients{model_->gradients().data(), model::ElementType::float32, 1, wire_.columns};
  const auto range = [](const model::Tensor& arena, comm::Slice slice) {
    return model::Tensor{static_cast<std::byte*>(arena.data) + slice.offset * size_of(arena.type), arena.type, 1,
                         static_cast<std::int64_t>(slice.count)};
  };
  return {.buffer = {static_cast<std::uint16_t*>(wire_.data), elements},
          .pack = [=, this](comm::Slice slice) { backend_->cast(range(gradients, slice), range(wire_, slice)); },
          .unpack = [=, this] { backend_->cast(wire_, gradients); }};
}

void Engine::bring_together(std::span<float> arena) {
  if (model_->updates_all()) return;
  for (std::size_t bucket = 0; bucket < buckets().size(); ++bucket) reducer_->gather(arena, bucket);
  reducer_->finish_gathering();
  reduction_->wait("bringing the ranks' parts together", -1);
}

Trainer::Parts Engine::parts() {
  return {.backend = *backend_,
          .model = *model_,
          .communicator = communicator_,
          .reduction = *reduction_,
          .reducer = *reducer_};
}

std::string Engine::description() const {
  const std::string sums = reduction_->description();
  return backend_->description() + (sums.empty() ? "" : "\n" + sums);
}

}  // namespace lockstep::app
