#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels/channel_kernels.cuh"
#include "model/cuda/kernels/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

const float* floats(const Tensor& x) { return static_cast<const float*>(x.data); }
float* floats_to(const Tensor& x) { return static_cast<float*>(x.data); }

/// Runs sum_places() for as many samples at a time as the scratch holds, and then calls finish(first sample, samples,
/// parts of each, their sums).
template <class T, class Body, class Finish>
void each_sum_of_places(const char* name, cudaStream_t stream, const GroupNorm& norm, std::int64_t samples, bool wide,
                        const Scratch& scratch, const auto& body_from, const Finish& finish) {
  const auto run = [&]<int kWidth>() {
    const Tiling tiling = tiling_of(norm.places, norm.channels, kWidth, kBlock);
    const std::int64_t of_part = 2 * norm.channels * static_cast<std::int64_t>(sizeof(double)),
                       most = static_cast<std::int64_t>(scratch.bytes) / of_part;
    if (most == 0) throw std::invalid_argument(std::string(name) + ": too many channels");
    const std::int64_t useful = std::max<std::int64_t>(kTilingBlocks / (samples * tiling.tiles), 1);
    const std::int64_t wanted = std::clamp<std::int64_t>(std::min(useful, most / samples), 1, tiling.parts);
    const std::int64_t places_of_part = (norm.places + wanted - 1) / wanted;
    const auto parts = static_cast<unsigned>((norm.places + places_of_part - 1) / places_of_part);
    const std::int64_t at_once = std::min(samples, std::max<std::int64_t>(most / parts, 1));
    auto* const sums = static_cast<double*>(scratch.data);
    for (std::int64_t first = 0; first < samples; first += at_once) {
      const std::int64_t count = std::min(at_once, samples - first);
      launch(name, sum_places<kWidth, Body>,
             {.blocks = static_cast<unsigned>(count) * tiling.tiles,
              .parts = parts,
              .threads = kBlock,
              .shared_bytes = sizeof(PairSums<kWidth>)},
             stream, body_from(first), GroupShape(norm), tiling.tiles, places_of_part, tiling.column_bits, wide, sums);
      finish(first, count, static_cast<int>(parts), sums);
    }
  };
  if (norm.channels % kWideWidth<T> == 0) {
    run.template operator()<kWideWidth<T>>();
  } else {
    run.template operator()<1>();
  }
}

}  // namespace

void group_norm_forward(cudaStream_t stream, const GroupNorm& norm, const GroupNormForwardOperands& operands,
                        const Scratch& scratch) {
  const auto& [x, scale, shift, mean, inverse, y] = operands;
  with_compute_type("group_norm_forward", x, [&]<class T>() {
    const GroupShape shape(norm);
    const auto *const in = static_cast<const T*>(x.data), *const scales = static_cast<const T*>(scale.data),
                      *const shifts = static_cast<const T*>(shift.data);
    auto* const out = static_cast<T*>(y.data);
    each_sum_of_places<T, SumsOfSquares<T>>(
        "group_sums", stream, norm, x.rows, take_packs(in), scratch,
        [&](std::int64_t first) { return SumsOfSquares<T>{in + first * norm.elements()}; },
        [&](std::int64_t first, std::int64_t samples, int parts, const double* sums) {
          run_rows<T>(
              "group_moments", stream,
              GroupMoments{sums, floats_to(mean) + first * norm.groups, floats_to(inverse) + first * norm.groups, shape,
                           static_cast<double>(norm.epsilon), parts},
              samples, norm.groups, 1, false);
        });
    run_rows<T>("group_normalize", stream,
                GroupNormalize<T>{in, scales, shifts, floats(mean), floats(inverse), out, shape}, x.rows * norm.places,
                norm.channels, norm.channels, take_packs(in, scales, shifts, static_cast<const T*>(out)));
  });
}

