/// \file
/// Compares operations of the CPU with the float64 reference, in fp32 and in bf16, with one, two and three threads,
/// which must give the same bits. Tolerances are multiples of a unit. In fp32 it is the rounding unit 2^-24. In bf16 it
/// is 2^-11, since errors of factors are up to 2^-8 where those of fp32 sums are a few units.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/bf16_unit.hpp"
#include "model/cpu/bf16/number.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/tensor.hpp"
#include "sample_data.hpp"

namespace lockstep::model::test {

inline constexpr double kUnit = 0x1p-24, kBf16Unit = 0x1p-11;
/// Relative error of a number that was rounded to bf16 once or twice.
inline constexpr double kStored = 3 * 0x1p-9;

/// Returns the bf16 units to test: the emulations, and the units of this processor.
inline std::vector<Bf16Unit> bf16_units() {
  std::vector<Bf16Unit> units{Bf16Unit::emulated_avx512, Bf16Unit::emulated_amx};
  for (const Bf16Unit unit : {Bf16Unit::avx512, Bf16Unit::amx}) {
    if (obstacle_to(unit, bf16_instructions()).empty()) units.push_back(unit);
  }
  return units;
}

/// One operand, of the backend's compute type unless `holds` says otherwise.
struct Operand {
  std::string name;
  std::int64_t rows = 0, columns = 0;
  double tolerance = 0;  ///< tolerance of the operation's result, in units
  enum Holds { values, sums, choices, keys, bytes, tokens, nothing } holds = values;
  std::int64_t nan_at = -1;  ///< index of a NaN element; -1: none
  double scale = 1, shift = 0;
  bool image = false;  ///< may be in the backend's narrow type (OperationTypes::narrow)
};

/// Memory of an operand for one backend.
struct Memory {
  std::vector<std::byte> bytes;
  Tensor tensor;
};

inline ElementType type_of(const Operand& operand, ElementType values) {
  switch (operand.holds) {
    case Operand::sums:
      return ElementType::float64;
    case Operand::choices:
    case Operand::bytes:
      return ElementType::uint8;
    case Operand::keys:
      return ElementType::uint64;
    case Operand::tokens:
      return ElementType::int32;
    case Operand::values:
    case Operand::nothing:
      break;
  }
  return values;
}

inline std::uint16_t bf16_of(float value) {
  std::uint16_t half = 0;
  cpu::round_to_bf16({&value, 1}, std::span(&half, 1));
  return half;
}

/// images: type of operands that are images; with float64 values, the type to which their numbers are rounded.
inline Memory make(const Operand& operand, ElementType values, ElementType images = ElementType::float32) {
  Memory memory;
  const bool rounded = operand.image && images == ElementType::bfloat16;
  memory.tensor = {nullptr, type_of(operand, rounded && values == ElementType::float32 ? images : values), operand.rows,
                   operand.columns};
  if (operand.holds == Operand::nothing) return memory;
  const auto count = static_cast<std::size_t>(memory.tensor.count());
  memory.bytes.resize(count * size_of(memory.tensor.type) + 1);
  memory.tensor.data = memory.bytes.data();
  for (std::size_t i = 0; i < count; ++i) {
    const double uniform = sample(operand.name, i);
    const bool is_nan = static_cast<std::int64_t>(i) == operand.nan_at;
    float value = is_nan ? kNan : static_cast<float>(operand.shift + operand.scale * uniform);
    if (rounded) value = cpu::to_float(bf16_of(value));
    switch (memory.tensor.type) {
      case ElementType::float32:
        memory.tensor.elements<float>()[i] = value;
        break;
      case ElementType::float64:
        memory.tensor.elements<double>()[i] = static_cast<double>(value);
        break;
      case ElementType::bfloat16:
        static_cast<std::uint16_t*>(memory.tensor.data)[i] = bf16_of(value);
        break;
      case ElementType::uint8:
        memory.tensor.elements<std::uint8_t>()[i] = static_cast<std::uint8_t>(std::abs(uniform) * 255);
        break;
      case ElementType::int32:  // scale is the vocabulary
        memory.tensor.elements<std::int32_t>()[i] = static_cast<std::int32_t>((uniform + 1) / 2 * operand.scale);
        break;
      default:
        memory.tensor.elements<std::uint64_t>()[i] = static_cast<std::uint64_t>(std::abs(uniform) * 1e18);
    }
  }
  return memory;
}

inline double element(const Tensor& tensor, std::size_t i) {
  if (tensor.type == ElementType::float32) return static_cast<double>(tensor.elements<float>()[i]);
  if (tensor.type == ElementType::float64) return tensor.elements<double>()[i];
  if (tensor.type == ElementType::bfloat16) {
    return static_cast<double>(cpu::to_float(static_cast<const std::uint16_t*>(tensor.data)[i]));
  }
  if (tensor.type == ElementType::uint8) return tensor.elements<std::uint8_t>()[i];
  if (tensor.type == ElementType::int32) return tensor.elements<std::int32_t>()[i];
  return static_cast<double>(tensor.elements<std::uint64_t>()[i]);
}

/// Describes the first result that differs from the expected one by more than the operand's tolerance (NaN must match
/// NaN); "" if there is none. nan_may_spread: additional NaNs are allowed. stored: additional relative error that is
/// allowed.
inline std::string difference(const Operand& operand, const Tensor& got, const Tensor& expected, double unit = kUnit,
                              bool nan_may_spread = false, double stored = 0) {
  if (!expected.present()) return "";
  for (std::size_t i = 0; i < static_cast<std::size_t>(expected.count()); ++i) {
    const double x = element(got, i), y = element(expected, i);
    const double allowed = (operand.tolerance * unit + stored) * std::max(1.0, std::abs(y));
    if (std::isnan(x) && (std::isnan(y) || nan_may_spread)) continue;
    if (std::abs(x - y) <= allowed) continue;
    return fmt::format("{}[{}] is {}, should be {} ({} units)", operand.name, i, x, y, std::abs(x - y) / unit);
  }
  return "";
}

template <class Operations, class Cpu, class Reference>
class CpuAgainstReference : public ::testing::Test {
 protected:
  using Call = std::function<void(Operations&, const std::vector<Tensor>&)>;

