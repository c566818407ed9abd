/// \file
/// Matrix products in bf16 on CPUs: factors are rounded to bf16, sums are fp32. The bits of a sum depend on the
/// instructions that compute it, so the plan of a run names them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::model {

/// Instructions that multiply bf16 numbers. The emulations give the same bits on machines without these instructions.
enum class Bf16Unit {
  none,  ///< products are computed in fp32
  avx512,
  amx,
  emulated_avx512,
  emulated_amx,
};
/// "avx512", "emulated-amx": as users write the option.
std::string_view name_of(Bf16Unit unit) noexcept;
/// "AVX512-BF16", "an emulation of AMX": for sentences.
std::string_view describe(Bf16Unit unit) noexcept;
constexpr bool is_emulated(Bf16Unit unit) noexcept {
  return unit == Bf16Unit::emulated_avx512 || unit == Bf16Unit::emulated_amx;
}

/// Abilities of this processor. Rates are FLOP/s of matrix products on one thread; 0: not available or not measured.
struct Bf16Facts {
  bool has_avx512 = false, has_amx = false;  ///< instructions of the processor
  bool amx_is_granted = false;               ///< by the operating system, to this process
  double fp32 = 0, avx512 = 0, amx = 0;      ///< rates
  bool operator==(const Bf16Facts&) const = default;
};
/// Queries the processor and the operating system. The rates stay 0.
Bf16Facts bf16_instructions();
/// Like bf16_instructions(), but also measures the rates for about 20 ms, if there are units to compare. It requests
/// the permission to use AMX for this process. Call it before any thread that multiplies is started: threads inherit
/// the permission.
Bf16Facts measure_bf16();

struct Bf16Choice {
  Bf16Unit unit = Bf16Unit::none;
  std::string obstacle;  ///< the reason for `none`, as a clause: "this processor has neither AMX nor AVX512-BF16"
  double gain = 0;       ///< rate over that of fp32; 0: unknown
};
/// Smallest gain that counts. A smaller difference may be noise.
inline constexpr double kMinBf16Gain = 1.1;
/// Returns the fastest unit if it is at least kMinBf16Gain times as fast as fp32. The choice needs measured rates: the
/// same instruction takes one cycle on some processors and four on others.
Bf16Choice fastest_bf16_unit(const Bf16Facts& facts);
/// Returns why the unit cannot be used, as a clause; empty if it can.
std::string obstacle_to(Bf16Unit unit, const Bf16Facts& facts);

}  // namespace lockstep::model
