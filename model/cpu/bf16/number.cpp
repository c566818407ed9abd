#include "model/cpu/bf16/number.hpp"

#include <cassert>

#include "model/cpu/bf16/kernels.hpp"
#include "model/cpu/loops/channel_lanes.hpp"

namespace lockstep::model::cpu {

namespace {

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET) void round_all(const float* in, Bf16* out, std::size_t count) {
  std::size_t i = 0;
  Floats value;
  for (; i + kLanes <= count; i += kLanes) {
    load<true>(value, in + i, kLanes);
    store<true>(value, native(out + i), kLanes);
  }
  for (; i < count; ++i) out[i] = to_bf16(in[i]);
}

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET) void widen_all(const Bf16* in, float* out, std::size_t count) {
  std::size_t i = 0;
  Floats value;
  for (; i + kLanes <= count; i += kLanes) {
    load<true>(value, native(in + i), kLanes);
    store<true>(value, out + i, kLanes);
  }
  for (; i < count; ++i) out[i] = to_float(in[i]);
}

LOCKSTEP_TARGET(LOCKSTEP_ROUNDING_SET) void add_all(const Bf16* in, Bf16* out, std::size_t count) {
  std::size_t i = 0;
  Floats value, sum;
  for (; i + kLanes <= count; i += kLanes) {
    load<true>(value, native(in + i), kLanes);
    load<true>(sum, native(out + i), kLanes);
    sum += value;
    store<true>(sum, native(out + i), kLanes);
  }
  for (; i < count; ++i) out[i] = to_bf16(to_float(out[i]) + to_float(in[i]));
}

LOCKSTEP_CLONES void round_loop(const float* in, Bf16* out, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = to_bf16(in[i]);
}

LOCKSTEP_CLONES void widen_loop(const Bf16* in, float* out, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}

LOCKSTEP_CLONES void add_loop(const Bf16* in, Bf16* out, std::size_t count) {
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) out[i] = to_bf16(to_float(out[i]) + to_float(in[i]));
}

}  // namespace

bool widens_natively() noexcept {
  static const bool does = LOCKSTEP_HAS_INSTRUCTION_SETS && processor_has_avx512_bf16();
  return does;
}

void round_to_bf16(std::span<const float> from, std::span<Bf16> to) {
  assert(to.size() >= from.size());
  (widens_natively() ? round_all : round_loop)(from.data(), to.data(), from.size());
}

LOCKSTEP_CLONES void round_to_bf16(std::span<const float> from, std::span<float> to) {
  assert(to.size() >= from.size());
  const float* const in = from.data();
  float* const out = to.data();
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = to_float(to_bf16(in[i]));
}

void widen(std::span<const Bf16> from, std::span<float> to) {
  assert(to.size() >= from.size());
  (widens_natively() ? widen_all : widen_loop)(from.data(), to.data(), from.size());
}

void add_bf16(std::span<const Bf16> x, std::span<Bf16> to) {
  assert(to.size() >= x.size());
  (widens_natively() ? add_all : add_loop)(x.data(), to.data(), x.size());
}

double sum_of_bf16_squares(std::span<const Bf16> x) {
  double sum = 0;
  for (const Bf16 each : x) sum += static_cast<double>(to_float(each)) * static_cast<double>(to_float(each));
  return sum;
}

}  // namespace lockstep::model::cpu
