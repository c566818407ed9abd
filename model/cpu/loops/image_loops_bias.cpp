#include "model/cpu/loops/channel_lanes.hpp"
#include "model/cpu/loops/image_loops.hpp"

namespace lockstep::model::cpu {

namespace {

template <bool kRelu, class Half>
LOCKSTEP_INLINE void round_pixels(const BiasArrays<Half>& arrays, std::size_t channels, std::size_t pixels) {
  const auto [sums, bias, y] = arrays;
  for_channels(
      channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
        constexpr bool kWhole = decltype(whole)::value;
        Floats shift{};
        if (bias != nullptr) load<kWhole>(shift, bias + c, count);
        for (std::size_t at = c; at < pixels * channels; at += channels) {
          Floats value;
          load<kWhole>(value, sums + at, count);
          value += shift;
          if constexpr (kRelu) value = value < Floats{} ? Floats{} : value;
          store<kWhole>(value, y + at, count);
        }
      });
}

template <bool kRelu, class Half>
LOCKSTEP_INLINE void sum_pixels(const BiasGradientArrays<Half>& arrays, std::size_t channels, std::size_t pixels) {
  const auto [y, d_y, sums] = arrays;
  for_channels(
      channels, [&](auto whole, std::size_t c, std::size_t count) __attribute__((always_inline)) {
        constexpr bool kWhole = decltype(whole)::value;
        Floats sum{};
        if (sums != nullptr) load<kWhole>(sum, sums + c, count);
        for (std::size_t at = c; at < pixels * channels; at += channels) {
          Floats gradient;
          load<kWhole>(gradient, d_y + at, count);
          if constexpr (kRelu) {
            Floats value;
            load<kWhole>(value, y + at, count);
            gradient = value > Floats{} ? gradient : Floats{};
            store<kWhole>(gradient, d_y + at, count);
          }
          sum += gradient;
        }
        if (sums != nullptr) store<kWhole>(sum, sums + c, count);
      });
}

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void add_bias_natively(bool relu, const BiasArrays<NativeBf16>& arrays, std::size_t channels, std::size_t pixels) {
  if (relu) return round_pixels<true>(arrays, channels, pixels);
  round_pixels<false>(arrays, channels, pixels);
}
LOCKSTEP_CLONES void add_bias_rounding(bool relu, const BiasArrays<Bf16>& arrays, std::size_t channels,
                                       std::size_t pixels) {
  if (relu) return round_pixels<true>(arrays, channels, pixels);
  round_pixels<false>(arrays, channels, pixels);
}

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET)
void bias_gradient_natively(bool relu, const BiasGradientArrays<NativeBf16>& arrays, std::size_t channels,
                            std::size_t pixels) {
  if (relu) return sum_pixels<true>(arrays, channels, pixels);
  sum_pixels<false>(arrays, channels, pixels);
}
LOCKSTEP_CLONES void bias_gradient_rounding(bool relu, const BiasGradientArrays<Bf16>& arrays, std::size_t channels,
                                            std::size_t pixels) {
  if (relu) return sum_pixels<true>(arrays, channels, pixels);
  sum_pixels<false>(arrays, channels, pixels);
}

}  // namespace

void add_bias_and_round(bool relu, const BiasArrays<Bf16>& arrays, std::size_t channels, std::size_t pixels) {
  if (!widens_natively()) return add_bias_rounding(relu, arrays, channels, pixels);
  add_bias_natively(relu, {arrays.sums, arrays.bias, native(arrays.y)}, channels, pixels);
}

void bias_gradient(bool relu, const BiasGradientArrays<Bf16>& arrays, std::size_t channels, std::size_t pixels) {
  if (!widens_natively()) return bias_gradient_rounding(relu, arrays, channels, pixels);
  bias_gradient_natively(relu, {native(arrays.y), native(arrays.d_y), arrays.sums}, channels, pixels);
}

}  // namespace lockstep::model::cpu
