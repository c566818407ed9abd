/// \file
/// Synthetic numbers for benchmarks. They are cheap to make and never zero, because bits that never flip consume less
/// power.
///
/// Number i of a stream is a hash of (stream, i): two multiplications, which the compiler vectorises. A batch of 256
/// ImageNet images takes 30 ms; normally distributed numbers from a Mersenne Twister take 600 ms.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::app {

/// 32 random bits (the finalizer "lowbias32" of C. Wellons, over a Weyl sequence of the streams).
constexpr std::uint32_t random_bits(std::uint32_t stream, std::uint32_t index) noexcept {
  std::uint32_t bits = index + stream * 0x9e3779b9u;
  bits ^= bits >> 16;
  bits *= 0x7feb352du;
  bits ^= bits >> 15;
  bits *= 0x846ca68bu;
  return bits ^ (bits >> 16);
}

/// Uniform between -sqrt(3) and sqrt(3): mean 0, variance 1.
void fill_random(std::span<float> values, std::uint32_t stream);

/// Uniform in [0, count), as int32 in the memory of `values`; count >= 1.
void fill_random_indices(std::span<float> values, std::uint32_t stream, std::int64_t count);

}  // namespace lockstep::app
