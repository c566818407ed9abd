#include <algorithm>
#include <stdexcept>
#include <string>

#include "model/cuda/kernels/element_kernels.cuh"
#include "model/cuda/kernels/image_kernels.cuh"
#include "model/cuda/kernels/image_kernels.hpp"

namespace lockstep::model::cuda {

namespace {

/// Shared memory that a block has by default.
constexpr std::int64_t kMaxShared = 48 * 1024;
/// Minimum number of elements per block in the gradient of response normalisation, for images with few channels.
constexpr std::int64_t kResponseElements = 1024;

template <class In>
void augment_from(cudaStream_t stream, const Tensor& images, const Tensor& keys, const Augmentation& spec,
                  const Tensor& out) {
  with_compute_type("augment", out, [&]<class T>() {
    const formulas::AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
    const bool may_need_sums = spec.per_image || spec.contrast_low != 1 || spec.contrast_high != 1;
    const std::int64_t parts = may_need_sums ? 1 : std::clamp<std::int64_t>(out.columns / (8 * kBlock), 1, 64);
    launch("augment", augment_samples<In, T>,
           {.blocks = static_cast<unsigned>(images.rows),
            .parts = static_cast<unsigned>(parts),
            .threads = kBlock,
            .shared_bytes =
                sizeof(AugmentedSample) + static_cast<std::size_t>(spec.out.channels) * sizeof(AugmentedChannel)},
           stream, static_cast<const In*>(images.data), static_cast<const std::uint64_t*>(keys.data), numbers,
           static_cast<T*>(out.data));
  });
}

Response response_of(const ResponseNormalization& norm) {
  return {.channels = static_cast<int>(norm.channels),
          .radius = static_cast<int>(std::min(norm.radius, norm.channels)),
          .pixels_of_block = static_cast<int>(std::max<std::int64_t>(kResponseElements / norm.channels, 1)),
          .bias = norm.bias,
          .alpha = norm.alpha,
          .beta = norm.beta};
}

}  // namespace

void augment(cudaStream_t stream, const Tensor& images, const Tensor& keys, const Augmentation& spec,
             const Tensor& out) {
  if (out.count() == 0) return;
  if (spec.out.channels > kMaxImageChannels) {
    throw std::invalid_argument("augment: images of " + std::to_string(spec.out.channels) + " channels on a GPU, " +
                                std::to_string(kMaxImageChannels) + " are the most");
  }
  if (images.type == ElementType::uint8) return augment_from<std::uint8_t>(stream, images, keys, spec, out);
  if (images.type == ElementType::float32) return augment_from<float>(stream, images, keys, spec, out);
  if (images.type == ElementType::float64) return augment_from<double>(stream, images, keys, spec, out);
  throw std::invalid_argument(std::string("augment: images of ") + name_of(images.type));
}

void response_normalization_forward(cudaStream_t stream, const ResponseNormalization& norm, const Tensor& x,
                                    const Tensor& y) {
  with_compute_type("response_normalization_forward", x, [&]<class T>() {
    const ResponseForward<T> body{static_cast<const T*>(x.data), static_cast<T*>(y.data), response_of(norm)};
    run_each<1>("response_normalization_forward", stream, body, x.count(), true);
  });
}

void response_normalization_backward(cudaStream_t stream, const ResponseNormalization& norm, const Tensor& x,
                                     const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
  const Response response = response_of(norm);
  const std::int64_t pixels = x.count() / norm.channels;
  const std::int64_t shared = response.pixels_of_block * norm.channels * 2 * static_cast<std::int64_t>(sizeof(float));
  if (shared > kMaxShared) {
    throw std::invalid_argument("response_normalization_backward: " + std::to_string(norm.channels) +
                                " channels are more than a block of a GPU holds");
  }
  if (pixels == 0) return;
  with_compute_type("response_normalization_backward", x, [&]<class T>() {
    const std::int64_t blocks = (pixels + response.pixels_of_block - 1) / response.pixels_of_block;
    launch(
        "response_normalization_backward", response_backward<T>,
        {.blocks = static_cast<unsigned>(blocks), .threads = kBlock, .shared_bytes = static_cast<std::size_t>(shared)},
        stream, static_cast<const T*>(x.data), static_cast<const T*>(y.data), static_cast<const T*>(d_y.data), pixels,
        response, static_cast<T*>(d_x.data));
  });
}

}  // namespace lockstep::model::cuda
