#include "app/report/wrapped_text.hpp"

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

TEST(WrappedText, GoesOnFurtherInWhereALineIsTooWide) {
  EXPECT_EQ(wrapped_text("memory: 10 KiB = weights 5 KiB + gradients 5 KiB\nshort\n", 30),
            "memory: 10 KiB = weights 5 KiB\n    + gradients 5 KiB\nshort\n");
  EXPECT_EQ(wrapped_text("loss 0.5  accuracy 80 %  top-5 99 %", 25), "loss 0.5  accuracy 80 %\n    top-5 99 %");
  EXPECT_EQ(wrapped_text("  a bb ccc", 7), "  a bb\n   ccc");
  EXPECT_EQ(wrapped_text("exactly so", 10), "exactly so");
  EXPECT_EQ(wrapped_text("µµµ µµ", 6), "µµµ µµ");
  EXPECT_EQ(wrapped_text("checkpoint runs/a/b/c/d.h5", 12), "checkpoint\n    runs/a/b/c/d.h5");
  EXPECT_EQ(wrapped_text("", 10), "");
}

TEST(WrappedText, WhatStandsBehindANameGoesOnBelowItself) {
  EXPECT_EQ(wrapped_text("  owner    a b c d e f", 16), "  owner    a b c\n        d e f")
      << "at most half of the width";
  EXPECT_EQ(wrapped_text("  owner    a b c d e f g h i", 24), "  owner    a b c d e f g\n           h i");
}

TEST(WrappedText, LeavesTablesAlone) {
  EXPECT_EQ(wrapped_text("  dense_1   20 -> 32   672", 8), "  dense_1   20 -> 32   672");
}

}  // namespace
}  // namespace lockstep::app
