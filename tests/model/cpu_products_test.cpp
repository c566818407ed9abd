// Compares matrix products of the CPU with sums in double: every layout of a factor, all remainders of tiles and
// blocks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cpu/gemm.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;

/// Compares c = or += a b with sums in double. Strides leave gaps between the rows.
void expect_product(const cpu::ProductShape& shape, bool a_transposed, bool b_transposed, Accumulate accumulate) {
  const auto name = fmt::format("{} x {} x {}, {}{}", shape.rows, shape.inner, shape.columns, a_transposed ? 'T' : 'N',
                                b_transposed ? 'T' : 'N');
  const std::size_t gap = 3;
  const auto factor = [&](std::vector<float>& values, std::size_t rows, std::size_t columns, bool transposed) {
    const std::size_t stride = (transposed ? rows : columns) + gap;
    values =
        test::samples<float>(transposed ? "t" : "n", static_cast<std::int64_t>((transposed ? columns : rows) * stride));
    return cpu::Factor{values.data(), stride, transposed};
  };
  std::vector<float> left, right;
  const cpu::Factor a = factor(left, shape.rows, shape.inner, a_transposed);
  const cpu::Factor b = factor(right, shape.inner, shape.columns, b_transposed);
  const std::size_t stride = shape.columns + gap;
  const auto before = test::samples<float>("c", static_cast<std::int64_t>(shape.rows * stride));
  auto c = before, shared = before;
  cpu::multiply(shape, a, b, accumulate, c.data(), stride, Bf16Unit::none);
  std::vector<float> workspace(cpu::SharedFactor::workspace(shape.inner, shape.columns, Bf16Unit::none), kNan);
  const cpu::SharedFactor packed(b, shape.inner, shape.columns, workspace, Bf16Unit::none);
  const std::size_t cut = std::min<std::size_t>(shape.columns, cpu::SharedFactor::kGranule);
  packed.multiply({shape.rows, cut, shape.inner}, a, 0, accumulate, shared.data(), stride);
  if (cut < shape.columns) {
    packed.multiply({shape.rows, shape.columns - cut, shape.inner}, a, cut, accumulate, shared.data() + cut, stride);
  }
  for (std::size_t i = 0; i < shape.rows; ++i) {
    for (std::size_t o = 0; o < stride; ++o) {
      const std::size_t at = i * stride + o;
      double sum = accumulate == Accumulate::yes ? static_cast<double>(before[at]) : 0;
      if (o >= shape.columns) {
        ASSERT_EQ(c[at], before[at]) << name << ": wrote beyond row " << i;
        ASSERT_EQ(shared[at], before[at]) << name << ": wrote beyond row " << i;
        continue;
      }
      for (std::size_t p = 0; p < shape.inner; ++p) {
        sum += static_cast<double>(*a.from(i, p).data) * static_cast<double>(*b.from(p, o).data);
      }
      const double allowed =
          kUnitRoundoff * (8 + 16 * std::sqrt(static_cast<double>(shape.inner))) * std::max(1.0, std::abs(sum));
      ASSERT_NEAR(static_cast<double>(c[at]), sum, allowed) << name << " at " << i << ", " << o;
      if (cpu::blocked_gemm_instruction_set() != nullptr) {
        ASSERT_EQ(c[at], shared[at]) << name << " packed once, at " << i << ", " << o;
      } else {  // a BLAS may add some columns in another order
        ASSERT_NEAR(static_cast<double>(shared[at]), sum, allowed) << name << " shared, at " << i << ", " << o;
      }
    }
  }
}

TEST(CpuProduct, OfManyShapesAndPlaces) {
  const std::vector<cpu::ProductShape> shapes = {
      {1, 1, 1},     {1, 33, 2},   {12, 32, 4},   {13, 31, 5},    {20, 800, 200}, {20, 65, 650},  {7, 16, 9},
      {64, 128, 64}, {37, 41, 53}, {25, 17, 384}, {169, 48, 385}, {5, 1061, 12},  {340, 49, 770}, {3, 15, 1},
  };
  for (const auto& shape : shapes) {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        for (const auto accumulate : {Accumulate::no, Accumulate::yes}) expect_product(shape, a, b, accumulate);
      }
    }
  }
}

