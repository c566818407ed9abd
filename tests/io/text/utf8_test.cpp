#include "io/text/utf8.hpp"

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(Utf8Test, FindsTheFirstByteThatIsNone) {
  EXPECT_EQ(first_not_utf8("Köln"), std::nullopt);
  EXPECT_EQ(first_not_utf8("K\xF6ln"), 1U);
  EXPECT_EQ(first_not_utf8("K\xC3"), 1U) << "cut off";
  EXPECT_EQ(first_not_utf8(""), std::nullopt);
}

TEST(Utf8Test, ShowsOtherBytesAsNumbers) {
  EXPECT_EQ(readable("K\xF6ln \xFF\xFE ö"), "K\\xF6ln \\xFF\\xFE ö");
  EXPECT_EQ(readable("plain"), "plain");
}

}  // namespace
}  // namespace lockstep::io
