#include "model/bf16_unit.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

struct UnitNames {
  Bf16Unit unit;
  std::string_view word, description;
};
constexpr std::array<UnitNames, 5> kUnits{
    {{Bf16Unit::none, "none", "fp32"},
     {Bf16Unit::avx512, "avx512", "AVX512-BF16"},
     {Bf16Unit::amx, "amx", "AMX"},
     {Bf16Unit::emulated_avx512, "emulated-avx512", "an emulation of AVX512-BF16"},
     {Bf16Unit::emulated_amx, "emulated-amx", "an emulation of AMX"}}};

const UnitNames& names_of(Bf16Unit unit) noexcept {
  return *std::find_if(kUnits.begin(), kUnits.end() - 1, [&](const UnitNames& names) { return names.unit == unit; });
}

constexpr std::string_view kNotGranted =
    "the system does not grant AMX to this process (Linux does from 5.16 on, some sandboxes do not)";

std::string gigaflops(double rate) { return fmt::format("{:.0f}", rate / 1e9); }

}  // namespace

std::string_view name_of(Bf16Unit unit) noexcept { return names_of(unit).word; }
std::string_view describe(Bf16Unit unit) noexcept { return names_of(unit).description; }

Bf16Choice fastest_bf16_unit(const Bf16Facts& facts) {
  const bool amx = facts.has_amx && facts.amx_is_granted;
  if (!amx && !facts.has_avx512) {
    if (facts.has_amx) return {.unit = Bf16Unit::none, .obstacle = std::string(kNotGranted), .gain = 0};
    return {.unit = Bf16Unit::none, .obstacle = "this processor has neither AMX nor AVX512-BF16", .gain = 0};
  }
  const bool takes_amx = amx && (!facts.has_avx512 || facts.amx >= facts.avx512);
  const Bf16Unit unit = takes_amx ? Bf16Unit::amx : Bf16Unit::avx512;
  const double rate = takes_amx ? facts.amx : facts.avx512;
  const double gain = facts.fp32 > 0 ? rate / facts.fp32 : 0;
  if (rate >= kMinBf16Gain * facts.fp32) return {.unit = unit, .obstacle = "", .gain = gain};
  std::string obstacle = fmt::format("{} multiplies at {} GFLOP/s here, fp32 at {}", describe(unit), gigaflops(rate),
                                     gigaflops(facts.fp32));
  if (facts.has_amx && !amx) obstacle += fmt::format(", and {}", kNotGranted);
  return {.unit = Bf16Unit::none, .obstacle = std::move(obstacle), .gain = gain};
}

std::string obstacle_to(Bf16Unit unit, const Bf16Facts& facts) {
  const bool amx = unit == Bf16Unit::amx;
  if (is_emulated(unit) || (amx ? facts.has_amx && facts.amx_is_granted : facts.has_avx512)) return "";
  if (amx && facts.has_amx) return std::string(kNotGranted);
  return fmt::format("this processor has no {}", describe(unit));
}

}  // namespace lockstep::model
