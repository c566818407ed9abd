#include "io/files/plural.hpp"

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(Plural, FollowsTheRulesOfRegularNouns) {
  EXPECT_EQ(count_of(1, "class"), "1 class");
  EXPECT_EQ(count_of(5, "class"), "5 classes");
  EXPECT_EQ(count_of(0, "sample"), "0 samples");
  EXPECT_EQ(count_of(2, "batch"), "2 batches");
  EXPECT_EQ(count_of(2, "box"), "2 boxes");
  EXPECT_EQ(count_of(3, "entry"), "3 entries");
  EXPECT_EQ(count_of(3, "day"), "3 days");
  EXPECT_EQ(plural_unless_one(2, ""), "");
}

}  // namespace
}  // namespace lockstep::io
