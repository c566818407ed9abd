#include <cmath>

#include "model/cpu/loops/channel_lanes.hpp"
#include "model/cpu/loops/image_loops.hpp"

// Processes one pixel at a time. Its channels are copied with `radius` zeros on both sides, so the sum over the
// neighbours is 2 radius + 1 shifted additions without a condition. The nine additions of radius 4 are unrolled.

namespace lockstep::model::cpu {

namespace {

/// sums[c] = sum of padded[c .. c + neighbours)
template <std::size_t kNeighbours>
LOCKSTEP_INLINE void sum_of_neighbours(const float* __restrict padded, std::size_t neighbours, std::size_t channels,
                                       float* __restrict sums) {
  if constexpr (kNeighbours > 0) {
    for (std::size_t c = 0; c < channels; ++c) {
      float sum = padded[c];
#pragma GCC unroll 16
      for (std::size_t j = 1; j < kNeighbours; ++j) sum += padded[c + j];
      sums[c] = sum;
    }
  } else {
    for (std::size_t c = 0; c < channels; ++c) sums[c] = padded[c];
    for (std::size_t j = 1; j < neighbours; ++j) {
      for (std::size_t c = 0; c < channels; ++c) sums[c] += padded[c + j];
    }
  }
}

/// Computes base^-beta for each channel. beta = 3/4 needs no logarithm.
LOCKSTEP_INLINE void inverse_powers(const ResponseNormalization& norm, const float* __restrict sums,
                                    std::size_t channels, float* __restrict powers) {
  if (norm.beta == 0.75f) {
    for (std::size_t c = 0; c < channels; ++c) {
      const float root = std::sqrt(norm.bias + norm.alpha * sums[c]);
      powers[c] = 1 / (root * std::sqrt(root));
    }
  } else {
    for (std::size_t c = 0; c < channels; ++c) powers[c] = std::pow(norm.bias + norm.alpha * sums[c], -norm.beta);
  }
}

/// Three rows: a padded one and two of `channels` elements.
struct Scratch {
  float *padded, *sums, *powers;
  Scratch(std::span<float> scratch, std::size_t channels, std::size_t radius)
      : padded(scratch.data()), sums(padded + channels + 2 * radius), powers(sums + channels) {}
};

template <std::size_t kNeighbours, class Element>
LOCKSTEP_INLINE void forward(const ResponseNormalization& norm, const Element* x, Element* y, Slice pixels,
                             std::span<float> scratch) {
  const auto channels = static_cast<std::size_t>(norm.channels), radius = static_cast<std::size_t>(norm.radius);
  const Scratch workspace(scratch, channels, radius);
  for (std::size_t pixel = pixels.offset; pixel < pixels.end(); ++pixel) {
    const Element* __restrict from = x + pixel * channels;
    Element* __restrict to = y + pixel * channels;
    float* __restrict squares = workspace.padded + radius;
    for (std::size_t c = 0; c < channels; ++c) squares[c] = number_of(from[c]) * number_of(from[c]);
    sum_of_neighbours<kNeighbours>(workspace.padded, 2 * radius + 1, channels, workspace.sums);
    inverse_powers(norm, workspace.sums, channels, workspace.powers);
    const float* __restrict powers = workspace.powers;
    for (std::size_t c = 0; c < channels; ++c) put(number_of(from[c]) * powers[c], to[c]);
  }
}

/// d_x[c] = d_y[c] b[c]^-beta - 2 alpha beta x[c] sum over the neighbours j of d_y[j] y[j] / b[j], b = bias + alpha
/// sum.
template <std::size_t kNeighbours, class Element>
LOCKSTEP_INLINE void backward(const ResponseNormalization& norm, const Element* x, const Element* y, const Element* d_y,
                              Element* d_x, Slice pixels, std::span<float> scratch) {
  const auto channels = static_cast<std::size_t>(norm.channels), radius = static_cast<std::size_t>(norm.radius);
  const Scratch workspace(scratch, channels, radius);
  const float factor = 2 * norm.alpha * norm.beta;
  for (std::size_t pixel = pixels.offset; pixel < pixels.end(); ++pixel) {
    const Element* __restrict input = x + pixel * channels;
    const Element* __restrict value = y + pixel * channels;
    const Element* const gradient = d_y + pixel * channels;  // may be `to`
    Element* const to = d_x + pixel * channels;
    float* __restrict terms = workspace.padded + radius;
    const float* __restrict powers = workspace.powers;
    for (std::size_t c = 0; c < channels; ++c) terms[c] = number_of(input[c]) * number_of(input[c]);
    sum_of_neighbours<kNeighbours>(workspace.padded, 2 * radius + 1, channels, workspace.sums);
    inverse_powers(norm, workspace.sums, channels, workspace.powers);
    const float* __restrict sums = workspace.sums;
    for (std::size_t c = 0; c < channels; ++c) {
      terms[c] = number_of(gradient[c]) * number_of(value[c]) / (norm.bias + norm.alpha * sums[c]);
    }
    sum_of_neighbours<kNeighbours>(workspace.padded, 2 * radius + 1, channels, workspace.sums);
    LOCKSTEP_INDEPENDENT
    for (std::size_t c = 0; c < channels; ++c) {
      put(number_of(gradient[c]) * powers[c] - factor * number_of(input[c]) * sums[c], to[c]);
    }
  }
}

void clear_padding(const ResponseNormalization& norm, std::span<float> scratch) {
  const auto channels = static_cast<std::size_t>(norm.channels), radius = static_cast<std::size_t>(norm.radius);
  for (std::size_t i = 0; i < radius; ++i) scratch[i] = scratch[radius + channels + i] = 0;
}

}  // namespace

std::size_t response_scratch(const ResponseNormalization& norm) {
  return static_cast<std::size_t>(3 * norm.channels + 2 * norm.radius);
}

LOCKSTEP_CLONES void response_normalization(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                            Slice pixels, std::span<float> scratch) {
  clear_padding(norm, scratch);
  with_elements(
      x, [&](auto* from) __attribute__((always_inline)) {
        auto* const to = static_cast<decltype(from)>(y.data);
        if (norm.radius == 4) return forward<9>(norm, from, to, pixels, scratch);
        forward<0>(norm, from, to, pixels, scratch);
      });
}

LOCKSTEP_CLONES void response_normalization_gradient(const ResponseNormalization& norm, const Tensor& x,
                                                     const Tensor& y, const Tensor& d_y, const Tensor& d_x,
                                                     Slice pixels, std::span<float> scratch) {
  clear_padding(norm, scratch);
  with_elements(
      x, [&](auto* input) __attribute__((always_inline)) {
        using Elements = decltype(input);
        const Elements value = static_cast<Elements>(y.data), gradient = static_cast<Elements>(d_y.data),
                       to = static_cast<Elements>(d_x.data);
        if (norm.radius == 4) return backward<9>(norm, input, value, gradient, to, pixels, scratch);
        backward<0>(norm, input, value, gradient, to, pixels, scratch);
      });
}

}  // namespace lockstep::model::cpu
