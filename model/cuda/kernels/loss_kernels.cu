#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/loss_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

/// Largest number of classes that a warp holds in its registers.
constexpr std::int64_t kMaxNarrow = 512;

/// sums += sum of the parts, times `factor`. One block.
__global__ void __launch_bounds__(kBlock) add_sums(const Sums* parts, int count, double factor, double* sums) {
  const Sums total = sum_of_parts(parts, count, shared<WarpSums>());
  if (threadIdx.x != 0) return;
  add_to(sums, total, factor);
}

__global__ void __launch_bounds__(kWarp) report_loss_sums(const double* sums, int losses, StepStatus* status) {
  if (threadIdx.x != 0) return;
  status->loss = sums[0];
  status->metric = sums[1];
  for (int i = 0; i < losses; ++i) status->losses[i] = sums[kLossSums + i];
  if (!std::isfinite(sums[0])) status->non_finite += 1;
}

/// Shares of all losses, as an argument of a kernel.
struct LossShares {
  LossShare of_loss[kMaxLosses];
};
__global__ void __launch_bounds__(kWarp)
    add_shares(const double* parts, const __grid_constant__ LossShares shares, int losses, double* sums) {
  if (threadIdx.x != 0) return;
  formulas::combine_losses(parts, shares.of_loss, static_cast<std::size_t>(losses), sums);
}

/// Enqueues the second kernel if the first has more than one block.
void finish(cudaStream_t stream, unsigned blocks, const Sums* parts, double factor, double* sums) {
  if (blocks == 1) return;
  launch("add_sums", add_sums, {.threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, parts, blocks, factor,
         sums);
}

/// True if two blocks with one row each fit on a multiprocessor. A multiprocessor has one KiB more shared memory than a
/// block can use, and needs one KiB per block.
bool holds_two_rows(std::int64_t classes, std::size_t shared_bytes) {
  constexpr std::size_t kReserved = 1024;
  return 2 * (held_bytes(classes) + kReserved) <= shared_bytes + kReserved;
}

template <class T>
void cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
                   Sums* parts, double* sums, std::size_t shared_bytes) {
  const std::int64_t classes = options.classes_of(logits);
  const formulas::SoftTarget target = formulas::soft_target(options.smoothing, classes);
  auto* const z = static_cast<T*>(logits.data);
  const auto* const answers = static_cast<const std::int32_t*>(labels.data);
  const auto* const weights = static_cast<const float*>(options.weights.data);
  if (logits.columns > kMaxNarrow) {
    constexpr int kWidth = kWideWidth<T>;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(logits.rows, kMaxParts));
    if constexpr (std::is_same_v<T, Bfloat16>) {
      if (weights == nullptr && logits.columns % kHeldWidth == 0 && takes_packs<kHeldWidth>(z) &&
          holds_two_rows(classes, shared_bytes)) {
        launch("softmax_cross_entropy", cross_entropy_in_shared,
               {.blocks = blocks,
                .threads = kWideBlock,
                .shared_bytes = held_bytes(classes),
                .shared_limit = SharedLimit::of_device},
               stream, z, answers, logits.rows, logits.columns, classes, target, options.scale, options.want_gradient,
               parts, sums);
        return finish(stream, blocks, parts, 1, sums);
      }
    }
    const auto kernel = weights == nullptr ? cross_entropy_wide<kWidth, false, T> : cross_entropy_wide<kWidth, true, T>;
    launch("softmax_cross_entropy", kernel,
           {.blocks = blocks, .threads = kWideBlock, .shared_bytes = sizeof(RowOfBlock)}, stream, z, answers, weights,
           logits.rows, logits.columns, classes, target, options.scale, options.want_gradient, takes_packs<kWidth>(z),
           parts, sums);
    return finish(stream, blocks, parts, 1, sums);
  }
  // Warps process rows one after the other. Up to four rows per warp run in a grid of one block, which needs no second
  // kernel.
  constexpr std::int64_t kWarps = kBlock / kWarp;
  const std::int64_t needed = logits.rows <= 4 * kWarps ? 1 : (logits.rows + kWarps - 1) / kWarps;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(needed, kMaxParts));
  const auto run = [&]<int kPerLane>() {
    const auto kernel =
        weights == nullptr ? cross_entropy_narrow<kPerLane, false, T> : cross_entropy_narrow<kPerLane, true, T>;
    launch("softmax_cross_entropy", kernel, {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)},
           stream, z, answers, weights, logits.rows, logits.columns, classes, target, options.scale,
           options.want_gradient, parts, sums);
  };
  if (logits.columns <= kWarp) {
    run.template operator()<1>();
  } else if (logits.columns <= 4 * kWarp) {
    run.template operator()<4>();
  } else {
    run.template operator()<kMaxNarrow / kWarp>();
  }
  finish(stream, blocks, parts, 1, sums);
}

