#include "app/bench/known_sums.hpp"

#include <algorithm>

namespace lockstep::app {
namespace {

/// All whole numbers up to these limits are exact.
constexpr std::uint32_t kFloatWhole = 1u << 24, kBfloat16Whole = 1u << 8;

}  // namespace

// A member's term is base + (its index among the members) mod offsets_, with base in [1, limit_]. The sum is at most
// members * (limit_ + offsets_ - 1), which must not exceed the limit of exact numbers.
KnownSums::KnownSums(int ranks, Wire wire)
    : ranks_(static_cast<std::uint32_t>(ranks)),
      stride_(wire == Wire::bf16 ? (ranks_ + kBfloat16Whole / 2 - 1) / (kBfloat16Whole / 2) : 1),
      offsets_(wire == Wire::bf16 ? 2 : 16) {
  const std::uint32_t most = wire == Wire::bf16 ? kBfloat16Whole : kFloatWhole;
  const std::uint32_t largest = most / ((ranks_ + stride_ - 1) / stride_);
  limit_ = largest > offsets_ ? largest - offsets_ + 1 : 1;
}

KnownSums::Members KnownSums::members(std::size_t index) const {
  const auto first = static_cast<std::uint32_t>(index % stride_);
  return {first, first < ranks_ ? (ranks_ - first + stride_ - 1) / stride_ : 0};
}

std::uint32_t KnownSums::base(std::size_t index) const {
  std::uint64_t bits = (static_cast<std::uint64_t>(index) + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 32) * 0xd6e8feb86659fd93u;
  bits ^= bits >> 32;
  return 1 + static_cast<std::uint32_t>(bits % limit_);
}

float KnownSums::term(std::size_t index, int rank) const {
  const std::uint32_t distance =
      static_cast<std::uint32_t>(rank) - members(index).first;  // huge for ranks below the first member
  if (static_cast<std::uint32_t>(rank) < members(index).first || distance % stride_ != 0) return 0;
  return static_cast<float>(base(index) + distance / stride_ % offsets_);
}

float KnownSums::sum(std::size_t index) const {
  const std::uint32_t count = members(index).count, rounds = count / offsets_, rest = count % offsets_;
  const std::uint32_t offsets = rounds * (offsets_ * (offsets_ - 1) / 2) + (rest > 0 ? rest * (rest - 1) / 2 : 0);
  return static_cast<float>(count * base(index) + offsets);
}

std::size_t KnownSums::count_wrong(std::span<const float> sums, std::size_t first) const {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) wrong += sums[i] == sum(first + i) ? 0 : 1;
  return wrong;
}

}  // namespace lockstep::app
