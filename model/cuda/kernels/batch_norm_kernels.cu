#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels/batch_norm_kernels.cuh"
#include "model/cuda/kernels/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Writes the values of this batch for the running statistics.
__global__ void __launch_bounds__(kBlock) batch_statistics(const double* sums, std::int64_t channels, double weight,
                                                           bool add, float* d_mean, float* d_variance) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  if (c >= channels) return;
  const double count = sums[2 * channels];
  const formulas::Moments moments = formulas::moments_of(sums[c], sums[channels + c], count);
  const auto mean = static_cast<float>(weight * moments.mean);
  const auto variance = static_cast<float>(weight * formulas::unbiased_variance(moments.variance, count));
  d_mean[c] = add ? d_mean[c] + mean : mean;
  d_variance[c] = add ? d_variance[c] + variance : variance;
}

unsigned blocks_of(std::int64_t channels) { return static_cast<unsigned>((channels + kBlock - 1) / kBlock); }

/// Returns the number of pixels in a tensor of images.
std::int64_t pixels_of(const BatchNorm& norm, const Tensor& x) { return x.count() / norm.channels; }

/// Minimum rows per thread with which a sum is split into parts.
constexpr std::int64_t kRowsOfSums = 16;

template <class T, class Body>
void pairs_of(const char* name, cudaStream_t stream, const Body& body, std::int64_t rows, std::int64_t columns,
              bool wide, double* sums, const PairCopies& copies, const Scratch& scratch) {
  const auto run = [&]<int kWidth>() {
    const Tiling tiling = norm_tiling(rows, columns, kWidth, kRowsOfSums);
    const bool alone = tiling.parts == 1;
    const std::size_t needed = alone ? 0 : tiling.parts * 2 * static_cast<std::size_t>(columns) * sizeof(double);
    if (scratch.bytes < needed) {
      throw std::invalid_argument(std::string(name) + ": scratch has " + std::to_string(scratch.bytes) +
                                  " bytes, needed are " + std::to_string(needed));
    }
    auto* const parts = static_cast<double*>(scratch.data);
    launch(name, column_pairs<kWidth, Body>,
           {.blocks = tiling.tiles,
            .parts = tiling.parts,
            .threads = kBlock,
            .shared_bytes = sizeof(ColumnPairs<Body, kWidth>)},
           stream, body, rows, columns, tiling.column_bits, wide, alone ? sums : parts, copies);
    if (alone) return;
    launch("add_pair_parts", add_pair_parts,
           {.blocks = static_cast<unsigned>((columns + kPairColumns - 1) / kPairColumns),
            .threads = kBlock,
            .shared_bytes = sizeof(PairLanes)},
           stream, parts, tiling.parts, columns, rows, sums, copies);
  };
  if (columns % kWideWidth<T> == 0) {
    run.template operator()<kWideWidth<T>>();
  } else {
    run.template operator()<1>();
  }
}

/// Enqueues norm_rows().
template <class T, class Body>
void run_norm_rows(const char* name, cudaStream_t stream, const Body& body, std::int64_t rows, std::int64_t columns,
                   bool wide) {
  if (columns == 0) return;
  const auto run = [&]<int kWidth>() {
    const Tiling tiling = norm_tiling(rows, columns, kWidth, 1);
    launch(name, norm_rows<kWidth, Body>,
           {.blocks = tiling.tiles,
            .parts = tiling.parts,
            .threads = kBlock,
            .shared_bytes = sizeof(ColumnCoefficients<Body::kCoefficients>)},
           stream, body, rows, columns, tiling.column_bits, wide);
  };
  if (columns % kWideWidth<T> == 0) {
    run.template operator()<kWideWidth<T>>();
  } else {
    run.template operator()<1>();
  }
}

/// Calls run<T, kRelu>().
template <class Run>
void with_relu(const char* what, const Tensor& x, bool relu, const Run& run) {
  with_compute_type(what, x, [&]<class T>() {
    if (relu) {
      run.template operator()<T, true>();
    } else {
      run.template operator()<T, false>();
    }
  });
}

}  // namespace

std::size_t batch_norm_scratch_bytes() noexcept {
  return static_cast<std::size_t>(kNormBlocks * kMaxNormColumns) * 2 * sizeof(double);
}

void batch_norm_sums(cudaStream_t stream, const BatchNorm& norm, const Tensor& x, const Tensor& sums,
                     const Scratch& scratch) {
  auto* const to = static_cast<double*>(sums.data);
  const std::int64_t rows = pixels_of(norm, x);
  with_compute_type("batch_norm_sums", x, [&]<class T>() {
    const SumForward<T> body{static_cast<const T*>(x.data)};
    pairs_of<T>("batch_norm_sums", stream, body, rows, norm.channels, take_packs(body.x), to,
                {.count = to + 2 * norm.channels}, scratch);
  });
}

