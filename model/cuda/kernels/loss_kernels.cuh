/// \file
/// Losses, with their gradients in place. Each block adds the losses of its samples in double and writes one part of
/// the sums.
#pragma once

#include <cstdint>

#include "model/cuda/kernels/block_sums.cuh"
#include "model/cuda/kernels/launch.cuh"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/tensor_cores.cuh"
#include "model/formulas/losses.hpp"

namespace lockstep::model::cuda {

/// float64 [1, kLossSums] +=
__device__ inline void add_to(double* sums, const Sums& total, double factor) {
  sums[0] += total.loss * factor;
  sums[1] += total.metric * factor;
  sums[2] += total.found * factor;
}

/// Writes one part to parts[block]; in a grid of one block, adds it to sums, times `factor`. Called by thread 0.
__device__ inline void hand_over(const Sums& total, double factor, Sums* parts, double* sums) {
  if (gridDim.x == 1) {
    add_to(sums, total, factor);
  } else {
    parts[blockIdx.x] = total;
  }
}

/// Returns the merged part, with the same bits in every lane.
__device__ inline formulas::SoftmaxPart merge_warp(formulas::SoftmaxPart part) {
#pragma unroll
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    formulas::SoftmaxPart other;
    other.greatest = __shfl_xor_sync(kWholeWarp, part.greatest, distance);
    other.total = __shfl_xor_sync(kWholeWarp, part.total, distance);
    other.index = __shfl_xor_sync(kWholeWarp, part.index, distance);
    part = (threadIdx.x & distance) != 0 ? formulas::merge(other, part) : formulas::merge(part, other);
  }
  return part;
}

/// Additional values of a row: the sum of the logits, for smoothed targets; the number of classes that rank before the
/// label, without gradient.
struct RowExtras {
  double logits = 0;
  int before = 0;
};

/// Returns the sums over the warp, in lane 0.
__device__ inline RowExtras sum_of_warp(RowExtras extras) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    extras.logits += __shfl_down_sync(kWholeWarp, extras.logits, distance);
    extras.before += __shfl_down_sync(kWholeWarp, extras.before, distance);
  }
  return extras;
}

/// Adds one row to the sums of the calling thread. weight: factor of its loss.
__device__ inline void add_row(Sums& sums, const formulas::SoftmaxPart& row, const RowExtras& extras, float right,
                               std::int32_t label, const formulas::SoftTarget& target, bool want_gradient,
                               float weight = 1) {
  sums.loss += static_cast<double>(weight) * formulas::cross_entropy_of(row, right, target, extras.logits);
  sums.metric += formulas::is_correct(row, label) ? 1 : 0;
  if (!want_gradient) sums.found += formulas::is_among_top(row, right, extras.before) ? 1 : 0;
}

/// False for a row of kNoClass; its weight of 0 makes its gradient 0. Rows without weights always have a class.
template <bool kWeighted>
__device__ inline bool has_class(std::int32_t label) {
  return !kWeighted || label != kNoClass;
}

/// Rows of at most kWarp * kPerLane columns, one warp per row: lane l holds logits l, l + 32, … in registers. A label
/// that is not a class makes the loss NaN. Columns from `classes` on are padding: they are not read, and their gradient
/// is 0. weights: LossOptions::weights, only with kWeighted.
template <int kPerLane, bool kWeighted, class T>
__global__ void __launch_bounds__(kBlock)
    cross_entropy_narrow(T* logits, const std::int32_t* labels, const float* weights, std::int64_t rows, int columns,
                         int classes, formulas::SoftTarget target, float scale, bool want_gradient, Sums* parts,
                         double* sums) {
  formulas::ScaledTarget scaled_target = formulas::scaled(target, scale);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  Sums sum;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    T* const z = logits + row * columns;
    const std::int32_t label = labels[row];
    float weight = 1;
    if constexpr (kWeighted) {
      weight = weights[row];
      scaled_target = formulas::scaled(target, scale * weight);
    }
    float values[kPerLane];
    formulas::SoftmaxPart part;
    float right = formulas::kNan;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int o = lane + k * static_cast<int>(kWarp);
      values[k] = o < classes ? to_float(z[o]) : -formulas::kInfinity;
      if (o == label && o < classes) right = values[k];
      formulas::raise_greatest(part, values[k], o);
    }
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) formulas::add_logit(part, values[k]);
    part = merge_warp(part);
    right = __shfl_sync(kWholeWarp, right, label & (static_cast<int>(kWarp) - 1));
    RowExtras extras;
    if (!want_gradient || target.of_each != 0) {
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const int o = lane + k * static_cast<int>(kWarp);
        if (o >= classes) continue;
        extras.logits += static_cast<double>(values[k]);
        extras.before += formulas::comes_before(values[k], o, right, label) ? 1 : 0;
      }
      extras = sum_of_warp(extras);
    }
    if (lane == 0 && has_class<kWeighted>(label)) {
      add_row(sum, part, extras, right, label, target, want_gradient, weight);
    }
    if (!want_gradient) continue;
    const float share = scale * weight / part.total;
