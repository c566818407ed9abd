// Products in bf16: compares the processor's instructions with their emulation, bit for bit, and both with sums in
// double.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu_against_reference.hpp"
#include "model/backend.hpp"
#include "model/cpu/bf16/gemm.hpp"
#include "model/cpu/bf16/kernels.hpp"
#include "model/cpu/gemm.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using cpu::Factor;
using cpu::ProductShape;

struct Form {
  bool a_transposed, b_transposed;
};
constexpr Form kForms[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/// Factors of a product, with gaps between the rows.
struct Factors {
  Factors(const ProductShape& product, const Form& form, double scale = 1) : shape(product) {
    const auto fill = [&](std::vector<float>& values, std::size_t rows, std::size_t columns, bool transposed,
                          std::string_view name) {
      const std::size_t between = (transposed ? rows : columns) + 3;
      values = test::samples<float>(name, static_cast<std::int64_t>((transposed ? columns : rows) * between), scale);
      return Factor{values.data(), between, transposed};
    };
    a = fill(left, shape.rows, shape.inner, form.a_transposed, "a");
    b = fill(right, shape.inner, shape.columns, form.b_transposed, "b");
    stride = shape.columns + 2;
    c = test::samples<float>("c", static_cast<std::int64_t>(shape.rows * stride), scale * scale);
  }
  std::vector<float> product(Bf16Unit unit, Accumulate accumulate) const {
    std::vector<float> result = c;
    cpu::bf16_gemm(unit, shape, a, b, accumulate, result.data(), stride);
    return result;
  }
  std::vector<float> product_with_packed(Bf16Unit unit, Accumulate accumulate, std::size_t cut,
                                         cpu::PanelOrder order = cpu::PanelOrder::ascending) const {
    std::vector<float> result = c, workspace(cpu::bf16_packed_floats(shape.inner, shape.columns), test::kNan);
    const auto packed = cpu::bf16_pack_right(unit, b, shape.inner, shape.columns, workspace);
    for (std::size_t o = 0; o < shape.columns; o += cut) {
      cpu::bf16_product_with_packed(unit, {shape.rows, std::min(cut, shape.columns - o), shape.inner}, a, packed, o,
                                    accumulate, result.data() + o, stride, order);
    }
    return result;
  }

  ProductShape shape;
  std::vector<float> left, right, c;
  Factor a, b;
  std::size_t stride = 0;
};

/// Returns the index of the first element with different bits (all NaNs are equal); -1: none.
std::ptrdiff_t first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same = std::bit_cast<std::uint32_t>(a[i]) == std::bit_cast<std::uint32_t>(b[i]);
    if (!same && !(std::isnan(a[i]) && std::isnan(b[i]))) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

std::string name_of(const ProductShape& shape) {
  return fmt::format("{} x {} x {}", shape.rows, shape.inner, shape.columns);
}

const std::vector<ProductShape> kShapes = {
    {1, 1, 1},    {1, 33, 2},    {7, 16, 31},  {12, 32, 32},  {16, 17, 33},  {17, 10, 300},  {20, 130, 65},
    {30, 31, 64}, {31, 64, 513}, {33, 47, 31}, {20, 96, 600}, {65, 33, 769}, {34, 71, 1540}, {3, 1061, 12},
};

TEST(Bf16Product, OfTheProcessorHasTheBitsOfItsEmulation) {
  int compared = 0;
  for (const auto& [unit, emulation] :
       {std::pair{Bf16Unit::avx512, Bf16Unit::emulated_avx512}, std::pair{Bf16Unit::amx, Bf16Unit::emulated_amx}}) {
    if (!cpu::has_bf16_kernels(unit)) continue;
    ++compared;
    for (const ProductShape& shape : kShapes) {
      for (const Form& form : kForms) {
        for (const double scale : {1.0, 1e-19, 1e-23, 1e-38, 1e19}) {
          const Factors factors(shape, form, scale);
          for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
            ASSERT_EQ(first_difference(factors.product(unit, accumulate), factors.product(emulation, accumulate)), -1)
                << describe(unit) << ", " << name_of(shape) << ", scale " << scale;
          }
        }
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << "not run: this processor has neither AVX512-BF16 nor AMX";
}

/// Sums of rounded factors have at most one fp32 rounding per addition.
TEST(Bf16Product, IsCloseToDoubleSums) {
  for (const Bf16Unit unit : test::bf16_units()) {
    for (const ProductShape& shape : kShapes) {
      for (const Form& form : kForms) {
        const Factors factors(shape, form);
        const auto rounded = [](const Factor& factor, std::size_t row, std::size_t column) {
          return static_cast<double>(cpu::to_float(cpu::to_bf16(*factor.from(row, column).data)));
        };
        for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
          const std::vector<float> got = factors.product(unit, accumulate);
          for (std::size_t i = 0; i < shape.rows; ++i) {
            for (std::size_t o = 0; o < factors.stride; ++o) {
              const std::size_t at = i * factors.stride + o;
              const auto before = static_cast<double>(factors.c[at]);
              if (o >= shape.columns) {
                ASSERT_EQ(got[at], factors.c[at]) << "wrote beyond row " << i;
                continue;
              }
              double sum = accumulate == Accumulate::yes ? before : 0, size = std::abs(sum), exact = sum;
              for (std::size_t p = 0; p < shape.inner; ++p) {
                const double product = rounded(factors.a, i, p) * rounded(factors.b, p, o);
                sum += product;
                size += std::abs(product);
                exact +=
                    static_cast<double>(*factors.a.from(i, p).data) * static_cast<double>(*factors.b.from(p, o).data);
              }
              const double allowed = size * 0x1p-24 * static_cast<double>(shape.inner + 4);
              ASSERT_NEAR(static_cast<double>(got[at]), sum, allowed) << describe(unit) << ", " << name_of(shape);
              // The relative error of each factor is at most 2^-8.
              ASSERT_NEAR(static_cast<double>(got[at]), exact, allowed + size * 0x1.02p-7);
            }
          }
        }
      }
    }
  }
}

TEST(Bf16Product, OfAnyCutHasTheSameBits) {
  cpu::ThreadPool one(1), two(2), three(3);
  for (const Bf16Unit unit : test::bf16_units()) {
    for (const ProductShape& shape : kShapes) {
      const Factors factors(shape, kForms[0]);
      const std::vector<float> whole = factors.product(unit, Accumulate::yes);
      EXPECT_EQ(factors.product_with_packed(unit, Accumulate::yes, shape.columns), whole) << name_of(shape);
      EXPECT_EQ(factors.product_with_packed(unit, Accumulate::yes, 32), whole) << name_of(shape);
      for (const std::size_t cut : {shape.columns, std::size_t{64}}) {
        EXPECT_EQ(factors.product_with_packed(unit, Accumulate::yes, cut, cpu::PanelOrder::descending), whole)
            << name_of(shape) << ", from the last panel to the first";
      }
      std::vector<float> rows = factors.c;
      for (std::size_t row = 0; row < shape.rows; row += 7) {
        cpu::bf16_gemm(unit, {std::min<std::size_t>(7, shape.rows - row), shape.columns, shape.inner},
                       factors.a.from(row, 0), factors.b, Accumulate::yes, rows.data() + row * factors.stride,
                       factors.stride);
      }
      EXPECT_EQ(rows, whole) << name_of(shape) << " in rows of seven";
    }
    struct Case {
      std::int64_t rows, inner, columns;
    };
    for (const auto& [rows, inner, columns] : {Case{150, 500, 90}, Case{90, 420, 151}, Case{700, 130, 7}}) {
      auto a = test::samples<float>("a", rows * inner), b = test::samples<float>("b", inner * columns);
      std::vector<float> first;
      for (auto* threads : {&one, &two, &three}) {
        std::vector<float> c(static_cast<std::size_t>(rows * columns));
        cpu::gemm({test::view(a, rows, inner)}, {test::view(b, inner, columns)}, Accumulate::no,
                  test::view(c, rows, columns), *threads, unit);
        if (first.empty()) first = c;
        EXPECT_EQ(c, first) << rows << " x " << inner << " x " << columns << ", " << threads->size() << " threads";
      }
    }
  }
}

/// With more rows and columns than the kept panels have.
TEST(Bf16Product, OfManyBlocksHasTheBitsOfItsParts) {
  const Bf16Unit unit = cpu::has_bf16_kernels(Bf16Unit::avx512) ? Bf16Unit::avx512 : Bf16Unit::emulated_avx512;
  const Factors factors({.rows = 1400, .columns = 400, .inner = 760}, kForms[0]);
  const std::vector<float> whole = factors.product(unit, Accumulate::yes);
  EXPECT_EQ(factors.product_with_packed(unit, Accumulate::yes, 32), whole);
  std::vector<float> rows = factors.c;
  for (std::size_t row = 0; row < 1400; row += 100) {
    cpu::bf16_gemm(unit, {100, 400, 760}, factors.a.from(row, 0), factors.b, Accumulate::yes,
                   rows.data() + row * factors.stride, factors.stride);
  }
  EXPECT_EQ(rows, whole);
}

TEST(Bf16Product, LetsNanAndInfinityThrough) {
  for (const Bf16Unit unit : test::bf16_units()) {
    for (const std::size_t columns : {40u, 33u}) {
      std::vector<float> a(20 * 10, 0.0f), b(10 * columns, 0.0f), c(20 * columns);
      b[3 * columns + columns - 1] = test::kNan;  // times zero
      b[4 * columns + 1] = std::numeric_limits<float>::infinity();
      cpu::multiply({20, columns, 10}, {a.data(), 10}, {b.data(), columns}, Accumulate::no, c.data(), columns, unit);
      for (std::size_t i = 0; i < 20; ++i) {
        EXPECT_TRUE(std::isnan(c[i * columns + columns - 1])) << describe(unit);
        EXPECT_TRUE(std::isnan(c[i * columns + 1])) << describe(unit);
        EXPECT_EQ(c[i * columns], 0) << describe(unit);
      }
    }
  }
}

TEST(Bf16Number, RoundsToNearestEven) {
  struct Case {
    std::uint32_t bits;
    std::uint16_t expected;
  };
  for (const auto& [bits, expected] :
       {Case{0x3F800000, 0x3F80}, Case{0x3F808000, 0x3F80}, Case{0x3F818000, 0x3F82}, Case{0x3F808001, 0x3F81},
        Case{0xBF817FFF, 0xBF81}, Case{0x7F7FFFFF, 0x7F80}, Case{0x7F800000, 0x7F80}, Case{0x7F800001, 0x7FC0},
        Case{0xFFC00000, 0xFFC0}, Case{0x00000001, 0x0000}, Case{0x807FFFFF, 0x8000}, Case{0x00800000, 0x0080}}) {
    EXPECT_EQ(cpu::to_bf16(std::bit_cast<float>(bits)), expected) << fmt::format("{:#x}", bits);
    const std::array one{std::bit_cast<float>(bits)};
    std::array<cpu::Bf16, 1> half{};
    std::array<float, 1> rounded{};
    cpu::round_to_bf16(one, std::span<cpu::Bf16>(half));
    cpu::round_to_bf16(one, std::span<float>(rounded));
    EXPECT_EQ(half[0], expected) << fmt::format("{:#x}", bits);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(rounded[0]), std::uint32_t{expected} << 16) << fmt::format("{:#x}", bits);
  }
}

TEST(Bf16Choice, FollowsTheRatesAndNotTheFlags) {
  struct Case {
    Bf16Facts facts;
    Bf16Unit unit;
    std::string obstacle;
  };
  const std::string not_granted =
      "the system does not grant AMX to this process (Linux does from 5.16 on, some sandboxes do not)";
  const std::vector<Case> cases = {
      {{}, Bf16Unit::none, "this processor has neither AMX nor AVX512-BF16"},
      // Zen 4: as many instructions a cycle as fp32
      {{.has_avx512 = true, .fp32 = 112e9, .avx512 = 206e9}, Bf16Unit::avx512, ""},
      // A Xeon whose instruction takes four times as long as fp32's
      {{.has_avx512 = true, .fp32 = 165e9, .avx512 = 93e9},
       Bf16Unit::none,
       "AVX512-BF16 multiplies at 93 GFLOP/s here, fp32 at 165"},
      {{.has_avx512 = true, .has_amx = true, .amx_is_granted = true, .fp32 = 165e9, .avx512 = 93e9, .amx = 1100e9},
       Bf16Unit::amx,
       ""},
      {{.has_avx512 = true, .has_amx = true, .amx_is_granted = false, .fp32 = 165e9, .avx512 = 93e9},
       Bf16Unit::none,
       "AVX512-BF16 multiplies at 93 GFLOP/s here, fp32 at 165, and " + not_granted},
      {{.has_avx512 = true, .has_amx = true, .amx_is_granted = false, .fp32 = 100e9, .avx512 = 193e9},
       Bf16Unit::avx512,
       ""},
      {{.has_amx = true}, Bf16Unit::none, not_granted},
      {{.has_avx512 = true, .has_amx = true, .amx_is_granted = true, .fp32 = 100e9, .avx512 = 193e9, .amx = 150e9},
       Bf16Unit::avx512,
       ""},
      // A gain within the noise
      {{.has_avx512 = true, .fp32 = 100e9, .avx512 = 109e9},
       Bf16Unit::none,
       "AVX512-BF16 multiplies at 109 GFLOP/s here, fp32 at 100"},
      {{.has_avx512 = true, .fp32 = 100e9, .avx512 = 111e9}, Bf16Unit::avx512, ""},
  };
  for (const auto& [facts, unit, obstacle] : cases) {
    const Bf16Choice choice = fastest_bf16_unit(facts);
    EXPECT_EQ(choice.unit, unit) << obstacle;
    EXPECT_EQ(choice.obstacle, obstacle);
  }
  EXPECT_DOUBLE_EQ(fastest_bf16_unit(cases[1].facts).gain, 206.0 / 112);
}

TEST(Bf16Choice, OfANamedUnitNeedsItsInstructionsAlone) {
  const Bf16Facts none, wide{.has_avx512 = true}, tiles{.has_avx512 = true, .has_amx = true, .amx_is_granted = true};
  for (const Bf16Unit unit : {Bf16Unit::emulated_avx512, Bf16Unit::emulated_amx})
    EXPECT_EQ(obstacle_to(unit, none), "");
  EXPECT_EQ(obstacle_to(Bf16Unit::avx512, none), "this processor has no AVX512-BF16");
  EXPECT_EQ(obstacle_to(Bf16Unit::amx, wide), "this processor has no AMX");
  EXPECT_EQ(obstacle_to(Bf16Unit::avx512, wide), "");
  EXPECT_EQ(obstacle_to(Bf16Unit::amx, tiles), "");
  EXPECT_NE(obstacle_to(Bf16Unit::amx, {.has_avx512 = true, .has_amx = true}), "");
}

TEST(Bf16Choice, MeasuresWhatIsThere) {
  const Bf16Facts instructions = bf16_instructions(), facts = measure_bf16();
  EXPECT_EQ(facts.has_avx512, instructions.has_avx512);
  EXPECT_EQ(facts.amx_is_granted, instructions.amx_is_granted);
  EXPECT_EQ(facts.avx512 > 0, facts.has_avx512);
  EXPECT_EQ(facts.amx > 0, facts.amx_is_granted);
  EXPECT_EQ(facts.fp32 > 0, facts.has_avx512 || facts.amx_is_granted);
}

}  // namespace
}  // namespace lockstep::model