void batch_norm_forward(cudaStream_t stream, const BatchNorm& norm, const BatchNormForwardOperands& operands) {
  const auto& [x, sums, scale, shift, residual, mean, inverse, y] = operands;
  with_relu("batch_norm_forward", x, norm.relu, [&]<class T, bool kRelu>() {
    const BatchNormForward<T, kRelu> body{
        {static_cast<const T*>(x.data), static_cast<const T*>(residual.data), static_cast<T*>(y.data)},
        static_cast<const double*>(sums.data),
        norm.channels,
        norm.epsilon,
        static_cast<const T*>(scale.data),
        static_cast<const T*>(shift.data),
        static_cast<float*>(mean.data),
        static_cast<float*>(inverse.data)};
    run_norm_rows<T>("batch_norm_forward", stream, body, pixels_of(norm, x), norm.channels,
                     take_packs(body.x, body.residual, body.y));
  });
}

void batch_norm_statistics(cudaStream_t stream, const BatchNorm& norm, const Tensor& sums, double weight,
                           Accumulate accumulate, const Tensor& d_mean, const Tensor& d_variance) {
  launch("batch_norm_statistics", batch_statistics, {.blocks = blocks_of(norm.channels), .threads = kBlock}, stream,
         static_cast<const double*>(sums.data), norm.channels, weight, accumulate == Accumulate::yes,
         static_cast<float*>(d_mean.data), static_cast<float*>(d_variance.data));
}

void batch_norm_inference(cudaStream_t stream, const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
  const auto& [x, mean, variance, scale, shift, residual, y] = operands;
  with_relu("batch_norm_inference", x, norm.relu, [&]<class T, bool kRelu>() {
    const BatchNormInference<T, kRelu> body{
        {static_cast<const T*>(x.data), static_cast<const T*>(residual.data), static_cast<T*>(y.data)},
        static_cast<const T*>(mean.data),
        static_cast<const T*>(variance.data),
        static_cast<const T*>(scale.data),
        static_cast<const T*>(shift.data),
        norm.epsilon};
    run_norm_rows<T>("batch_norm_inference", stream, body, pixels_of(norm, x), norm.channels,
                     take_packs(body.x, body.residual, body.y));
  });
}

void batch_norm_inference_backward(cudaStream_t stream, const BatchNorm& norm,
                                   const BatchNormInferenceBackwardOperands& operands) {
  const auto& [y, d_y, variance, scale, d_x] = operands;
  with_relu("batch_norm_inference_backward", d_y, norm.relu, [&]<class T, bool kRelu>() {
    const BatchNormInferenceBackward<T, kRelu> body{
        static_cast<const T*>(y.data),     static_cast<T*>(d_y.data), static_cast<const T*>(variance.data),
        static_cast<const T*>(scale.data), static_cast<T*>(d_x.data), norm.epsilon};
    run_norm_rows<T>("batch_norm_inference_backward", stream, body, pixels_of(norm, d_y), norm.channels,
                     take_packs(body.d_y, body.d_x) && (!kRelu || take_packs(body.y)));
  });
}

void batch_norm_backward_sums(cudaStream_t stream, const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                              Accumulate accumulate, const Scratch& scratch) {
  const auto& [x, y, d_y, mean, inverse, scale, shift, d_scale, d_shift, sums] = operands;
  const PairCopies copies{.first = static_cast<float*>(d_shift.data),
                          .second = static_cast<float*>(d_scale.data),
                          .add = accumulate == Accumulate::yes};
  with_compute_type("batch_norm_backward_sums", x, [&]<class T>() {
    const auto run = [&]<ReluGradient kRelu>() {
      const SumBackward<T, kRelu> body{static_cast<const T*>(x.data),
                                       static_cast<const T*>(y.data),
                                       static_cast<T*>(d_y.data),
                                       static_cast<const float*>(mean.data),
                                       static_cast<const float*>(inverse.data),
                                       static_cast<const T*>(scale.data),
                                       static_cast<const T*>(shift.data)};
      pairs_of<T>("batch_norm_backward_sums", stream, body, pixels_of(norm, x), norm.channels,
                  take_packs(body.x, body.d_y) && (kRelu != ReluGradient::of_y || take_packs(body.y)),
                  static_cast<double*>(sums.data), copies, scratch);
    };
    if (shift.present()) return run.template operator()<ReluGradient::recomputed>();
    if (norm.relu) return run.template operator()<ReluGradient::of_y>();
    run.template operator()<ReluGradient::all>();
  });
}

void batch_norm_backward(cudaStream_t stream, const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
  const auto& [x, d_y, mean, inverse, scale, shift, forward_sums, sums, d_x] = operands;
  with_relu("batch_norm_backward", x, shift.present(), [&]<class T, bool kRecomputed>() {
    const BatchNormBackward<T, kRecomputed> body{static_cast<const T*>(x.data),
                                                 static_cast<const T*>(d_y.data),
                                                 static_cast<const float*>(mean.data),
                                                 static_cast<const float*>(inverse.data),
                                                 static_cast<const T*>(scale.data),
                                                 static_cast<const T*>(shift.data),
                                                 static_cast<const double*>(forward_sums.data),
                                                 static_cast<const double*>(sums.data),
                                                 static_cast<T*>(d_x.data),
                                                 norm.channels};
    run_norm_rows<T>("batch_norm_backward", stream, body, pixels_of(norm, x), norm.channels,
                     take_packs(body.x, body.d_y, body.d_x));
  });
}

}  // namespace lockstep::model::cuda
