#include "app/bench/random_values.hpp"

#include <cstring>

namespace lockstep::app {

void fill_random(std::span<float> values, std::uint32_t stream) {
  constexpr float kScale = 1.7320508f * 0x1p-31f;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = random_bits(stream, static_cast<std::uint32_t>(i));
    values[i] = kScale * static_cast<float>(static_cast<std::int32_t>(bits));
  }
}

void fill_random_indices(std::span<float> values, std::uint32_t stream, std::int64_t count) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random_bits(stream, static_cast<std::uint32_t>(i));
    const auto index = static_cast<std::int32_t>(bits * static_cast<std::uint64_t>(count) >> 32);
    std::memcpy(&values[i], &index, sizeof index);
  }
}

}  // namespace lockstep::app
