#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/gemm.hpp"
#include "model/cpu/bf16/kernels.hpp"
#include "model/cpu/gemm.hpp"

namespace lockstep::model {

namespace {

/// Shape of a hidden layer of a small network. Its factors fit the second-level cache.
constexpr cpu::ProductShape kShape{.rows = 64, .columns = 512, .inner = 512};
constexpr int kRounds = 12;

/// Returns irregular numbers in [-1, 1): products of zeros would be faster than those of a network.
std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  }
  return values;
}

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Bf16Facts bf16_instructions() {
  return {.has_avx512 = cpu::has_bf16_kernels(Bf16Unit::avx512),
          .has_amx = cpu::amx_kernels() != nullptr && cpu::processor_has_amx(),
          .amx_is_granted = cpu::has_bf16_kernels(Bf16Unit::amx)};
}

Bf16Facts measure_bf16() {
  Bf16Facts facts = bf16_instructions();
  if (!facts.has_avx512 && !facts.amx_is_granted) return facts;
  cpu::prepare_gemm();
  const std::vector<float> a = numbers(kShape.rows * kShape.inner), b = numbers(kShape.inner * kShape.columns);
  std::vector<float> c(kShape.rows * kShape.columns);
  const auto product = [&](Bf16Unit unit) {
    cpu::multiply(kShape, {a.data(), kShape.inner}, {b.data(), kShape.columns}, Accumulate::no, c.data(),
                  kShape.columns, unit);
  };
  // Alternates the units and takes the fastest time of each, since other processes may use the core meanwhile.
  double fp32 = 1, avx512 = 1, amx = 1;
  for (int round = 0; round < kRounds; ++round) {
    fp32 = std::min(fp32, seconds_of([&] { product(Bf16Unit::none); }));
    if (facts.has_avx512) avx512 = std::min(avx512, seconds_of([&] { product(Bf16Unit::avx512); }));
    if (facts.amx_is_granted) amx = std::min(amx, seconds_of([&] { product(Bf16Unit::amx); }));
  }
  const double flops = 2.0 * static_cast<double>(kShape.rows * kShape.columns * kShape.inner);
  facts.fp32 = flops / fp32;
  if (facts.has_avx512) facts.avx512 = flops / avx512;
  if (facts.amx_is_granted) facts.amx = flops / amx;
  return facts;
}

}  // namespace lockstep::model
