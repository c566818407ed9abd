#include <stdexcept>
#include <string>

#include "model/cuda/kernels/update_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

/// gradients += l2 * parameters over the decayed chunks.
__global__ void __launch_bounds__(kBlock)
    add_l2_chunk(const float* parameters, float* gradients, float l2, const UpdateChunk* chunks, bool wide) {
  const UpdateChunk chunk = chunks[blockIdx.x];
  if (chunk.decayed == 0 || chunk.statistic != 0) return;
  const auto add_at = [&]<int kWidth>(std::int64_t i) {
    float w[kWidth], g[kWidth];
    load<kWidth>(parameters + i, true, w);
    load<kWidth>(gradients + i, true, g);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) g[k] += l2 * w[k];
    store<kWidth>(g, true, gradients + i);
  };
  for_chunk(chunk, wide, add_at);
}

/// The second pass, one block per slice.
__global__ void __launch_bounds__(kBlock)
    add_norms(OptimizerKind kind, const UpdateRule* rule, const UpdateChunk* chunks, const ChunksOfSlice* slices,
              const double* parts, double* norms, float* ratios) {
  const ChunksOfSlice slice = slices[blockIdx.x];
  Sums sum;
  if (slice.count > 0 && chunks[slice.first].decayed != 0 && chunks[slice.first].statistic == 0) {
    for (std::uint32_t i = threadIdx.x; i < slice.count; i += kBlock) {
      const std::uint32_t chunk = slice.first + i;
      sum.loss += parts[2 * chunk];
      sum.metric += parts[2 * chunk + 1];
    }
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x != 0) return;
  norms[2 * blockIdx.x] = total.loss;
  norms[2 * blockIdx.x + 1] = total.metric;
  ratios[blockIdx.x] = formulas::trust_ratio(kind, *rule, total.loss, total.metric);
}

template <OptimizerKind kKind>
void take_norms(cudaStream_t stream, const UpdatePointers& arenas, bool wide, const Tensor& rule,
                const UpdateChunks& chunks, const UpdateGate& gate, double* norms) {
  const auto* const numbers = static_cast<const UpdateRule*>(rule.data);
  launch("square_chunk", square_chunk<kKind>,
         {.blocks = chunks.count, .threads = kBlock, .shared_bytes = sizeof(NormsOfBlock)}, stream, arenas, numbers,
         chunks.data, wide, static_cast<const double*>(gate.non_finite.data),
         static_cast<const double*>(gate.gradient_squares.data), chunks.parts);
  launch("add_norms", add_norms, {.blocks = chunks.slice_count, .threads = kBlock, .shared_bytes = sizeof(WarpSums)},
         stream, kKind, numbers, chunks.data, chunks.slices, static_cast<const double*>(chunks.parts), norms,
         chunks.ratios);
}

template <OptimizerKind kKind, bool kAveraging, bool kShadow>
void run_update(cudaStream_t stream, const UpdatePointers& arenas, bool wide, const Tensor& rule,
                const UpdateChunks& chunks, const UpdateGate& gate) {
  launch("update", update_chunk<kKind, kAveraging, kShadow>,
         {.blocks = chunks.count, .threads = kBlock, .shared_bytes = sizeof(UpdateOfBlock)}, stream, arenas,
         static_cast<const UpdateRule*>(rule.data), chunks.data, wide, static_cast<const double*>(gate.non_finite.data),
         static_cast<const double*>(gate.gradient_squares.data));
}

template <OptimizerKind kKind>
void update_by(cudaStream_t stream, const UpdatePointers& arenas, Averaging averaging, const Tensor& rule,
               const UpdateChunks& chunks, const UpdateGate& gate, [[maybe_unused]] const Tensor& norms) {
  constexpr int kWidth = kUpdateWidth;
  bool wide = takes_packs<kWidth>(arenas.parameters) && takes_packs<kWidth>(arenas.gradients);
  if (formulas::keeps_velocity(kKind) || formulas::keeps_moments(kKind))
    wide = wide && takes_packs<kWidth>(arenas.state1);
  if (formulas::keeps_moments(kKind)) wide = wide && takes_packs<kWidth>(arenas.state2);
  if (averaging == Averaging::yes) wide = wide && takes_packs<kWidth>(arenas.average);
  if (arenas.compute_copy != nullptr) wide = wide && takes_packs<kWidth>(arenas.compute_copy);
  if constexpr (formulas::needs_norms(kKind)) {
    take_norms<kKind>(stream, arenas, wide, rule, chunks, gate, static_cast<double*>(norms.data));
  }
  if (averaging == Averaging::yes) {
    if (arenas.compute_copy != nullptr) return run_update<kKind, true, true>(stream, arenas, wide, rule, chunks, gate);
    return run_update<kKind, true, false>(stream, arenas, wide, rule, chunks, gate);
  }
  if (arenas.compute_copy != nullptr) return run_update<kKind, false, true>(stream, arenas, wide, rule, chunks, gate);
  return run_update<kKind, false, false>(stream, arenas, wide, rule, chunks, gate);
}

}  // namespace

void add_l2_gradient(cudaStream_t stream, const Tensor& parameters, const Tensor& gradients, float l2,
                     const UpdateChunks& chunks) {
  if (chunks.count == 0) return;
  const auto* const w = static_cast<const float*>(parameters.data);
  auto* const g = static_cast<float*>(gradients.data);
  launch("add_l2_gradient", add_l2_chunk, {.blocks = chunks.count, .threads = kBlock}, stream, w, g, l2, chunks.data,
         takes_packs<kUpdateWidth>(w) && takes_packs<kUpdateWidth>(g));
}

void update(cudaStream_t stream, const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging,
            const Tensor& rule, const UpdateChunks& chunks, const UpdateGate& gate) {
  if (chunks.count == 0) return;
  if (arenas.compute_copy.present() && arenas.compute_copy.type != ElementType::bfloat16) {
    throw std::invalid_argument(std::string("update: a compute_copy of ") + name_of(arenas.compute_copy.type));
  }
  const UpdatePointers pointers{.parameters = static_cast<float*>(arenas.parameters.data),
                                .gradients = static_cast<float*>(arenas.gradients.data),
                                .state1 = static_cast<float*>(arenas.state1.data),
                                .state2 = static_cast<float*>(arenas.state2.data),
                                .average = static_cast<float*>(arenas.average.data),
                                .compute_copy = static_cast<Bfloat16*>(arenas.compute_copy.data),
                                .ratios = chunks.ratios};
  switch (kind) {
    case OptimizerKind::sgd:
      return update_by<OptimizerKind::sgd>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
    case OptimizerKind::momentum:
      return update_by<OptimizerKind::momentum>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
    case OptimizerKind::nesterov:
      return update_by<OptimizerKind::nesterov>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
    case OptimizerKind::adam:
    case OptimizerKind::adamw:
      return update_by<OptimizerKind::adam>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
    case OptimizerKind::lars:
      return update_by<OptimizerKind::lars>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
    case OptimizerKind::lamb:
      return update_by<OptimizerKind::lamb>(stream, pointers, averaging, rule, chunks, gate, arenas.norms);
  }
}

}  // namespace lockstep::model::cuda