#pragma unroll
    for (int k = 0; k < kPerLane; ++k) {
      const int o = lane + k * static_cast<int>(kWarp);
      if (o >= columns) continue;
      const float gradient[1] = {
          o < classes ? formulas::softmax_gradient(values[k], part, share, scaled_target, o == label) : 0};
      store<1>(gradient, true, z + o);
    }
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x == 0) hand_over(total, 1, parts, sums);
}

/// Threads of a block that processes one row at a time.
inline constexpr unsigned kWideBlock = 512;

struct RowOfBlock {
  formulas::SoftmaxPart of_warp[kWideBlock / kWarp];
  RowExtras extras_of_warp[kWideBlock / kWarp];
};

/// Adds a logit that is not in a pack.
__device__ inline void add_single(formulas::SoftmaxPart& part, RowExtras& extras, float value, int index, float right,
                                  std::int32_t label) {
  formulas::raise_greatest(part, value, index);
  formulas::add_logit(part, value);
  extras.logits += static_cast<double>(value);
  extras.before += formulas::comes_before(value, index, right, label) ? 1 : 0;
}

/// Stores the warp's part of the row in the shared memory of the block.
__device__ inline void hand_over(formulas::SoftmaxPart part, RowExtras extras, bool needs_extras, RowOfBlock& block) {
  part = merge_warp(part);
  if (needs_extras) extras = sum_of_warp(extras);
  if (threadIdx.x % kWarp == 0) {
    block.of_warp[threadIdx.x / kWarp] = part;
    block.extras_of_warp[threadIdx.x / kWarp] = extras;
  }
}
/// Returns the additional values of the whole row.
__device__ inline RowExtras extras_of(const RowOfBlock& block) {
  RowExtras extras = block.extras_of_warp[0];
  for (unsigned warp = 1; warp < kWideBlock / kWarp; ++warp) {
    extras.logits += block.extras_of_warp[warp].logits;
    extras.before += block.extras_of_warp[warp].before;
  }
  return extras;
}