// Uses the first rows and columns of a packed factor, like attention.
TEST(CpuProduct, OfAPartOfAPackedFactor) {
  const std::size_t inner = 900, columns = 130, rows = 9;
  const auto left = test::samples<float>("a", rows * inner), right = test::samples<float>("b", inner * columns);
  std::vector<float> workspace(cpu::SharedFactor::workspace(inner, columns, Bf16Unit::none));
  const cpu::SharedFactor packed({right.data(), columns}, inner, columns, workspace, Bf16Unit::none);
  for (const std::size_t used : {1u, 440u, 451u, 900u}) {
    for (const std::size_t begin : {0u, 64u, 128u}) {
      for (const std::size_t count : {1u, 2u, 16u, 17u, 36u, 48u, 66u, 130u}) {
        if (begin + count > columns) continue;
        std::vector<float> c(rows * count);
        packed.multiply({rows, count, used}, {left.data(), inner}, begin, Accumulate::no, c.data(), count);
        for (std::size_t i = 0; i < rows * count; ++i) {
          double sum = 0;
          for (std::size_t p = 0; p < used; ++p) {
            sum += static_cast<double>(left[i / count * inner + p]) *
                   static_cast<double>(right[p * columns + begin + i % count]);
          }
          ASSERT_NEAR(static_cast<double>(c[i]), sum, 4e-5) << used << ": " << begin << " + " << count << " at " << i;
        }
      }
    }
  }
}

TEST(CpuProduct, OfAnyCutHasTheSameBits) {
  if (cpu::blocked_gemm_instruction_set() == nullptr) GTEST_SKIP() << "the products are OpenBLAS's";
  cpu::ThreadPool one(1), two(2), three(3);
  struct Case {
    std::int64_t rows, inner, columns;
  };
  for (const auto& [rows, inner, columns] : {Case{150, 500, 90}, Case{90, 420, 151}, Case{2000, 130, 7}}) {
    auto a = test::samples<float>("a", rows * inner), b = test::samples<float>("b", inner * columns);
    std::vector<float> first;
    for (auto* threads : {&one, &two, &three}) {
      std::vector<float> c(static_cast<std::size_t>(rows * columns));
      cpu::gemm({test::view(a, rows, inner)}, {test::view(b, inner, columns)}, Accumulate::no,
                test::view(c, rows, columns), *threads, Bf16Unit::none);
      if (first.empty()) first = c;
      EXPECT_EQ(c, first) << rows << " x " << inner << " x " << columns << ", " << threads->size() << " threads";
    }
  }
}

// With few columns, tiles read the rows of a in place, unless rows are 1,024 floats apart.
TEST(CpuProduct, OfRowsInPlaceHasTheBitsOfPackedOnes) {
  if (cpu::blocked_gemm_instruction_set() == nullptr) GTEST_SKIP() << "the products are OpenBLAS's";
  constexpr std::size_t kInner = 900, kMany = 700, kMaxRows = 181, kApart = 1024;
  const auto a = test::samples<float>("a", kMaxRows * kInner), b = test::samples<float>("b", kInner * kMany);
  std::vector<float> apart(kMaxRows * kApart);
  for (std::size_t i = 0; i < kMaxRows; ++i) std::copy_n(a.data() + i * kInner, kInner, apart.data() + i * kApart);
  for (const std::size_t rows : {1u, 3u, 11u, 12u, 20u, 181u}) {
    const auto product = [&](std::size_t columns, const cpu::Factor& left) {
      std::vector<float> c(rows * columns);
      cpu::multiply({rows, columns, kInner}, left, {b.data(), kMany}, Accumulate::no, c.data(), columns,
                    Bf16Unit::none);
      return c;
    };
    const auto many = product(kMany, {a.data(), kInner});
    for (const std::size_t columns : {1u, 16u, 33u, 250u, 256u, 257u}) {
      const auto few = product(columns, {a.data(), kInner});
      EXPECT_EQ(few, product(columns, {apart.data(), kApart})) << rows << " x " << columns;
      for (std::size_t i = 0; i < rows * columns; ++i) {
        ASSERT_EQ(few[i], many[i / columns * kMany + i % columns]) << rows << " x " << columns << " at " << i;
      }
    }
  }
}

TEST(CpuProduct, LetsNanThrough) {
  for (const std::size_t columns : {40u, 33u}) {
    std::vector<float> a(20 * 10, 0.0f), b(10 * columns, 0.0f), c(20 * columns);
    b[3 * columns + columns - 1] = kNan;  // times zero
    cpu::multiply({20, columns, 10}, {a.data(), 10}, {b.data(), columns}, Accumulate::no, c.data(), columns,
                  Bf16Unit::none);
    for (std::size_t i = 0; i < 20; ++i) {
      EXPECT_TRUE(std::isnan(c[i * columns + columns - 1]));
      EXPECT_EQ(c[i * columns], 0);
    }
  }
}

}  // namespace
}  // namespace lockstep::model