void group_norm_backward(cudaStream_t stream, const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                         Accumulate accumulate, const Scratch& scratch) {
  const auto& [x, d_y, mean, inverse, scale, d_scale, d_shift, sums, d_x] = operands;
  auto* const totals = static_cast<double*>(sums.data);
  const GroupShape shape(norm);
  if (x.rows > 0) {
    with_compute_type("group_norm_backward", x, [&]<class T>() {
      const auto *const in = static_cast<const T*>(x.data), *const gradients = static_cast<const T*>(d_y.data),
                        *const scales = static_cast<const T*>(scale.data);
      auto* const out = static_cast<T*>(d_x.data);
      each_sum_of_places<T, SumsOfGradients<T>>(
          "group_gradient_sums", stream, norm, x.rows, take_packs(in, gradients), scratch,
          [&](std::int64_t first) {
            return SumsOfGradients<T>{in + first * norm.elements(), gradients + first * norm.elements(),
                                      floats(mean) + first * norm.groups};
          },
          [&](std::int64_t first, std::int64_t samples, int parts, const double* of_parts) {
            run_rows<T>("group_gradient_totals", stream,
                        GroupGradientSums{of_parts, floats(inverse) + first * norm.groups,
                                          totals + first * 2 * (norm.channels + norm.groups), shape, parts},
                        samples, norm.channels, 1, false);
          });
      if (!d_x.present()) return;
      run_rows<T>("group_gradient_means", stream, GroupGradientMeans<T>{scales, totals, shape}, x.rows, norm.groups, 1,
                  false);
      run_rows<T>("group_gradient", stream,
                  GroupGradient<T>{in, gradients, scales, floats(mean), floats(inverse), totals, out, shape},
                  x.rows * norm.places, norm.channels, norm.channels,
                  take_packs(in, gradients, scales, static_cast<const T*>(out)));
    });
  }
  if (!d_scale.present() && !d_shift.present()) return;
  run_rows<float>("group_parameter_gradient", stream,
                  GroupParameterGradient{totals, floats_to(d_scale), floats_to(d_shift), shape, x.rows,
                                         accumulate == Accumulate::yes},
                  1, norm.channels, 1, false);
}

void softmax_forward(cudaStream_t stream, const Tensor& x, const Tensor& y) {
  with_compute_type("softmax_forward", x, [&]<class T>() {
    run_rows<T>("softmax_forward", stream,
                SoftmaxForward<T>{static_cast<const T*>(x.data), static_cast<T*>(y.data), x.columns}, x.rows, 1, 1,
                false);
  });
}

void softmax_backward(cudaStream_t stream, const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("softmax_backward", y, [&]<class T>() {
    run_rows<T>("softmax_backward", stream,
                SoftmaxBackward<T>{static_cast<const T*>(y.data), static_cast<const T*>(d_y.data),
                                   static_cast<T*>(d_x.data), y.columns},
                y.rows, 1, 1, false);
  });
}

void multiply(cudaStream_t stream, const Tensor& a, const Tensor& b, const Tensor& y) {
  with_compute_type("multiply", a, [&]<class T>() {
    const MultiplyRows<T> body{static_cast<const T*>(a.data), static_cast<const T*>(b.data), static_cast<T*>(y.data),
                               a.columns, a.rows / b.rows};
    run_rows<T>("multiply", stream, body, a.rows, a.columns, a.columns, take_packs(body.a, body.b, body.y));
  });
}

void multiply_sums(cudaStream_t stream, const Tensor& a, const Tensor& d_y, const Tensor& d_b) {
  with_compute_type("multiply_sums", a, [&]<class T>() {
    const MultiplySums<T> body{static_cast<const T*>(a.data), static_cast<const T*>(d_y.data),
                               static_cast<T*>(d_b.data), a.columns, a.rows / d_b.rows};
    run_rows<T>("multiply_sums", stream, body, d_b.rows, a.columns, a.columns, take_packs(body.a, body.d_y, body.d_b));
  });
}

void copy_strided(cudaStream_t stream, const StridedCopy& copy, const Tensor& x, const Tensor& y) {
  std::int64_t rows = x.rows, granule = copy.extents[4];
  if (copy.from_steps[4] != 1 || copy.to_steps[4] != 1) granule = 1;
  for (const std::int64_t number : {copy.from_first, copy.to_first, copy.from_elements, copy.to_elements}) {
    granule = std::gcd(granule, number);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    rows *= copy.extents[i];
    granule = std::gcd(granule, std::gcd(copy.from_steps[i], copy.to_steps[i]));
  }
  with_compute_type("copy_strided", x, [&]<class T>() {
    const CopyStrided<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data), CopySteps(copy)};
    run_rows<T>("copy_strided", stream, body, rows, copy.extents[4], granule, take_packs(body.x, body.y));
  });
}

}  // namespace lockstep::model::cuda
