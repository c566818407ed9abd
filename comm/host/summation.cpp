#include "comm/host/summation.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

// Compiled once per instruction set, selected at program start. Not under sanitizers: they instrument the selecting
// function, which runs before they are ready.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOCKSTEP_SUM_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LOCKSTEP_SUM_CLONES
#endif

namespace lockstep::comm {
namespace {

/// Elements added at a time: four kilobytes of partial sums.
template <class T>
constexpr std::size_t kBlock = 4096 / sizeof(T);

LOCKSTEP_SUM_CLONES void add(float* __restrict sum, const float* __restrict a, const float* __restrict b,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

LOCKSTEP_SUM_CLONES void add(double* __restrict sum, const double* __restrict a, const double* __restrict b,
                             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

LOCKSTEP_SUM_CLONES void accumulate(float* __restrict sum, const float* __restrict term, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += term[i];
}

LOCKSTEP_SUM_CLONES void accumulate(double* __restrict sum, const double* __restrict term, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += term[i];
}

constexpr std::uint32_t kInfinityBits = 0x7f80'0000, kMagnitudeBits = 0x7fff'ffff;

inline std::uint32_t rounded_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & kMagnitudeBits) > kInfinityBits ? bits >> 16 | 0x40 : nearest;  // a NaN stays a NaN, and quiet
}

inline float widened(std::uint32_t rounded) { return std::bit_cast<float>(rounded << 16); }

/// The rounding error; 0 for infinities.
inline float rounding_error(float value, std::uint32_t rounded) {
  return (rounded << 16 & kInfinityBits) == kInfinityBits ? 0.0f : value - widened(rounded);
}

LOCKSTEP_SUM_CLONES void round_all(Bf16* __restrict rounded, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) rounded[i] = static_cast<Bf16>(rounded_bits(values[i]));
}

LOCKSTEP_SUM_CLONES void round_all_keeping_errors(Bf16* __restrict rounded, const float* __restrict values,
                                                  float* __restrict errors, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = rounded_bits(values[i]);
    errors[i] = rounding_error(values[i], bits);
    rounded[i] = static_cast<Bf16>(bits);
  }
}

LOCKSTEP_SUM_CLONES void round_values(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = widened(rounded_bits(values[i]));
}

LOCKSTEP_SUM_CLONES void round_values_keeping_errors(float* __restrict values, float* __restrict errors,
                                                     std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = rounded_bits(values[i]);
    errors[i] = rounding_error(values[i], bits);
    values[i] = widened(bits);
  }
}

LOCKSTEP_SUM_CLONES void accumulate(float* __restrict sum, const Bf16* __restrict term, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += widened(term[i]);
}

LOCKSTEP_SUM_CLONES void widen_all(float* __restrict values, const Bf16* __restrict rounded, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = widened(rounded[i]);
}

/// Calls write(offset, sums, count) for each block of the sum of the buffers.
template <class T, class Write>
void for_each_sum(std::span<T* const> buffers, std::size_t begin, std::size_t end, Write write) {
  alignas(64) T sums[kBlock<T>];
  for (std::size_t offset = begin; offset < end; offset += kBlock<T>) {
    const std::size_t count = std::min(kBlock<T>, end - offset);
    if (buffers.size() == 1) {
      std::memcpy(sums, buffers[0] + offset, count * sizeof(T));
    } else {
      add(sums, buffers[0] + offset, buffers[1] + offset, count);
      for (std::size_t k = 2; k < buffers.size(); ++k) accumulate(sums, buffers[k] + offset, count);
    }
    write(offset, static_cast<const T*>(sums), count);
  }
}

template <class T>
void sum_into_of(std::span<T* const> destinations, std::span<T* const> buffers, std::size_t begin, std::size_t end) {
  for_each_sum(buffers, begin, end, [&](std::size_t offset, const T* sums, std::size_t count) {
    for (T* const destination : destinations) std::memcpy(destination + offset, sums, count * sizeof(T));
  });
}

}  // namespace

void add_to(float* sum, const float* term, std::size_t count) { accumulate(sum, term, count); }
void add_to(double* sum, const double* term, std::size_t count) { accumulate(sum, term, count); }

void sum_into(std::span<float* const> destinations, std::span<float* const> buffers, std::size_t begin,
              std::size_t end) {
  sum_into_of(destinations, buffers, begin, end);
}

void sum_into(std::span<double* const> destinations, std::span<double* const> buffers, std::size_t begin,
              std::size_t end) {
  sum_into_of(destinations, buffers, begin, end);
}

void round_to_bf16(Bf16* rounded, const float* values, float* errors, std::size_t count) {
  if (errors) {
    round_all_keeping_errors(rounded, values, errors, count);
  } else {
    round_all(rounded, values, count);
  }
}

void round_in_place(float* values, float* errors, std::size_t count) {
  if (errors) {
    round_values_keeping_errors(values, errors, count);
  } else {
    round_values(values, count);
  }
}

void add_to(float* sum, const Bf16* term, std::size_t count) { accumulate(sum, term, count); }

void widen(float* values, const Bf16* rounded, std::size_t count) { widen_all(values, rounded, count); }

}  // namespace lockstep::comm
