#include "model/state/memory_plan.hpp"

#include <algorithm>
#include <utility>

#include "model/batch.hpp"
#include "model/device.hpp"
#include "model/device_workspaces.hpp"
#include "model/loss.hpp"
#include "model/product_padding.hpp"
#include "model/state/recurrent_state.hpp"

namespace lockstep::model {

namespace {

/// Bytes for patches of as many whole samples as fit the limit, but at least one.
std::size_t patch_bytes(const Network& network, std::int64_t samples, ElementType type) {
  std::size_t most = 0;
  for (const LayerPlan& layer : network.plan()) {
    const std::size_t of_sample = static_cast<std::size_t>(layer.patch_elements) * size_of(type);
    const std::size_t of_batch = of_sample * static_cast<std::size_t>(samples);
    most = std::max(most, of_batch <= kMaxPatchBytes ? of_batch : std::max(of_sample, kMaxPatchBytes));
  }
  return most;
}

/// Workspace of the backward pass of attention by a library. It processes as many samples at a time as fit the limit.
/// If not even one sample fits, it needs no workspace.
std::size_t attention_bytes(const Network& network, std::int64_t samples) {
  std::size_t most = 0;
  for (const LayerPlan& layer : network.plan()) {
    const std::size_t of_sample = layer.score_elements == 0 ? 0 : library_attention_bytes(layer.score_elements);
    if (of_sample == 0 || of_sample > kMaxAttentionWorkspace) continue;
    most = std::max(most, std::min(kMaxAttentionWorkspace, of_sample * static_cast<std::size_t>(samples)));
  }
  return most;
}

/// Bytes for padded copies of matrices. Products of images run in tiles.
std::size_t padding_bytes(const Network& network, std::int64_t samples, const MemoryTypes& types) {
  std::size_t most = 0;
  for (const LayerPlan& layer : network.plan()) {
    const std::size_t of_sample = static_cast<std::size_t>(layer.patch_elements) * size_of(types.compute);
    const std::int64_t tile =
        of_sample == 0 ? samples
                       : std::clamp<std::int64_t>(static_cast<std::int64_t>(kMaxPatchBytes / of_sample), 1, samples);
    for (LinearMap map : layer.products) {
      map.rows *= tile;
      most = std::max(most, model::padding_bytes(map, types.compute, types.master));
    }
  }
  return most;
}

/// Workspace and padded copies of each side queue that runs products of the network.
std::size_t side_product_bytes(const Network& network, std::int64_t samples, const MemoryTypes& types) {
  std::size_t copies = 0, layers = 0;
  for (const LayerPlan& layer : network.plan()) {
    if (!layer.side_products.empty()) ++layers;
    for (LinearMap map : layer.side_products) {
      map.rows *= samples;
      copies = std::max(copies, model::padding_bytes(map, types.compute, types.master));
    }
  }
  return std::min(layers, std::size_t{kSideQueues}) * (kProductWorkspace + copies);
}

}  // namespace

MemoryTypes memory_types(const Backend& backend) {
  return {.compute = backend.compute_type(),
          .master = backend.master_type(),
          .narrow = backend.narrow_type(),
          .is_host = backend.is_host()};
}

MemoryTypes memory_types_on_gpu(Precision precision) noexcept {
  return {.compute = precision == Precision::bf16 ? ElementType::bfloat16 : ElementType::float32,
          .master = ElementType::float32,
          .is_host = false};
}

MemoryPlan plan_memory(const Network& network, const ModelOptions& options, const ParameterStateOptions& state_options,
                       const MemoryTypes& types) {
  const bool training = state_options.purpose == Purpose::training;
  const std::size_t elements = network.parameters().arena_elements();
  const std::size_t arena = elements * size_of(types.master), updated = network.parameters().updated_elements();
  const OperationTypes operation_types{.compute = types.compute, .master = types.master, .narrow = types.narrow};
  const auto bytes_of = [&](Purpose purpose) {
    return ActivationLayout(network.activations(purpose), options.max_batch, operation_types).bytes();
  };
  MemoryPlan plan;
  plan.parameters = arena + (types.compute != types.master ? elements * size_of(types.compute) : 0);
  plan.activations = BatchStage::converted_bytes(network, options, types.compute) +
                     Loss::bytes(network, options, types.compute) +
                     std::max(training ? bytes_of(Purpose::training) : 0, bytes_of(Purpose::evaluation)) +
                     (training ? 2 : 1) * RecurrentState::bytes(network, options.most_sequences(), operation_types);
  if (state_options.optimizer.average_decay > 0) plan.average = arena;
  if (training) {
    plan.gradients = updated * size_of(types.master);
    plan.optimizer = OwnedParts::state_elements(network.parameters(), state_options.owned) * size_of(types.master) *
                     static_cast<std::size_t>(state_count(state_options.optimizer.kind));
  }
  if (training) {
    const std::size_t weights = state_options.optimizer.average_decay > 0 ? 2 : 1;
    const auto states = static_cast<std::size_t>(state_count(state_options.optimizer.kind));
    plan.snapshot = (weights * elements + states * updated) * sizeof(float);
  }
  if (types.is_host) return plan;
  plan.input = BatchStage::slot_bytes(network, options, state_options.purpose);
  plan.products = kProductWorkspace + padding_bytes(network, options.max_batch, types) +
                  side_product_bytes(network, options.max_batch, types);
  plan.patches = patch_bytes(network, options.max_batch, types.compute);
  if (plan.patches > 0 && types.compute == ElementType::bfloat16 &&
      (types.cudnn ? *types.cudnn : cudnn_error().empty())) {
    plan.cudnn = std::max(kMaxLibraryWorkspace, std::exchange(plan.patches, 0));
  }
  if (training && types.compute == ElementType::bfloat16) {
    const std::size_t attention = attention_bytes(network, options.max_batch);
    if (attention > 0 && (types.cudnn ? *types.cudnn : cudnn_error().empty())) plan.cudnn += attention;
  }
  plan.kernels = kKernelBytes;
  return plan;
}

}  // namespace lockstep::model
