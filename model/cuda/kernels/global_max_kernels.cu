#include "model/cuda/kernels/global_max_kernels.cuh"
#include "model/cuda/kernels/image_kernels.hpp"
#include "model/cuda/kernels/tiling.hpp"

namespace lockstep::model::cuda {

namespace {

/// Calls run.operator()<kWidth>(images, grid), with packs of T if the channels of a pixel are whole packs.
template <class T, class Run>
void for_tiles(const ImageShape& in, std::int64_t batch, const Run& run) {
  if (batch == 0) return;
  const auto with_width = [&]<int kWidth>() {
    const auto pixels = static_cast<int>(in.pixels());
    const Tiling tiling = tiling_of(pixels, in.channels, kWidth, kBlock);
    const TiledImages images{pixels, in.channels, tiling.tiles, tiling.column_bits};
    run.template operator()<kWidth>(images, Grid{.blocks = static_cast<unsigned>(batch * tiling.tiles),
                                                 .threads = kBlock,
                                                 .shared_bytes = sizeof(OfThreads<kWidth, float>)});
  };
  if (in.channels % kWideWidth<T> == 0) {
    with_width.template operator()<kWideWidth<T>>();
  } else {
    with_width.template operator()<1>();
  }
}

}  // namespace

void global_max_forward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y) {
  with_compute_type("global_max_forward", x, [&]<class T>() {
    for_tiles<T>(in, x.rows, [&]<int kWidth>(const TiledImages& images, const Grid& grid) {
      const T* const from = static_cast<const T*>(x.data);
      T* const to = static_cast<T*>(y.data);
      launch("global_max_forward", global_max<kWidth, T>, grid, stream, from, to, images,
             takes_packs<kWidth>(from) && takes_packs<kWidth>(to));
    });
  });
}

void global_max_backward(cudaStream_t stream, const ImageShape& in, const Tensor& x, const Tensor& y, const Tensor& d_y,
                         const Tensor& d_x) {
  with_compute_type("global_max_backward", d_x, [&]<class T>() {
    for_tiles<T>(in, x.rows, [&]<int kWidth>(const TiledImages& images, const Grid& grid) {
      const T *const from = static_cast<const T*>(x.data), *const greatest = static_cast<const T*>(y.data);
      const T* const gradient = static_cast<const T*>(d_y.data);
      T* const to = static_cast<T*>(d_x.data);
      launch("global_max_backward", global_max_gradient<kWidth, T>, grid, stream, from, greatest, gradient, to, images,
             takes_packs<kWidth>(from) && takes_packs<kWidth>(greatest) && takes_packs<kWidth>(gradient) &&
                 takes_packs<kWidth>(to));
    });
  });
}

}  // namespace lockstep::model::cuda