/// Rows of any length, one block per row. The first pass computes greatest and total, the second the gradient, and
/// finds the row in the cache. A row is divided at multiples of kWidth elements from the start of the matrix, so that
/// packs are aligned for any row length: `head` single elements, packs, and the remaining single elements. Padding as
/// above. Two blocks per multiprocessor.
template <int kWidth, bool kWeighted, class T>
__global__ void __launch_bounds__(kWideBlock)
    cross_entropy_wide(T* logits, const std::int32_t* labels, const float* weights, std::int64_t rows, int columns,
                       int classes, formulas::SoftTarget target, float scale, bool want_gradient, bool wide,
                       Sums* parts, double* sums) {
  formulas::ScaledTarget scaled_target = formulas::scaled(target, scale);
  const bool needs_extras = !want_gradient || target.of_each != 0;
  auto& block = shared<RowOfBlock>();
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(kWideBlock);
  Sums sum;  // sum of thread 0
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const z = logits + row * columns;
    const std::int32_t label = labels[row];
    float weight = 1;
    if constexpr (kWeighted) {
      weight = weights[row];
      scaled_target = formulas::scaled(target, scale * weight);
    }
    const auto beyond = static_cast<int>(row * columns % kWidth);
    const int head = beyond == 0 ? 0 : kWidth - beyond;
    const int packs = classes > head ? (classes - head) / kWidth : 0;
    const int singles = classes - packs * kWidth;

    const bool is_class = label >= 0 && label < classes;
    const float right = is_class ? to_float(z[label]) : formulas::kNan;

    formulas::SoftmaxPart part;
    RowExtras extras;
    float values[kWidth];
    for (int pack = thread; pack < packs; pack += threads) {
      const int first = head + pack * kWidth;
      load<kWidth>(z + first, wide, values);
      float greatest = -formulas::kInfinity;
      std::int32_t index = 0;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        if (values[k] > greatest) {
          greatest = values[k];
          index = k;
        }
      }
      formulas::raise_greatest(part, greatest, first + index);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) formulas::add_logit(part, values[k]);
      if (!needs_extras) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        extras.logits += static_cast<double>(values[k]);
        extras.before += formulas::comes_before(values[k], first + k, right, label) ? 1 : 0;
      }
    }
    formulas::SoftmaxPart single;
    for (int i = thread; i < singles; i += threads) {
      const int o = i < head ? i : i + packs * kWidth;
      const float value = to_float(z[o]);
      add_single(single, extras, value, o, right, label);
    }
    hand_over(formulas::merge(part, single), extras, needs_extras, block);
    __syncthreads();
    part = block.of_warp[0];
    for (unsigned warp = 1; warp < kWideBlock / kWarp; ++warp) part = formulas::merge(part, block.of_warp[warp]);
    if (threadIdx.x == 0 && has_class<kWeighted>(label)) {
      extras = extras_of(block);
      add_row(sum, part, extras, right, label, target, want_gradient, weight);
    }
    __syncthreads();  // the next row overwrites values that threads have read for this one
    if (!want_gradient) continue;

    const float share = scale * weight / part.total;
    for (int pack = thread; pack < packs; pack += threads) {
      const int first = head + pack * kWidth;
      load<kWidth>(z + first, wide, values);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        values[k] = formulas::softmax_gradient(values[k], part, share, scaled_target, first + k == label);
      }
      store<kWidth>(values, wide, z + first);
    }
    for (int i = thread; i < singles; i += threads) {
      const int o = i < head ? i : i + packs * kWidth;
      const float gradient[1] = {formulas::softmax_gradient(to_float(z[o]), part, share, scaled_target, o == label)};
      store<1>(gradient, true, z + o);
    }
#pragma unroll 1  // a few elements
    for (int o = classes + thread; o < columns; o += threads) z[o] = static_cast<T>(0.0f);
  }
  if (threadIdx.x == 0) hand_over(sum, 1, parts, sums);
}

/// exp(x) by three instructions instead of ten, with an error of a few units in the 24th bit for the arguments of a
/// softmax.
__device__ __forceinline__ float quick_exp(float x) {
  constexpr float kLog2E = 1.44269504f;
#if defined(__CUDACC__)
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x * kLog2E));
  return value;
#else
  return std::exp2(x * kLog2E);
#endif
}

inline constexpr int kHeldWidth = kWideWidth<Bfloat16>;
static_assert(sizeof(RowOfBlock) % kWideBytes == 0, "packs of the row lie behind it");
/// Bytes of shared memory of a block of cross_entropy_in_shared().
inline std::size_t held_bytes(std::int64_t classes) {
  return sizeof(RowOfBlock) + static_cast<std::size_t>((classes + kHeldWidth - 1) / kHeldWidth) * kWideBytes;
}

