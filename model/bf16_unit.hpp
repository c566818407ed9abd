/// \file
/// Matrix products in bf16 on CPUs: factors rounded to bf16, sums in fp32. Their bits depend on the instructions that
/// make the sums, so the plan of a run names them.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::model {

/// Instructions that multiply bf16 numbers, and emulations of either's bits for machines that have none.
enum class Bf16Unit {
  none,  ///< products are computed in fp32
  avx512,
  amx,
  emulated_avx512,
  emulated_amx,
};
/// "avx512", "emulated-amx": the word of the option.
std::string_view name_of(Bf16Unit unit) noexcept;
/// "AVX512-BF16", "an emulation of AMX": for sentences.
std::string_view describe(Bf16Unit unit) noexcept;
constexpr bool is_emulated(Bf16Unit unit) noexcept {
  return unit == Bf16Unit::emulated_avx512 || unit == Bf16Unit::emulated_amx;
}

/// Rates of matrix products, in FLOP/s of one thread; 0: not there.
struct Bf16Facts {
  bool has_avx512 = false, has_amx = false;  ///< instructions of the processor
  bool amx_is_granted = false;               ///< by the operating system
  double fp32 = 0, avx512 = 0, amx = 0;      ///< rates
  bool operator==(const Bf16Facts&) const = default;
};
/// Asks the processor and the system; the rates stay 0.
Bf16Facts bf16_instructions();
/// The same, then multiplies for about 20 ms, if there is something to compare. The permission to
/// use AMX is the process's; to be asked before threads that multiply are started, which inherit it.
Bf16Facts measure_bf16();

struct Bf16Choice {
  Bf16Unit unit = Bf16Unit::none;
  std::string obstacle;  ///< the reason for `none`, as a clause: "this processor has neither AMX nor AVX512-BF16"
  double gain = 0;       ///< rate over that of fp32; 0: unknown
};
/// A factor below which the difference may be noise.
inline constexpr double kMinBf16Gain = 1.1;
/// The fastest unit, if it is at least kMinBf16Gain times as fast as fp32. A processor's flags do not tell: the same
/// instructions take one cycle on some processors and four on others.
Bf16Choice fastest_bf16_unit(const Bf16Facts& facts);
/// Says why the unit cannot be used, as a clause; empty if it can.
std::string obstacle_to(Bf16Unit unit, const Bf16Facts& facts);

}  // namespace lockstep::model
