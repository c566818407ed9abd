#include <stdexcept>
#include <string>

#include "model/cuda/kernels.hpp"
#include "model/cuda/loss_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

/// Classes that a warp holds in its registers at most.
constexpr std::int64_t kMostNarrow = 512;

/// sums += the sums of the parts; those of loss and metric times `factor`. One block.
__global__ void __launch_bounds__(kBlock) add_sums(const Sums* parts, int count, double factor, double* sums) {
  const Sums total = sum_of_parts(parts, count, shared<WarpSums>());
  if (threadIdx.x != 0) return;
  add_to(sums, total, factor);
}

__global__ void __launch_bounds__(kWarp) report_loss_sums(const double* sums, StepStatus* status) {
  if (threadIdx.x != 0) return;
  status->loss = sums[0];
  status->metric = sums[1];
  if (!std::isfinite(sums[0])) status->non_finite += 1;
}

/// The second kernel, where the first has left parts.
void finish(cudaStream_t stream, unsigned blocks, const Sums* parts, double factor, double* sums) {
  if (blocks == 1) return;
  launch("add_sums", add_sums, {.threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, parts, blocks, factor,
         sums);
}

template <class T>
void cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
                   Sums* parts, double* sums) {
  const std::int64_t classes = options.classes_of(logits);
  const formulas::SoftTarget target = formulas::soft_target(options.smoothing, classes);
  auto* const z = static_cast<T*>(logits.data);
  const auto* const answers = static_cast<const std::int32_t*>(labels.data);
  if (logits.columns > kMostNarrow) {
    constexpr int kWidth = kWideWidth<T>;
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(logits.rows, kMostParts));
    launch("softmax_cross_entropy", cross_entropy_wide<kWidth, T>,
           {.blocks = blocks, .threads = kWideBlock, .shared_bytes = sizeof(RowOfBlock)}, stream, z, answers,
           logits.rows, logits.columns, classes, target, options.scale, options.want_gradient, takes_packs<kWidth>(z),
           parts, sums);
    return finish(stream, blocks, parts, 1, sums);
  }
  // Rows of a block are one after the other for a warp: four at most in a grid of one block, which needs no second
  // kernel.
  constexpr std::int64_t kWarps = kBlock / kWarp;
  const std::int64_t needed = logits.rows <= 4 * kWarps ? 1 : (logits.rows + kWarps - 1) / kWarps;
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(needed, kMostParts));
  const auto run = [&]<int kPerLane>() {
    launch("softmax_cross_entropy", cross_entropy_narrow<kPerLane, T>,
           {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, z, answers, logits.rows,
           logits.columns, classes, target, options.scale, options.want_gradient, parts, sums);
  };
  if (logits.columns <= kWarp) {
    run.template operator()<1>();
  } else if (logits.columns <= 4 * kWarp) {
    run.template operator()<4>();
  } else {
    run.template operator()<kMostNarrow / kWarp>();
  }
  finish(stream, blocks, parts, 1, sums);
}

template <class T>
void squared_errors(cudaStream_t stream, const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                    Sums* parts, double* sums) {
  constexpr int kWidth = kWideWidth<T>;
  auto* const p = static_cast<T*>(predictions.data);
  const auto* const t = static_cast<const float*>(targets.data);
  const auto outputs = static_cast<double>(predictions.columns);
  const unsigned blocks = blocks_of_sum(predictions.count() / kWidth);
  launch("mean_squared_error", squared_error<kWidth, T>,
         {.blocks = blocks, .threads = kBlock, .shared_bytes = sizeof(WarpSums)}, stream, p, t, predictions.count(),
         takes_packs<kWidth>(p) && takes_packs<kWidth>(t), 1 / outputs, 2 * options.scale / outputs,
         options.want_gradient, parts, sums);
  finish(stream, blocks, parts, 1 / outputs, sums);
}

Sums* parts_in(const Scratch& scratch) {
  if (scratch.bytes < kMostParts * sizeof(Sums)) {
    throw std::invalid_argument("scratch for sums has " + std::to_string(scratch.bytes) + " bytes, needed are " +
                                std::to_string(kMostParts * sizeof(Sums)));
  }
  return static_cast<Sums*>(scratch.data);
}

}  // namespace

void softmax_cross_entropy(cudaStream_t stream, const Tensor& logits, const Tensor& labels, const LossOptions& options,
                           const Tensor& sums, const Scratch& scratch) {
  if (logits.count() == 0) return;
  auto* const to = static_cast<double*>(sums.data);
  Sums* const parts = parts_in(scratch);
  if (logits.type == ElementType::float32) {
    return cross_entropy<float>(stream, logits, labels, options, parts, to);
  }
  if (logits.type == ElementType::bfloat16) {
    return cross_entropy<Bfloat16>(stream, logits, labels, options, parts, to);
  }
  throw std::invalid_argument(std::string("softmax_cross_entropy: logits of ") + name_of(logits.type));
}

void mean_squared_error(cudaStream_t stream, const Tensor& predictions, const Tensor& targets,
                        const LossOptions& options, const Tensor& sums, const Scratch& scratch) {
  if (predictions.count() == 0) return;
  auto* const to = static_cast<double*>(sums.data);
  Sums* const parts = parts_in(scratch);
  if (predictions.type == ElementType::float32) {
    return squared_errors<float>(stream, predictions, targets, options, parts, to);
  }
  if (predictions.type == ElementType::bfloat16) {
    return squared_errors<Bfloat16>(stream, predictions, targets, options, parts, to);
  }
  throw std::invalid_argument(std::string("mean_squared_error: predictions of ") + name_of(predictions.type));
}

void report_loss(cudaStream_t stream, const Tensor& sums, const Tensor& status) {
  launch("report_loss", report_loss_sums, {.threads = kWarp}, stream, static_cast<const double*>(sums.data),
         static_cast<StepStatus*>(status.data));
}

}  // namespace lockstep::model::cuda