  /// True if the number of threads must not change the bits. Otherwise results must be within the tolerance for each
  /// number of threads.
  virtual bool same_bits() const { return true; }

  /// Runs `call` on both backends, and expects the same result in every operand. If some operands are images, also
  /// compares with images in bf16, with tolerances in units of `of_images`.
  void compare(const std::vector<Operand>& operands, const Call& call, const std::string& what,
               double of_images = kUnit) {
    compare(operands, call, what, ElementType::float32, kBf16Unit);
    if (std::ranges::any_of(operands, &Operand::image)) {
      compare(operands, call, what + ", images in bf16", ElementType::bfloat16, of_images);
    }
  }

  void compare(const std::vector<Operand>& operands, const Call& call, const std::string& what, ElementType images,
               double unit_of_bf16) {
    const auto run = [&](Operations& operations, ElementType values) {
      std::vector<Memory> memories;
      std::vector<Tensor> tensors;
      for (const Operand& operand : operands) memories.push_back(make(operand, values, images));
      for (const Memory& memory : memories) tensors.push_back(memory.tensor);
      call(operations, tensors);
      return memories;
    };
    const auto expected = run(reference_, ElementType::float64);
    for (const auto& [bf16_unit, cpus] : cpu_) {
      const bool fp32 = bf16_unit == Bf16Unit::none;
      if (fp32 && images == ElementType::bfloat16) continue;
      const double unit = fp32 ? kUnit : unit_of_bf16;
      // Instructions on pairs multiply the neighbours of a NaN by zero.
      const bool spreads = !fp32 && !is_emulated(bf16_unit) &&
                           std::ranges::any_of(operands, [](const Operand& operand) { return operand.nan_at >= 0; });
      const double stored = images == ElementType::bfloat16 ? kStored : 0;
      const std::string where = fmt::format("{}, {}", what, describe(bf16_unit));
      const auto got = run(*cpus[0], ElementType::float32);
      for (std::size_t k = 0; k < operands.size(); ++k) {
        EXPECT_EQ(difference(operands[k], got[k].tensor, expected[k].tensor, unit, spreads, stored), "") << where;
      }
      for (std::size_t more = 1; more < cpus.size(); ++more) {
        const auto other = run(*cpus[more], ElementType::float32);
        for (std::size_t k = 0; k < operands.size(); ++k) {
          if (same_bits() || !fp32) {
            EXPECT_EQ(other[k].bytes, got[k].bytes)
                << where << ": " << operands[k].name << " differs with " << more + 1 << " threads";
          } else {
            EXPECT_EQ(difference(operands[k], other[k].tensor, expected[k].tensor, unit, spreads, stored), "") << where;
          }
        }
      }
    }
  }

  cpu::ThreadPool one_{1}, two_{2}, three_{3};
  struct Cpus {
    Bf16Unit unit;
    std::vector<std::unique_ptr<Cpu>> of_threads;
  };
  std::vector<Cpus> cpu_ = [this] {
    std::vector<Cpus> all;
    std::vector<Bf16Unit> units = bf16_units();
    units.insert(units.begin(), Bf16Unit::none);
    for (const Bf16Unit unit : units) {
      all.push_back({unit, {}});
      for (auto* pool : {&one_, &two_, &three_}) all.back().of_threads.push_back(std::make_unique<Cpu>(*pool, unit));
    }
    return all;
  }();
  Reference reference_;
};

}  // namespace lockstep::model::test