/// Common arguments of losses that treat outputs independently.
struct LossOfOutputs {
  const char* name;
  cudaStream_t stream;
  const Tensor& predictions;
  const Tensor& targets;
  const LossOptions& options;
  Sums* parts;
  double* sums;
};

template <class T, class Loss>
void run_typed(const LossOfOutputs& work, const Loss& loss) {
  constexpr int kWidth = kWideWidth<T>;
  auto* const p = static_cast<T*>(work.predictions.data);
  const auto* const t = static_cast<const float*>(work.targets.data);
  const std::int64_t columns = work.predictions.columns, outputs = work.targets.columns;
  const double factor = 1 / static_cast<double>(outputs);
  const auto* const weights = static_cast<const float*>(work.options.weights.data);
  if (columns != outputs || weights != nullptr) {
    const auto kernel = weights == nullptr ? loss_of_rows<false, T, Loss> : loss_of_rows<true, T, Loss>;
    const unsigned blocks = blocks_of_sum(work.predictions.count());
    launch(work.name, kernel, {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, work.stream,
           loss, p, t, weights, work.predictions.count(), columns, outputs, factor, work.options.want_gradient,
           work.parts, work.sums);
    return finish(work.stream, blocks, work.parts, factor, work.sums);
  }
  const unsigned blocks = blocks_of_sum(work.predictions.count() / kWidth);
  launch(work.name, loss_of_outputs<kWidth, T, Loss>,
         {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, work.stream, loss, p, t,
         work.predictions.count(), takes_packs<kWidth>(p) && takes_packs<kWidth>(t), factor, work.options.want_gradient,
         work.parts, work.sums);
  finish(work.stream, blocks, work.parts, factor, work.sums);
}

template <class Loss>
void run(const LossOfOutputs& work, const Loss& loss) {
  with_compute_type(work.name, work.predictions, [&]<class T>() { run_typed<T>(work, loss); });
}

Sums* parts_in(const Scratch& scratch) {
  if (scratch.bytes < kMaxParts * sizeof(Sums)) {
    throw std::invalid_argument("scratch for sums has " + std::to_string(scratch.bytes) + " bytes, needed are " +
                                std::to_string(kMaxParts * sizeof(Sums)));
  }
  return static_cast<Sums*>(scratch.data);
}

}  // namespace

void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
                           const Tensor& sums, const Scratch& scratch, std::size_t shared_bytes) {
  if (logits.count() == 0) return;
  auto* const to = static_cast<double*>(sums.data);
  Sums* const parts = parts_in(scratch);
  with_compute_type("softmax_cross_entropy", logits,
                    [&]<class T>() { cross_entropy<T>(stream, logits, labels, options, parts, to, shared_bytes); });
}

