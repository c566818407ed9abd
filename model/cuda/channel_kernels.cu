#include <numeric>

#include "model/cuda/channel_kernels.cuh"
#include "model/cuda/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

const float* floats(const Tensor& x) { return static_cast<const float*>(x.data); }
float* floats_to(const Tensor& x) { return static_cast<float*>(x.data); }

}  // namespace

void group_norm_forward(cudaStream_t stream, const GroupNorm& norm, const GroupNormForwardOperands& operands) {
  const auto& [x, scale, shift, mean, inverse, y] = operands;
  with_compute_type("group_norm_forward", x, [&]<class T>() {
    const GroupShape shape(norm);
    run_rows<T>("group_moments", stream,
                GroupMoments<T>{static_cast<const T*>(x.data), floats_to(mean), floats_to(inverse), shape,
                                static_cast<double>(norm.epsilon)},
                x.rows, norm.groups, 1, false);
    run_rows<T>("group_normalize", stream,
                GroupNormalize<T>{static_cast<const T*>(x.data), static_cast<const T*>(scale.data),
                                  static_cast<const T*>(shift.data), floats(mean), floats(inverse),
                                  static_cast<T*>(y.data), shape},
                x.rows * norm.places, norm.channels, 1, false);
  });
}

void group_norm_backward(cudaStream_t stream, const GroupNorm& norm, const GroupNormBackwardOperands& operands,
                         Accumulate accumulate) {
  const auto& [x, d_y, mean, inverse, scale, d_scale, d_shift, sums, d_x] = operands;
  auto* const parts = static_cast<double*>(sums.data);
  const GroupShape shape(norm);
  with_compute_type("group_norm_backward", x, [&]<class T>() {
    const auto *const in = static_cast<const T*>(x.data), *const gradients = static_cast<const T*>(d_y.data),
                      *const scales = static_cast<const T*>(scale.data);
    run_rows<T>("group_gradient_sums", stream,
                GroupGradientSums<T>{in, gradients, floats(mean), floats(inverse), parts, shape}, x.rows, norm.channels,
                1, false);
    if (!d_x.present()) return;
    run_rows<T>("group_gradient_means", stream, GroupGradientMeans<T>{scales, parts, shape}, x.rows, norm.groups, 1,
                false);
    run_rows<T>(
        "group_gradient", stream,
        GroupGradient<T>{in, gradients, scales, floats(mean), floats(inverse), parts, static_cast<T*>(d_x.data), shape},
        x.rows * norm.places, norm.channels, 1, false);
  });
  if (!d_scale.present() && !d_shift.present()) return;
  run_rows<float>("group_parameter_gradient", stream,
                  GroupParameterGradient{parts, floats_to(d_scale), floats_to(d_shift), shape, x.rows,
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
