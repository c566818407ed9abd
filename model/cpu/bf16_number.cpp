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

}  // namespace lockstep::model::cpu
