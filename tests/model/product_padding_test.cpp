#include "model/product_padding.hpp"

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

StoredProduct product(Extents a, Extents b, Extents out, ElementType in = ElementType::bfloat16) {
  return {.in = in, .result = in, .a = a, .b = b, .out = out};
}

TEST(ProductPadding, CopiesWhatIsNoWholePacks) {
  const PaddedProduct made = padded(product({2048, 785}, {785, 1001}, {2048, 1001}));
  EXPECT_EQ(made.a, (Extents{2048, 792}));
  EXPECT_EQ(made.b, (Extents{792, 1008}));
  EXPECT_EQ(made.out, (Extents{2048, 1008}));
  EXPECT_TRUE(made.copies_a && made.copies_b && made.copies_out);
  const std::size_t bias = 2048;  // 2016 bytes
  EXPECT_EQ(made.bytes(product({2048, 785}, {785, 1001}, {2048, 1001})),
            2u * (2048 * 792 + 792 * 1008 + 2048 * 1008) + bias);
}

TEST(ProductPadding, LeavesAloneWhatIsAligned) {
  EXPECT_FALSE(padded(product({64, 784}, {784, 512}, {64, 512}), 0).copies());
  EXPECT_FALSE(padded(product({63, 784}, {784, 512}, {63, 512}), 0).copies()) << "rows are no neighbours";
  EXPECT_FALSE(padded(product({64, 785}, {785, 511}, {64, 511}, ElementType::float32), 0).copies());
}

TEST(ProductPadding, CopiesNothingThatIsNotWorthIt) {
  EXPECT_FALSE(padded(product({64, 785}, {785, 10}, {64, 10})).copies());
  EXPECT_TRUE(padded(product({64, 785}, {785, 10}, {64, 10}), 0).copies());
}

TEST(ProductPadding, TransposedFactorsHaveOtherNeighbours) {
  StoredProduct gradient = product({64, 785}, {64, 512}, {785, 512});
  gradient.a_transposed = true;
  gradient.result = ElementType::float32;
  const PaddedProduct of_a = padded(gradient, 0);
  EXPECT_EQ(of_a.a, (Extents{64, 792}));
  EXPECT_FALSE(of_a.copies_b);
  EXPECT_EQ(of_a.out, (Extents{792, 512})) << "as many rows as the factor has";
  StoredProduct back = product({64, 511}, {784, 511}, {64, 784});
  back.b_transposed = true;
  const PaddedProduct of_terms = padded(back, 0);
  EXPECT_EQ(of_terms.a, (Extents{64, 512}));
  EXPECT_EQ(of_terms.b, (Extents{784, 512}));
  EXPECT_FALSE(of_terms.copies_out);
}

TEST(ProductPadding, SumsOfFourBytesArePackedByFour) {
  StoredProduct sums = product({5, 8}, {12, 8}, {5, 12});
  sums.b_transposed = true;
  EXPECT_TRUE(padded(sums, 0).copies());
  sums.result = ElementType::float32;
  EXPECT_FALSE(padded(sums, 0).copies());
}

/// Logits with 50,304 columns and a weight with 50,257; patches with 152 columns and filters with 147 rows.
TEST(ProductPadding, WhatLiesInLongerRowsIsUsedAsItIs) {
  const PaddedProduct head = padded(product({16, 768}, {768, 50257}, {16, 50304}));
  EXPECT_TRUE(head.copies_b);
  EXPECT_FALSE(head.copies_a || head.copies_out);
  EXPECT_EQ(head.b, (Extents{768, 50304}));
  StoredProduct filters = product({4096, 152}, {4096, 64}, {147, 64});
  filters.a_transposed = true;
  filters.result = ElementType::float32;
  const PaddedProduct gradient = padded(filters);
  EXPECT_FALSE(gradient.copies_a || gradient.copies_b);
  EXPECT_EQ(gradient.out, (Extents{152, 64}));
}

TEST(ProductPadding, OutputsArePaddedWhereThatCostsLittle) {
  EXPECT_EQ(padded_outputs(10), 10);
  EXPECT_EQ(padded_outputs(1000), 1000);
  EXPECT_EQ(padded_outputs(1001), 1008);
  EXPECT_EQ(padded_outputs(10000), 10000);
  EXPECT_EQ(padded_outputs(50257), 50304);
}

/// More rows never need less memory: the memory plan uses the largest batch alone.
TEST(ProductPadding, LargerBatchesTakeMore) {
  for (const std::int64_t inputs : {9, 147, 785, 1024}) {
    std::size_t before = 0;
    for (std::int64_t rows = 1; rows < 10'000; rows = rows * 3 / 2 + 1) {
      const std::size_t bytes =
          padding_bytes({.rows = rows, .inputs = inputs, .outputs = 1001}, ElementType::bfloat16, ElementType::float32);
      EXPECT_GE(bytes, before) << rows << " rows of " << inputs;
      before = bytes;
    }
  }
}

}  // namespace
}  // namespace lockstep::model