/// The same for rows that fit shared memory with two blocks per multiprocessor: a row is read once and written once.
/// All memory must be aligned for packs, and a row must be whole packs. A thread copies and processes the packs thread,
/// thread + kWideBlock, ... of each row; the last pack may have a few `singles` and padding. When it has written the
/// gradient of a pack, it starts to copy the same pack of the block's next row to the same address.
__global__ void __launch_bounds__(kWideBlock, 2)
    cross_entropy_in_shared(Bfloat16* logits, const std::int32_t* labels, std::int64_t rows, int columns, int classes,
                            formulas::SoftTarget target, float scale, bool want_gradient, Sums* parts, double* sums) {
  constexpr int kWidth = kHeldWidth;
  constexpr unsigned kWarps = kWideBlock / kWarp;
  const formulas::ScaledTarget scaled_target = formulas::scaled(target, scale);
  const bool needs_extras = !want_gradient || target.of_each != 0;
  auto& block = shared<RowOfBlock>();
  auto* const held = reinterpret_cast<Bfloat16*>(&block + 1);
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(kWideBlock);
  const int packs = classes / kWidth, singles = classes % kWidth;
  constexpr int kStep = static_cast<int>(kWideBlock) * kWidth;
  const Bfloat16* copied = logits + blockIdx.x * static_cast<std::int64_t>(columns) + thread * kWidth;
  for (int pack = thread; pack < packs; pack += threads, copied += kStep) {
    copy_async(copied, true, held + pack * kWidth);
  }
  const bool has_singles = singles > 0 && thread == packs % threads;
  if (has_singles) copy_async(copied, true, held + packs * kWidth);  // the pack after its last whole one
  end_group();
  std::int32_t next_label = labels[blockIdx.x];
  Sums sum;  // sum of thread 0
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    Bfloat16* const z = logits + row * columns;
    const std::int32_t label = next_label;
    const bool is_class = label >= 0 && label < classes;
    float right = formulas::kNan;
    if (needs_extras && is_class) right = to_float(z[label]);
    wait_groups<0>();

    formulas::SoftmaxPart part;
    RowExtras extras;
    float values[kWidth];
    for (int pack = thread; pack < packs; pack += threads) {
      const int first = pack * kWidth;
      load<kWidth>(held + first, true, values);
      float greatest = values[0];
#pragma unroll
      for (int k = 1; k < kWidth; ++k) greatest = fmaxf(greatest, values[k]);
      if (greatest > part.greatest) {
        part.total *= quick_exp(part.greatest - formulas::softmax_base(greatest));
        part.greatest = greatest;
        part.index = first;
      }
      const float base = formulas::softmax_base(part.greatest);
#pragma unroll
      for (int k = 0; k < kWidth; ++k) part.total += quick_exp(values[k] - base);
      if (!needs_extras) continue;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        extras.logits += static_cast<double>(values[k]);
        extras.before += formulas::comes_before(values[k], first + k, right, label) ? 1 : 0;
      }
    }
    if (part.index != INT32_MAX) {  // so far the start of the pack with the greatest logit
      while (to_float(held[part.index]) != part.greatest) ++part.index;
    }
    formulas::SoftmaxPart single;
#pragma unroll 1  // a few elements of one thread
    for (int k = 0; has_singles && k < singles; ++k) {
      const int o = packs * kWidth + k;
      const float value = to_float(held[o]);
      add_single(single, extras, value, o, right, label);
    }
    hand_over(formulas::merge(part, single), extras, needs_extras, block);
    __syncthreads();
    const unsigned lane = threadIdx.x % kWarp;
    part = merge_warp(lane < kWarps ? block.of_warp[lane] : formulas::SoftmaxPart{});
    if (threadIdx.x == 0) {
      extras = extras_of(block);
      if (is_class) right = to_float(held[label]);
    }
    __syncthreads();  // all threads have read the logits that others overwrite
    if (threadIdx.x == 0) add_row(sum, part, extras, right, label, target, want_gradient);

    const float share = scale / part.total, base = formulas::softmax_base(part.greatest);
    const std::int64_t next = row + gridDim.x;
    const bool is_last = next >= rows;
    if (!is_last) next_label = labels[next];
    Bfloat16* gradient = z + thread * kWidth;
    copied = logits + next * columns + thread * kWidth;
    for (int pack = thread; pack < packs; pack += threads, gradient += kStep, copied += kStep) {
      if (want_gradient) {
        const int first = pack * kWidth;
        load<kWidth>(held + first, true, values);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) values[k] = quick_exp(values[k] - base) * share - scaled_target.of_each;
        const unsigned own = static_cast<unsigned>(label) - static_cast<unsigned>(first);
        if (own < kWidth) {
#pragma unroll
          for (int k = 0; k < kWidth; ++k) values[k] -= own == static_cast<unsigned>(k) ? scaled_target.of_label : 0;
        }
        store<kWidth>(values, true, gradient);
      }
      if (!is_last) copy_async(copied, true, held + pack * kWidth);
    }
    if (has_singles) {
#pragma unroll 1
      for (int k = 0; want_gradient && k < singles; ++k) {
        const int o = packs * kWidth + k;
        const float of_one[1] = {formulas::softmax_gradient(to_float(held[o]), part, share, scaled_target, o == label)};
        store<1>(of_one, true, z + o);
      }
      if (!is_last) copy_async(copied, true, held + packs * kWidth);
    }
    end_group();
    if (!want_gradient) continue;
