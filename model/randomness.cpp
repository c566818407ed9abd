#include "model/randomness.hpp"

namespace lockstep::model {

namespace {

/// The finaliser of SplitMix64 (Steele, Lea & Flood 2014), a bijection; the increment before it keeps 0 from mapping to
/// itself.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

}  // namespace

std::uint64_t sample_key(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) noexcept {
  // A bijection of the sample for one seed and epoch: no two samples share a key.
  return mixed(mixed(mixed(seed) + static_cast<std::uint64_t>(epoch)) + static_cast<std::uint64_t>(sample));
}

}  // namespace lockstep::model
