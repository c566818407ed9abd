#include "comm/host/int8_blocks.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace lockstep::comm {
namespace {

constexpr std::uint32_t kMagnitude = 0x7fff'ffff, kInfinity = 0x7f80'0000;
/// Scales are 2^(code - 132), from 2^-126 to 2^121; code 255: not finite.
constexpr std::uint8_t kNotFinite = 255;
constexpr int kBias = 132, kMinCode = kBias - 126, kMaxCode = kBias + 121;

float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23); }

/// The code of a block: its largest magnitude becomes 64 to 127 times the scale.
std::uint8_t code_of(const float* values, std::size_t count) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<std::uint32_t>(values[i]) & kMagnitude);
  if (most >= kInfinity) return kNotFinite;
  // The exponent less 6; a magnitude of 127.5 or more would round to 128.
  const int exponent = static_cast<int>(most >> 23) - 127 - 6;
  const bool rounds_up = (most & 0x007f'ffff) >= 0x007f'0000;
  const int code = exponent + (rounds_up ? 1 : 0) + kBias;
  return code > kMaxCode ? kNotFinite : static_cast<std::uint8_t>(std::max(kMinCode, code));
}

float scale_of(std::uint8_t code) {
  return code == kNotFinite ? std::numeric_limits<float>::quiet_NaN() : power_of_two(code - kBias);
}

/// Rounds to nearest, ties to even, for magnitudes below 2^22.
float nearest(float value) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

/// Calls write(i, q) with each element as a multiple of the scale, in [-127, 127].
template <class Write>
void quantise(const float* values, std::uint8_t code, std::size_t count, Write write) {
  const float inverse = power_of_two(kBias - code);
  for (std::size_t i = 0; i < count; ++i) write(i, nearest(values[i] * inverse));
}

/// Calls visit(first element, number of elements, number of the block).
template <class Visit>
void for_each_block(std::size_t count, Visit visit) {
  for (std::size_t block = 0, first = 0; first < count; ++block, first += kInt8Block) {
    visit(first, std::min(kInt8Block, count - first), block);
  }
}

}  // namespace

void pack(Int8Blocks* packed, const float* values, float* errors, std::size_t count) {
  auto* const numbers = reinterpret_cast<std::int8_t*>(packed);
  auto* const codes = reinterpret_cast<std::uint8_t*>(packed) + count;
  for_each_block(count, [&](std::size_t first, std::size_t elements, std::size_t block) {
    const std::uint8_t code = codes[block] = code_of(values + first, elements);
    if (code == kNotFinite) {
      std::fill_n(numbers + first, elements, std::int8_t{0});
      if (errors) std::fill_n(errors + first, elements, 0.0f);
      return;
    }
    const float scale = scale_of(code);
    const float* const from = values + first;
    if (errors) {
      float* const left = errors + first;
      quantise(from, code, elements, [&](std::size_t i, float q) {
        left[i] = from[i] - q * scale;
        numbers[first + i] = static_cast<std::int8_t>(q);
      });
    } else {
      quantise(from, code, elements, [&](std::size_t i, float q) { numbers[first + i] = static_cast<std::int8_t>(q); });
    }
  });
}

void pack_in_place(float* values, float* errors, std::size_t count) {
  for_each_block(count, [&](std::size_t first, std::size_t elements, std::size_t) {
    float* const here = values + first;
    const std::uint8_t code = code_of(here, elements);
    const float scale = scale_of(code);
    if (code == kNotFinite) {
      std::fill_n(here, elements, scale);
      if (errors) std::fill_n(errors + first, elements, 0.0f);
      return;
    }
    quantise(here, code, elements, [&](std::size_t i, float q) {
      const float kept = q * scale;
      if (errors) errors[first + i] = here[i] - kept;
      here[i] = kept;
    });
  });
}

void unpack(float* values, const Int8Blocks* packed, std::size_t count) {
  const auto* const numbers = reinterpret_cast<const std::int8_t*>(packed);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(packed) + count;
  for_each_block(count, [&](std::size_t first, std::size_t elements, std::size_t block) {
    const float scale = scale_of(codes[block]);
    for (std::size_t i = first; i < first + elements; ++i) values[i] = static_cast<float>(numbers[i]) * scale;
  });
}

void add_unpacked(float* sum, const Int8Blocks* packed, std::size_t count) {
  const auto* const numbers = reinterpret_cast<const std::int8_t*>(packed);
  const auto* const codes = reinterpret_cast<const std::uint8_t*>(packed) + count;
  for_each_block(count, [&](std::size_t first, std::size_t elements, std::size_t block) {
    const float scale = scale_of(codes[block]);
    for (std::size_t i = first; i < first + elements; ++i) sum[i] += static_cast<float>(numbers[i]) * scale;
  });
}

}  // namespace lockstep::comm