#pragma unroll 1  // a few elements
    for (int o = classes + thread; o < columns; o += threads) z[o] = static_cast<Bfloat16>(0.0f);
  }
  if (threadIdx.x == 0) hand_over(sum, 1, parts, sums);
}

/// Loss: formulas::OutputError or BinaryCrossEntropy, which treat outputs independently. factor: 1 / outputs, for the
/// sums.
template <int kWidth, class T, class Loss>
__global__ void __launch_bounds__(kBlock)
    loss_of_outputs(Loss loss, T* predictions, const float* targets, std::int64_t count, bool wide, double factor,
                    bool want_gradient, Sums* parts, double* sums) {
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t packs = count / kWidth;
  Sums sum;
  float values[kWidth], wanted[kWidth];
  for (std::int64_t pack = thread; pack < packs; pack += threads) {
    load<kWidth>(predictions + pack * kWidth, wide, values);
    load<kWidth>(targets + pack * kWidth, wide, wanted);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      loss.add(values[k], wanted[k], sum);
      values[k] = loss.gradient(values[k], wanted[k]);
    }
    if (want_gradient) store<kWidth>(values, wide, predictions + pack * kWidth);
  }
  const std::int64_t rest = packs * kWidth + thread;
  if (rest < count) {
    const float value = to_float(predictions[rest]);
    loss.add(value, targets[rest], sum);
    const float gradient[1] = {loss.gradient(value, targets[rest])};
    if (want_gradient) store<1>(gradient, true, predictions + rest);
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x == 0) hand_over(total, factor, parts, sums);
}

/// The same for rows of predictions with padding after `outputs` columns, whose gradient is 0, and for rows with
/// weights (LossOptions::weights, only with kWeighted).
template <bool kWeighted, class T, class Loss>
__global__ void __launch_bounds__(kBlock)
    loss_of_rows(Loss loss, T* predictions, const float* targets, const float* weights, std::int64_t count,
                 std::int64_t columns, std::int64_t outputs, double factor, bool want_gradient, Sums* parts,
                 double* sums) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  Sums sum;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
    const std::int64_t row = i / columns, column = i - row * columns;
    float gradient[1] = {0};
    if (column < outputs) {
      const float value = to_float(predictions[i]), wanted = targets[row * outputs + column];
      if constexpr (kWeighted) {
        const float weight = weights[row];
        Sums own;
        loss.add(value, wanted, own);
        own.loss *= static_cast<double>(weight);
        add(sum, own);
        gradient[0] = weight * loss.gradient(value, wanted);
      } else {
        loss.add(value, wanted, sum);
        gradient[0] = loss.gradient(value, wanted);
      }
    }
    if (want_gradient) store<1>(gradient, true, predictions + i);
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x == 0) hand_over(total, factor, parts, sums);
}