void mean_error(cudaStream_t stream, const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                const Tensor& sums, const Scratch& scratch) {
  if (predictions.count() == 0) return;
  const LossOfOutputs work{
      "mean_error", stream, predictions, targets, options, parts_in(scratch), static_cast<double*>(sums.data)};
  const auto run_error = [&]<ErrorLoss kLoss>() {
    using Error = formulas::OutputError<kLoss>;
    run(work, Error{static_cast<float>(Error::kSlope * options.scale / static_cast<double>(targets.columns))});
  };
  switch (options.of_error) {
    case ErrorLoss::squared:
      return run_error.template operator()<ErrorLoss::squared>();
    case ErrorLoss::absolute:
      return run_error.template operator()<ErrorLoss::absolute>();
    case ErrorLoss::huber:
      return run_error.template operator()<ErrorLoss::huber>();
  }
}

void binary_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& targets, const LossOptions& options,
                          const Tensor& sums, const Scratch& scratch) {
  if (logits.count() == 0) return;
  const double factor = options.scale / static_cast<double>(targets.columns);
  run({"binary_cross_entropy", stream, logits, targets, options, parts_in(scratch), static_cast<double*>(sums.data)},
      formulas::BinaryCrossEntropy{.factor = static_cast<float>(factor), .smoothing = options.smoothing});
}

void soft_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& targets, const LossOptions& options,
                        const Tensor& sums, const Scratch& scratch) {
  constexpr std::int64_t kWarps = kBlock / kWarp;
  const std::int64_t needed = logits.rows <= 4 * kWarps ? 1 : (logits.rows + kWarps - 1) / kWarps;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(needed, kMaxParts));
  Sums* const parts = parts_in(scratch);
  auto* const to = static_cast<double*>(sums.data);
  with_compute_type("soft_cross_entropy", logits, [&]<class T>() {
    launch("soft_cross_entropy", cross_entropy_soft<T>,
           {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream,
           static_cast<T*>(logits.data), static_cast<const float*>(targets.data),
           static_cast<const float*>(options.weights.data), logits.rows, logits.columns, targets.columns,
           options.smoothing, options.scale, options.want_gradient, parts, to);
  });
  finish(stream, blocks, parts, 1, to);
}

void soft_dice(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
               const Tensor& work, const Tensor& sums) {
  const auto samples = static_cast<unsigned>(work.rows);
  const std::int64_t positions = logits.rows / work.rows, classes = options.classes_of(logits);
  auto* const numbers = static_cast<double*>(work.data);
  const auto* const answers = static_cast<const std::int32_t*>(labels.data);
  with_compute_type("soft_dice", logits, [&]<class T>() {
    launch("dice_sums", dice_sums<T>,
           {.blocks = samples, .parts = kDiceParts, .threads = kBlock, .shared_bytes = sizeof(DiceTile)}, stream,
           static_cast<const T*>(logits.data), answers, positions, logits.columns, classes, numbers, work.columns);
    launch("dice_slopes", dice_slopes, {.blocks = samples, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream,
           positions, classes, numbers, work.columns);
    launch("dice_total", dice_total, {.threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, numbers, work.rows,
           work.columns, static_cast<double*>(sums.data));
    if (!options.want_gradient) return;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((logits.rows + kBlock - 1) / kBlock, 1 << 20));
    launch("dice_gradient", dice_gradient<T>, {.blocks = blocks, .threads = kBlock}, stream,
           static_cast<T*>(logits.data), answers, logits.rows, positions, logits.columns, classes, options.scale,
           numbers, work.columns);
  });
}

void combine_losses(cudaStream_t stream, const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) {
  LossShares all;
  std::ranges::copy(shares, all.of_loss);
  launch("combine_losses", add_shares, {.threads = kWarp}, stream, static_cast<const double*>(parts.data), all,
         static_cast<int>(shares.size()), static_cast<double*>(sums.data));
}

void report_loss(cudaStream_t stream, const Tensor& sums, const Tensor& status) {
  launch("report_loss", report_loss_sums, {.threads = kWarp}, stream, static_cast<const double*>(sums.data),
         static_cast<int>(sums.columns - kLossSums), static_cast<StepStatus*>(status.data));
}

}  // namespace lockstep::model::cuda
