#include <numeric>

#include "model/cuda/kernels/image_kernels.hpp"
#include "model/cuda/kernels/pool_kernels.cuh"

namespace lockstep::model::cuda {

namespace {

Subsample subsample_of(const ImageShape& in, const ImageShape& out, std::int64_t stride) {
  return {static_cast<int>(in.height),
          static_cast<int>(in.width),
          static_cast<int>(out.height),
          static_cast<int>(out.width),
          static_cast<int>(stride),
          in.channels,
          out.channels,
          (out.channels - in.channels) / 2};
}

/// Returns the length of runs of channels that packs must not cross.
std::int64_t granule_of(const Subsample& shape) {
  return std::gcd(std::gcd(shape.in_channels, shape.out_channels), shape.before);
}

template <class T>
bool takes_places(const std::uint8_t* chosen) {
  return takes_packs<kWideWidth<T>>(chosen);
}

}  // namespace

void max_pool_forward(cudaStream_t stream, const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) {
  with_compute_type("max_pool_forward", x, [&]<class T>() {
    const auto run = [&]<int kSide>() {
      const MaxPoolForward<T, kSide> body{static_cast<const T*>(x.data), static_cast<T*>(y.data),
                                          static_cast<std::uint8_t*>(chosen.data),
                                          Slide(shape.in, shape.out, shape.window), shape.in.channels};
      run_rows<T>("max_pool_forward", stream, body, x.rows * shape.out.pixels(), shape.in.channels, shape.in.channels,
                  take_packs(body.x, body.y) && takes_places<T>(body.chosen));
    };
    if (!Slide::is_for(shape.in, shape.window)) {
      const VolumeMaxPoolForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data),
                                         static_cast<std::uint8_t*>(chosen.data),
                                         SlideOfVolumes(shape.in, shape.out, shape.window), shape.in.channels};
      return run_rows<T>("max_pool_forward", stream, body, x.rows * shape.out.pixels(), shape.in.channels,
                         shape.in.channels, take_packs(body.x, body.y) && takes_places<T>(body.chosen));
    }
    if (shape.window.height.size == 3 && shape.window.width.size == 3) return run.template operator()<3>();
    run.template operator()<0>();
  });
}

void max_pool_backward(cudaStream_t stream, const Pool& shape, const Tensor& chosen, const Tensor& d_y,
                       const Tensor& d_x) {
  with_compute_type("max_pool_backward", d_x, [&]<class T>() {
    const Slide slide(shape.in, shape.out, shape.window);
    const auto run = [&](const auto& body, std::int64_t rows) {
      run_rows<T>("max_pool_backward", stream, body, rows, shape.in.channels, shape.in.channels,
                  take_packs(body.d_y, body.d_x) && takes_places<T>(body.chosen));
    };
    const auto* const choices = static_cast<const std::uint8_t*>(chosen.data);
    const auto* const gradients = static_cast<const T*>(d_y.data);
    auto* const to = static_cast<T*>(d_x.data);
    if (!Slide::is_for(shape.in, shape.window)) {
      return run(VolumeMaxPoolBackward<T>{choices, gradients, to, SlideOfVolumes(shape.in, shape.out, shape.window),
                                          shape.in.channels},
                 d_x.rows * shape.in.pixels());
    }
    if (!MaxPoolBackwardOfSquares<T>::is_for(slide)) {
      return run(MaxPoolBackward<T>{choices, gradients, to, slide, shape.in.channels}, d_x.rows * shape.in.pixels());
    }
    const int down = (slide.in_height + slide.top + 1) / 2, across = (slide.in_width + slide.left + 1) / 2;
    run(MaxPoolBackwardOfSquares<T>{choices, gradients, to, slide, shape.in.channels, down, across},
        d_x.rows * down * across);
  });
}

void average_pool_forward(cudaStream_t stream, const AveragePool& shape, const Tensor& x, const Tensor& y) {
  with_compute_type("average_pool_forward", x, [&]<class T>() {
    const Pool& pool = shape.pool;
    const AveragePoolForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data),
                                     SlideOfVolumes(pool.in, pool.out, pool.window), pool.in.channels,
                                     PoolDivisor(shape)};
    run_rows<T>("average_pool_forward", stream, body, y.rows * pool.out.pixels(), pool.in.channels, pool.in.channels,
                take_packs(body.x, body.y));
  });
}