/// Cross-entropy with rows of probabilities as targets, one warp per row of any length. weights: nullptr means 1 each.
template <class T>
__global__ void __launch_bounds__(kBlock)
    cross_entropy_soft(T* logits, const float* targets, const float* weights, std::int64_t rows, int columns,
                       int classes, float smoothing, float scale, bool want_gradient, Sums* parts, double* sums) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp), step = static_cast<int>(kWarp);
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kBlock / kWarp);
  const float of_each = smoothing / static_cast<float>(classes);
  Sums sum;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kBlock / kWarp) + threadIdx.x / kWarp; row < rows;
       row += warps) {
    T* const z = logits + row * columns;
    const float* const target = targets + row * classes;
    const float weight = weights == nullptr ? 1 : weights[row];
    formulas::SoftmaxPart part, answer;  // `answer`: only the index of the greatest probability
    Sums of_row;                         // loss: targets * logits; metric: targets; found: classes before the answer
    for (int o = lane; o < classes; o += step) {
      const float value = to_float(z[o]), share = (1 - smoothing) * target[o] + of_each;
      formulas::raise_greatest(part, value, o);
      formulas::add_logit(part, value);
      formulas::raise_greatest(answer, target[o], o);
      of_row.metric += static_cast<double>(share);
      if (share != 0) of_row.loss += static_cast<double>(share) * static_cast<double>(value);
    }
    part = merge_warp(part);
    answer = merge_warp(answer);
    const bool has_answer = answer.index < classes;
    const float right = has_answer ? to_float(z[answer.index]) : formulas::kNan;
    for (int o = lane; !want_gradient && o < classes; o += step) {
      of_row.found += formulas::comes_before(to_float(z[o]), o, right, answer.index) ? 1 : 0;
    }
    of_row = sum_of_warp(of_row);
    if (lane == 0) {
      const double whole = std::log(static_cast<double>(part.total)) + static_cast<double>(part.greatest);
      sum.loss += static_cast<double>(weight) * (of_row.metric * whole - of_row.loss);
      sum.metric += formulas::is_correct(part, answer.index) ? 1 : 0;
      if (!want_gradient) {
        sum.found += formulas::is_among_top(part, right, static_cast<std::int64_t>(of_row.found)) ? 1 : 0;
      }
    }
    if (!want_gradient) continue;
    const auto all = static_cast<float>(__shfl_sync(kWholeWarp, of_row.metric, 0));
    const float factor = scale * weight, share = factor * all / part.total,
                base = formulas::softmax_base(part.greatest);
    for (int o = lane; o < columns; o += step) {
      const float gradient[1] = {
          o < classes ? std::exp(to_float(z[o]) - base) * share - ((1 - smoothing) * target[o] + of_each) * factor : 0};
      store<1>(gradient, true, z + o);
    }
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x == 0) hand_over(total, 1, parts, sums);
}

/// Computes the softmax of a row of few classes in one thread.
template <class T>
__device__ inline formulas::SoftmaxPart softmax_of_row(const T* z, int classes) {
  formulas::SoftmaxPart part;
  for (int o = 0; o < classes; ++o) {
    const float value = to_float(z[o]);
    formulas::raise_greatest(part, value, o);
    formulas::add_logit(part, value);
  }
  return part;
}

/// Positions of a block of dice_sums(), one per thread.
struct DiceTile {
  float base[kBlock], share[kBlock];  ///< softmax: exp(logit - base) * share
  std::int32_t label[kBlock];         ///< kNoClass: no class, or beyond the end
  WarpSums warps;
};

/// Sums over each part of a sample's positions, written to `work` ([samples, numbers], numbers = dice_work()): sum(p t)
/// of each class, sum(p) + sum(t) of each class, and the number of correct positions. blockIdx: sample and part. Each
/// thread computes the softmax of one position; then each warp adds these up for its classes.
template <class T>
__global__ void __launch_bounds__(kBlock) dice_sums(const T* logits, const std::int32_t* labels, std::int64_t positions,
                                                    int columns, int classes, double* work, std::int64_t numbers) {
  auto& tile = shared<DiceTile>();
  const std::int64_t sample = blockIdx.x, part = blockIdx.y;
  const std::int64_t first = positions * part / kDiceParts, end = positions * (part + 1) / kDiceParts;
  double* const own = work + sample * numbers + part * (2 * classes + 1);
  const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(kBlock);
  const int lane = thread % static_cast<int>(kWarp), warp = thread / static_cast<int>(kWarp);
  for (int i = thread; i < 2 * classes; i += threads) own[i] = 0;
  Sums sum;
  for (std::int64_t begin = first; begin < end; begin += threads) {
    const T* const z = logits + (sample * positions + begin) * columns;
    const bool is_inside = begin + thread < end;
    const std::int32_t label = is_inside ? labels[sample * positions + begin + thread] : kNoClass;
    tile.label[thread] = label;
    if (label >= 0) {
      const formulas::SoftmaxPart row = softmax_of_row(z + static_cast<std::int64_t>(thread) * columns, classes);
      tile.base[thread] = formulas::softmax_base(row.greatest);
      tile.share[thread] = 1 / row.total;
      sum.metric += formulas::is_correct(row, label) ? 1 : 0;
    }
    __syncthreads();
    for (int o = warp; o < classes; o += threads / static_cast<int>(kWarp)) {
      Sums here;  // loss: sum(p t), metric: sum(p) + sum(t)
      for (int i = lane; i < threads; i += static_cast<int>(kWarp)) {
        if (tile.label[i] < 0) continue;
        const float value = to_float(z[static_cast<std::int64_t>(i) * columns + o]);
        const auto p = static_cast<double>(std::exp(value - tile.base[i]) * tile.share[i]);
        here.metric += p;
        if (tile.label[i] != o) continue;
        here.loss += p;
        here.metric += 1;
      }
      here = sum_of_warp(here);
      if (lane != 0) continue;
      own[o] += here.loss;
      own[classes + o] += here.metric;
    }
    __syncthreads();  // the next tile overwrites it
  }
  const Sums total = sum_of_block(sum, tile.warps);
  if (threadIdx.x == 0) own[2 * classes] = total.metric;
}

