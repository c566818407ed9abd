#include "app/report/progress_bar.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using std::chrono::milliseconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

TEST(FormatProgress, ShowsShareTextAndTimeLeft) {
  EXPECT_EQ(format_progress(0.5, "9 samples/s", 65, 50), " 50 % [#########..........] 9 samples/s  1:05 left");
  EXPECT_EQ(format_progress(0, "", std::nullopt, 16), "  0 % [........]");
  EXPECT_EQ(format_progress(1, "", std::nullopt, 16), "100 % [########]");
}

TEST(FormatProgress, NeverExceedsTheWidth) {
  for (int columns = 0; columns < 200; ++columns) {
    for (const double fraction : {0.0, 0.333, 0.999, 1.0}) {
      const std::string line = format_progress(fraction, "12,345 samples/s", 3725, columns);
      EXPECT_LE(line.size(), static_cast<std::size_t>(columns)) << line;
    }
  }
}

TEST(FormatProgress, GivesUpTheBarBeforeTheText) {
  const std::string line = format_progress(0.5, "12,345 samples/s", 65, 36);
  EXPECT_THAT(line, Not(HasSubstr("[")));
  EXPECT_THAT(line, HasSubstr("12,345 samples/s"));
}

TEST(FormatProgress, ClaimsNothingFinishedThatIsNot) {
  EXPECT_THAT(format_progress(0.9999, "", std::nullopt, 40), testing::StartsWith(" 99 %"));
  EXPECT_THAT(format_progress(0.9999, "", std::nullopt, 40), HasSubstr(".]"));
}

TEST(FormatProgress, SurvivesNonsense) {
  EXPECT_THAT(format_progress(-1, "", std::nullopt, 40), testing::StartsWith("  0 %"));
  EXPECT_THAT(format_progress(7, "", std::nullopt, 40), testing::StartsWith("100 %"));
  EXPECT_THAT(format_progress(std::numeric_limits<double>::quiet_NaN(), "", std::nullopt, 40),
              testing::StartsWith("  0 %"));
}

TEST(ProgressBar, RedrawsAtMostTenTimesASecondButAlwaysTheEnd) {
  ProgressBar bar;
  const ProgressBar::Clock::time_point start{};
  EXPECT_TRUE(bar.update(0, "", 40, start));
  EXPECT_FALSE(bar.update(0.1, "", 40, start + milliseconds(99)));
  EXPECT_TRUE(bar.update(0.2, "", 40, start + milliseconds(100)));
  EXPECT_FALSE(bar.update(0.3, "", 40, start + milliseconds(150)));
  EXPECT_TRUE(bar.update(1, "", 40, start + milliseconds(151)));
}

TEST(ProgressBar, ExtrapolatesFromWhereItBegan) {
  ProgressBar bar;
  const ProgressBar::Clock::time_point start{};
  bar.update(0.5, "", 60, start);  // a resumed run: half is old work
  EXPECT_THAT(*bar.update(0.6, "", 60, start + milliseconds(10'000)), EndsWith("0:40 left"));
  bar.reset();
  EXPECT_THAT(*bar.update(0.6, "", 60, start + milliseconds(10'001)), Not(HasSubstr("left")));
}

}  // namespace
}  // namespace lockstep::app
