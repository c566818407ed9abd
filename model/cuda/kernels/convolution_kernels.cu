#include <algorithm>
#include <stdexcept>

#include "model/cuda/kernels/convolution_kernels.cuh"
#include "model/cuda/kernels/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Returns false and does nothing unless packs are whole pixels of kChannels.
template <class T, int kChannels>
bool gather_few_channels(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& patches) {
  if (shape.in.channels != kChannels || patches.columns % kWideWidth<T> != 0) return false;
  const GatherFewChannels<T, kChannels> body{static_cast<const T*>(x.data), static_cast<T*>(patches.data),
                                             SlideOfVolumes(shape.in, shape.out, shape.window), patches.columns,
                                             shape.patch()};
  run_rows<T>("gather_patches", stream, body, x.rows * shape.out.pixels(), patches.columns, patches.columns,
              take_packs(body.x, body.patches));
  return true;
}

}  // namespace

void gather_patches(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& patches) {
  with_compute_type("gather_patches", x, [&]<class T>() {
    if (!Slide::is_for(shape.in, shape.window)) {
      if (gather_few_channels<T, 1>(stream, shape, x, patches) ||
          gather_few_channels<T, 2>(stream, shape, x, patches) ||
          gather_few_channels<T, 4>(stream, shape, x, patches)) {
        return;
      }
      const GatherVolumePatches<T> body{static_cast<const T*>(x.data),
                                        static_cast<T*>(patches.data),
                                        SlideOfVolumes(shape.in, shape.out, shape.window),
                                        shape.in.channels,
                                        patches.columns,
                                        shape.patch()};
      return run_rows<T>("gather_patches", stream, body, x.rows * shape.out.pixels(), patches.columns,
                         shape.in.channels, take_packs(body.x, body.patches));
    }
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
    if (!Slide::is_for(shape.in, shape.window)) {
      const AddVolumePatches<T> body{static_cast<const T*>(d_patches.data), static_cast<T*>(d_x.data),
                                     SlideOfVolumes(shape.in, shape.out, shape.window), shape.in.channels,
                                     d_patches.columns};
      return run_rows<T>("add_patches", stream, body, d_x.rows * shape.in.pixels(), shape.in.channels,
                         shape.in.channels, take_packs(body.d_patches, body.d_x));
    }
    const AddPatches<T> body{static_cast<const T*>(d_patches.data), static_cast<T*>(d_x.data),
                             Slide(shape.in, shape.out, shape.window), shape.in.channels, d_patches.columns};
    run_rows<T>("add_patches", stream, body, d_x.rows * shape.in.pixels(), shape.in.channels, shape.in.channels,
                take_packs(body.d_patches, body.d_x));
  });
}

namespace {

/// Calls work.template operator()<kEach>(granule of the output channels).
template <class Work>
void for_groups(const Convolution& shape, const Work& work) {
  if (shape.groups == shape.in.channels && shape.groups == shape.out.channels) {
    return work.template operator()<true>(shape.out.channels);
  }
  work.template operator()<false>(shape.out.channels / shape.groups);
}

int inputs_of_group(const Convolution& shape) { return static_cast<int>(shape.channels_read()); }
int outputs_of_group(const Convolution& shape) { return static_cast<int>(shape.out.channels / shape.groups); }

}  // namespace

void grouped_forward(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& y) {
  with_compute_type("grouped_forward", x, [&]<class T>() {
    for_groups(shape, [&]<bool kEach>(std::int64_t granule) {
      const GroupedForward<T, kEach> body{static_cast<const T*>(x.data),
                                          static_cast<const T*>(w.data),
                                          static_cast<T*>(y.data),
                                          SlideOfVolumes(shape.in, shape.out, shape.window),
                                          shape.in.channels,
                                          shape.out.channels,
                                          inputs_of_group(shape),
                                          outputs_of_group(shape)};
      run_rows<T>("grouped_forward", stream, body, y.rows * shape.out.pixels(), shape.out.channels, granule,
                  take_packs(body.x, body.w, body.y));
    });
  });
}

void grouped_image_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                            const Tensor& d_x) {
  with_compute_type("grouped_image_gradient", d_x, [&]<class T>() {
    for_groups(shape, [&]<bool kEach>(std::int64_t) {
      const GroupedImageGradient<T, kEach> body{static_cast<const T*>(w.data),
                                                static_cast<const T*>(d_y.data),
                                                static_cast<T*>(d_x.data),
                                                SlideOfVolumes(shape.in, shape.out, shape.window),
                                                shape.in.channels,
                                                shape.out.channels,
                                                inputs_of_group(shape),
                                                outputs_of_group(shape)};
      run_rows<T>("grouped_image_gradient", stream, body, d_x.rows * shape.in.pixels(), shape.in.channels,
                  kEach ? shape.in.channels : 1, take_packs(body.w, body.d_y, body.d_x));
    });
  });
}

namespace {

/// Returns the number of parts of a batch with separate sums: enough to fill a GPU, but with several pixels each.
int parts_of(const Convolution& shape, std::int64_t images) {
  constexpr std::int64_t kMaxParts = 256, kPixels = 64, kElements = std::int64_t{1} << 20;
  const std::int64_t filters = shape.patch() * shape.out.channels;
  return static_cast<int>(
      std::clamp<std::int64_t>(std::min(images * shape.out.pixels() / kPixels, kElements / filters), 1, kMaxParts));
}

}  // namespace

std::size_t grouped_filter_gradient_bytes(const Convolution& shape, std::int64_t images) noexcept {
  return static_cast<std::size_t>(parts_of(shape, images) * shape.patch() * shape.out.channels) * sizeof(float);
}

void grouped_filter_gradient(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                             Accumulate accumulate, const Tensor& d_w, void* workspace) {
  const int parts = parts_of(shape, x.rows);
  auto* const sums = static_cast<float*>(workspace);
  with_compute_type("grouped_filter_gradient", x, [&]<class T>() {
    for_groups(shape, [&]<bool kEach>(std::int64_t granule) {
      const GroupedFilterGradient<T, kEach> body{static_cast<const T*>(x.data),
                                                 static_cast<const T*>(d_y.data),
                                                 sums,
                                                 SlideOfVolumes(shape.in, shape.out, shape.window),
                                                 shape.in.channels,
                                                 shape.out.channels,
                                                 x.rows * shape.out.pixels(),
                                                 inputs_of_group(shape),
                                                 outputs_of_group(shape),
                                                 static_cast<int>(shape.patch()),
                                                 parts};
      run_rows<T>("grouped_filter_gradient", stream, body, parts * shape.patch(), shape.out.channels, granule,
                  take_packs(body.x, body.d_y));
    });
  });
  const AddFilterParts body{sums, static_cast<float*>(d_w.data), d_w.count(), parts, accumulate == Accumulate::yes};
  run_rows<float>("add_filter_parts", stream, body, 1, d_w.count(), 1, false);
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