namespace {

/// True if the windows cover each pixel exactly once.
bool covers_once(const Pool& pool) {
  const auto covers = [](const Sweep& sweep, std::int64_t in, std::int64_t out) {
    return sweep.size == sweep.stride && sweep.dilation == 1 && sweep.before == 0 && out * sweep.size == in;
  };
  return covers(pool.window.depth, pool.in.depth, pool.out.depth) &&
         covers(pool.window.height, pool.in.height, pool.out.height) &&
         covers(pool.window.width, pool.in.width, pool.out.width);
}

}  // namespace

void average_pool_backward(cudaStream_t stream, const AveragePool& shape, const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("average_pool_backward", d_x, [&]<class T>() {
    const Pool& pool = shape.pool;
    if (covers_once(pool)) {
      const bool divides = shape.divisor != AveragePool::Divisor::one;
      const AverageTilesBackward<T> body{static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data),
                                         SlideOfVolumes(pool.in, pool.out, pool.window), pool.in.channels,
                                         divides ? 1.0f / static_cast<float>(pool.window.positions()) : 1.0f};
      return run_rows<T>("average_pool_backward", stream, body, d_y.rows * pool.out.pixels(), pool.in.channels,
                         pool.in.channels, take_packs(body.d_y, body.d_x));
    }
    const AveragePoolBackward<T> body{static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data),
                                      SlideOfVolumes(pool.in, pool.out, pool.window), pool.in.channels,
                                      PoolDivisor(shape)};
    run_rows<T>("average_pool_backward", stream, body, d_x.rows * pool.in.pixels(), pool.in.channels, pool.in.channels,
                take_packs(body.d_y, body.d_x));
  });
}

void linear_upsampling_forward(cudaStream_t stream, const LinearUpsampling& shape, const Tensor& x, const Tensor& y) {
  with_compute_type("linear_upsampling_forward", x, [&]<class T>() {
    const UpsampleForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data), UpsamplingOnDevice(shape)};
    run_rows<T>("linear_upsampling_forward", stream, body, y.rows * shape.out.pixels(), shape.in.channels,
                shape.in.channels, take_packs(body.x, body.y));
  });
}

void linear_upsampling_backward(cudaStream_t stream, const LinearUpsampling& shape, const Tensor& d_y,
                                const Tensor& d_x) {
  with_compute_type("linear_upsampling_backward", d_x, [&]<class T>() {
    const UpsampleBackward<T> body{static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data),
                                   UpsamplingOnDevice(shape)};
    run_rows<T>("linear_upsampling_backward", stream, body, d_x.rows * shape.in.pixels(), shape.in.channels,
                shape.in.channels, take_packs(body.d_y, body.d_x));
  });
}

void global_average_forward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y) {
  with_compute_type("global_average_forward", x, [&]<class T>() {
    const AverageForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data), static_cast<int>(in.pixels()),
                                 in.channels};
    run_rows<T>("global_average_forward", stream, body, x.rows, in.channels, in.channels, take_packs(body.x, body.y));
  });
}

void global_average_backward(cudaStream_t stream, const ImageShape& in, const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("global_average_backward", d_x, [&]<class T>() {
    const AverageBackward<T> body{static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data),
                                  static_cast<int>(in.pixels()), in.channels};
    run_rows<T>("global_average_backward", stream, body, d_x.rows * in.pixels(), in.channels, in.channels,
                take_packs(body.d_y, body.d_x));
  });
}

void subsample_forward(cudaStream_t stream, const ImageShape& in, const ImageShape& out, std::int64_t stride,
                       const Tensor& x, const Tensor& y) {
  with_compute_type("subsample_forward", x, [&]<class T>() {
    const SubsampleForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data),
                                   subsample_of(in, out, stride)};
    run_rows<T>("subsample_forward", stream, body, y.rows * out.pixels(), out.channels, granule_of(body.shape),
                take_packs(body.x, body.y));
  });
}

void subsample_backward(cudaStream_t stream, const ImageShape& in, const ImageShape& out, std::int64_t stride,
                        const Tensor& d_y, const Tensor& d_x) {
  with_compute_type("subsample_backward", d_x, [&]<class T>() {
    const SubsampleBackward<T> body{static_cast<const T*>(d_y.data), static_cast<T*>(d_x.data),
                                    subsample_of(in, out, stride)};
    run_rows<T>("subsample_backward", stream, body, d_y.rows * out.pixels(), in.channels, granule_of(body.shape),
                take_packs(body.d_y, body.d_x));
  });
}

}  // namespace lockstep::model::cuda
