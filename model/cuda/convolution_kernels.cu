#include <algorithm>
#include <stdexcept>

#include "model/cuda/convolution_kernels.cuh"
#include "model/cuda/image_kernels.hpp"

namespace lockstep::model::cuda {

void gather_patches(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& patches) {
  with_compute_type("gather_patches", x, [&]<class T>() {
    const GatherPatches<T> body{static_cast<const T*>(x.data), static_cast<T*>(patches.data),
                                Slide(shape.in, shape.out, shape.window), shape.in.channels, patches.columns};
    const std::int64_t rows = x.rows * shape.out.pixels();
    if (patches.columns != shape.patch()) {
      const GatherPaddedPatches<T> padded{body, shape.patch()};
      const PatchSegments segments = patch_segments<T>(body.slide, body.channels, patches.columns);
      if (segments.pixels > 0) {
        const std::int64_t count = x.rows * shape.out.height * segments.of_row;
        if (count == 0) return;
        constexpr std::int64_t kGridBlocks = 132 * 6;
        return launch("gather_patches", gather_patch_rows<T>,
                      {.blocks = static_cast<unsigned>(std::min(count, kGridBlocks)),
                       .threads = kBlock,
                       .shared_bytes = sizeof(PatchSource<T>)},
                      stream, padded, segments, count, take_packs(body.patches));
      }
      return run_rows<T>("gather_patches", stream, padded, rows, patches.columns, patches.columns,
                         take_packs(body.patches));
    }
    run_rows<T>("gather_patches", stream, body, rows, patches.columns, shape.in.channels,
                take_packs(body.x, body.patches));
  });
}

void add_patches(cudaStream_t stream, const Convolution& shape, const Tensor& d_patches, const Tensor& d_x) {
  with_compute_type("add_patches", d_x, [&]<class T>() {
    const AddPatches<T> body{static_cast<const T*>(d_patches.data), static_cast<T*>(d_x.data),
                             Slide(shape.in, shape.out, shape.window), shape.in.channels, d_patches.columns};
    run_rows<T>("add_patches", stream, body, d_x.rows * shape.in.pixels(), shape.in.channels, shape.in.channels,
                take_packs(body.d_patches, body.d_x));
  });
}

void transpose(cudaStream_t stream, const Tensor& in, Accumulate accumulate, const Tensor& out) {
  if (in.count() == 0) return;
  const auto run = [&]<class T, class Out>() {
    constexpr std::int64_t kSide = TransposeTile<T>::kSide, kMaxParts = 64;
    const auto parts = std::min((in.rows + kSide - 1) / kSide, kMaxParts);
    launch("transpose", transpose_tiles<T, Out>,
           {.blocks = static_cast<unsigned>((in.columns + kSide - 1) / kSide),
            .parts = static_cast<unsigned>(parts),
            .threads = kBlock,
            .shared_bytes = sizeof(TransposeTile<T>)},
           stream, static_cast<const T*>(in.data), in.rows, in.columns, accumulate == Accumulate::yes,
           static_cast<Out*>(out.data));
  };
  with_compute_type("transpose", in, [&]<class T>() {
    if (out.type == in.type) {
      run.template operator()<T, T>();
    } else if (out.type == ElementType::float32) {
      run.template operator()<T, float>();
    } else {
      throw std::invalid_argument(std::string("transpose: ") + name_of(in.type) + " to " + name_of(out.type));
    }
  });
}

}  // namespace lockstep::model::cuda
