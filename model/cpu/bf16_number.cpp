#include "model/cpu/bf16_number.hpp"

#include <cassert>

namespace lockstep::model::cpu {

LOCKSTEP_CLONES void round_to_bf16(std::span<const float> from, std::span<Bf16> to) {
  assert(to.size() >= from.size());
  const float* const in = from.data();
  Bf16* const out = to.data();
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = to_bf16(in[i]);
}

LOCKSTEP_CLONES void round_to_bf16(std::span<const float> from, std::span<float> to) {
  assert(to.size() >= from.size());
  const float* const in = from.data();
  float* const out = to.data();
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = to_float(to_bf16(in[i]));
}

LOCKSTEP_CLONES void widen(std::span<const Bf16> from, std::span<float> to) {
  assert(to.size() >= from.size());
  const Bf16* const in = from.data();
  float* const out = to.data();
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < from.size(); ++i) out[i] = to_float(in[i]);
}

LOCKSTEP_CLONES void add_bf16(std::span<const Bf16> x, std::span<Bf16> to) {
  assert(to.size() >= x.size());
  const Bf16* const in = x.data();
  Bf16* const out = to.data();
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = to_bf16(to_float(out[i]) + to_float(in[i]));
}

double sum_of_bf16_squares(std::span<const Bf16> x) {
  double sum = 0;
  for (const Bf16 each : x) sum += static_cast<double>(to_float(each)) * static_cast<double>(to_float(each));
  return sum;
}

}  // namespace lockstep::model::cpu
