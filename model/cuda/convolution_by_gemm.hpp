/// \file
/// Convolutions as matrix multiplications. The output of an image is the matrix of its patches, with a row per output
/// pixel, times the filters [patch, out channels]; the gradients are products with the same matrix (Chellapilla, Puri &
/// Simard 2006). If the window is a single pixel with stride one, the images themselves are the patches. Otherwise
/// patches are computed in tiles of as many whole images as fit a bounded workspace, one tile after the other. Each
/// tile adds its gradient of the filters to that of the earlier tiles, so the order of all sums depends on the shapes
/// alone.
///
/// In bfloat16, rows of patches are whole packs (product_padding.hpp): the 7 x 7 x 3 = 147 elements of a typical first
/// layer are followed by five zeros. Patches and their gradients are stored in the compute type, so in bfloat16 each
/// term of the sum of patch gradients is rounded once more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/cuda/kernels/image_kernels.hpp"
#include "model/device_workspaces.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model::cuda {

/// True if an image is itself the matrix of its patches.
inline bool is_product(const Convolution& shape) {
  return shape.groups == 1 && std::ranges::all_of(shape.window.sweeps(), [](const Sweep& sweep) {
           return sweep.size == 1 && sweep.stride == 1 && sweep.before == 0 && sweep.after == 0;
         });
}

/// Number of columns of patches.
inline std::int64_t patch_columns(const Convolution& shape, ElementType type) {
  return type == ElementType::bfloat16 ? whole_packs(shape.patch()) : shape.patch();
}

/// Returns the images per tile: as many as fit, but at least one.
inline std::int64_t images_of_tile(const Convolution& shape, ElementType type, std::int64_t images, std::size_t most) {
  const std::size_t of_image =
      static_cast<std::size_t>(shape.out.pixels() * patch_columns(shape, type)) * size_of(type);
  const auto fitting = static_cast<std::int64_t>(most / std::max<std::size_t>(of_image, 1));
  return std::clamp<std::int64_t>(fitting, 1, std::max<std::int64_t>(images, 1));
}

/// Returns the bytes of workspace that the functions below need for a batch.
inline std::size_t patch_bytes(const Convolution& shape, ElementType type, std::int64_t images,
                               std::size_t most = kMaxPatchBytes) {
  if (is_product(shape) || images == 0) return 0;
  const std::int64_t pixels = images_of_tile(shape, type, images, most) * shape.out.pixels();
  return static_cast<std::size_t>(pixels * patch_columns(shape, type)) * size_of(type);
}

/// Returns `count` images of a batch as a matrix with a row per pixel.
inline Tensor pixels_of(const Tensor& batch, const ImageShape& image, std::int64_t first, std::int64_t count) {
  return batch.row_range(first, count).reshaped(count * image.pixels(), image.channels);
}

/// Calls visit(first, count, patches) for each tile of a batch: its range of images, and memory for their patches.
template <class Visit>
void for_tiles(const Convolution& shape, ElementType type, std::int64_t images, void* workspace, std::size_t most,
               const Visit& visit) {
  const std::int64_t tile = images_of_tile(shape, type, images, most);
  for (std::int64_t first = 0; first < images; first += tile) {
    const std::int64_t count = std::min(tile, images - first);
    visit(first, count, Tensor{workspace, type, count * shape.out.pixels(), patch_columns(shape, type)});
  }
}

/// y = convolution of x with w. multiply(patches, w, y) multiplies matrices, and may change y further. workspace: of
/// patch_bytes() with the same `most`.
template <class Multiply>
void convolution_by_gemm(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& w,
                         const Tensor& y, void* workspace, const Multiply& multiply,
                         std::size_t most = kMaxPatchBytes) {
  if (is_product(shape)) {
    return multiply(pixels_of(x, shape.in, 0, x.rows), w, pixels_of(y, shape.out, 0, y.rows));
  }
  for_tiles(shape, x.type, x.rows, workspace, most, [&](std::int64_t first, std::int64_t count, const Tensor& patches) {
    gather_patches(stream, shape, x.row_range(first, count), patches);
    multiply(patches, w, pixels_of(y, shape.out, first, count));
  });
}

/// d_w = or += transposed patches times d_y, computed by multiply_first(patches, d_y, accumulate, d_w).
template <class MultiplyFirst>
void filter_gradient_by_gemm(cudaStream_t stream, const Convolution& shape, const Tensor& x, const Tensor& d_y,
                             Accumulate accumulate, const Tensor& d_w, void* workspace,
                             const MultiplyFirst& multiply_first, std::size_t most = kMaxPatchBytes) {
  if (is_product(shape)) {
    return multiply_first(pixels_of(x, shape.in, 0, x.rows), pixels_of(d_y, shape.out, 0, x.rows), accumulate, d_w);
  }
  for_tiles(shape, x.type, x.rows, workspace, most, [&](std::int64_t first, std::int64_t count, const Tensor& patches) {
    gather_patches(stream, shape, x.row_range(first, count), patches);
    multiply_first(patches, pixels_of(d_y, shape.out, first, count), first == 0 ? accumulate : Accumulate::yes, d_w);
  });
}

/// Computes d_x from d_y times transposed w, which multiply_second(d_y, w, d_patches) computes.
template <class MultiplySecond>
void image_gradient_by_gemm(cudaStream_t stream, const Convolution& shape, const Tensor& w, const Tensor& d_y,
                            const Tensor& d_x, void* workspace, const MultiplySecond& multiply_second,
                            std::size_t most = kMaxPatchBytes) {
  if (is_product(shape)) {
    return multiply_second(pixels_of(d_y, shape.out, 0, d_y.rows), w, pixels_of(d_x, shape.in, 0, d_x.rows));
  }
  for_tiles(shape, d_x.type, d_x.rows, workspace, most,
            [&](std::int64_t first, std::int64_t count, const Tensor& patches) {
              multiply_second(pixels_of(d_y, shape.out, first, count), w, patches);
              add_patches(stream, shape, patches, d_x.row_range(first, count));
            });
}

}  // namespace lockstep::model::cuda