/// Computes each sample's loss and correct positions, in the last two numbers of its work, and the derivatives of the
/// loss by the probabilities of each class, which overwrite the sums of the first part. Loss and derivatives are
/// multiplied by the number of positions.
__global__ void __launch_bounds__(kBlock)
    dice_slopes(std::int64_t positions, int classes, double* work, std::int64_t numbers) {
  double* const own = work + static_cast<std::int64_t>(blockIdx.x) * numbers;
  const std::int64_t step = 2 * static_cast<std::int64_t>(classes) + 1;
  Sums sum;
  for (int o = static_cast<int>(threadIdx.x); o < classes; o += static_cast<int>(kBlock)) {
    double common = 0, sizes = 0;
    for (std::int64_t part = 0; part < kDiceParts; ++part) {
      common += own[part * step + o];
      sizes += own[part * step + classes + o];
    }
    const formulas::DiceClass of_class = formulas::dice_class(common, sizes, classes);
    sum.loss += of_class.loss;
    own[o] = of_class.each * static_cast<double>(positions);
    own[classes + o] = of_class.of_label * static_cast<double>(positions);
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x != 0) return;
  double right = 0;
  for (std::int64_t part = 0; part < kDiceParts; ++part) right += own[part * step + 2 * classes];
  own[kDiceParts * step] = total.loss * static_cast<double>(positions);
  own[kDiceParts * step + 1] = right;
}

/// sums += losses and correct positions of all samples. One block.
__global__ void __launch_bounds__(kBlock)
    dice_total(const double* work, std::int64_t samples, std::int64_t columns, double* sums) {
  Sums sum;
  for (std::int64_t sample = threadIdx.x; sample < samples; sample += kBlock) {
    const double* const last = work + (sample + 1) * columns - 2;
    sum.loss += last[0];
    sum.metric += last[1];
  }
  const Sums total = sum_of_block(sum, shared<WarpSums>());
  if (threadIdx.x == 0) add_to(sums, total, 1);
}

/// Overwrites logits with their gradient, one position per thread at a time. rows: positions of all samples.
template <class T>
__global__ void __launch_bounds__(kBlock)
    dice_gradient(T* logits, const std::int32_t* labels, std::int64_t rows, std::int64_t positions, int columns,
                  int classes, double scale, const double* work, std::int64_t numbers) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; row < rows;
       row += threads) {
    T* const z = logits + row * columns;
    const double* const slopes = work + row / positions * numbers;
    const std::int32_t label = labels[row];
    formulas::SoftmaxPart part;
    double mean = 0;
    if (label >= 0) {
      part = softmax_of_row(z, classes);
      for (int o = 0; o < classes; ++o) {
        const auto p =
            static_cast<double>(std::exp(to_float(z[o]) - formulas::softmax_base(part.greatest)) / part.total);
        mean += p * (slopes[o] - (o == label ? slopes[classes + o] : 0));
      }
    }
    for (int o = 0; o < columns; ++o) {
      float gradient[1] = {0};
      if (label >= 0 && o < classes) {
        const auto p =
            static_cast<double>(std::exp(to_float(z[o]) - formulas::softmax_base(part.greatest)) / part.total);
        gradient[0] = static_cast<float>(p * (slopes[o] - (o == label ? slopes[classes + o] : 0) - mean) * scale);
      }
      store<1>(gradient, true, z + o);
    }
  }
}

}  // namespace lockstep::model::cuda
