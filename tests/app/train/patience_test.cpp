#include "app/train/patience.hpp"

#include <cmath>
#include <functional>
#include <initializer_list>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

Patience after(Patience patience, std::initializer_list<double> metrics) {
  for (const double metric : metrics) patience.saw(metric);
  return patience;
}

TEST(PatienceTest, EndsAfterSoManyValidationsInARowThatWereNotBetter) {
  const Patience two(2, 0, std::greater<>());
  EXPECT_FALSE(after(two, {}).is_over());
  EXPECT_FALSE(after(two, {0.5, 0.4}).is_over());
  EXPECT_TRUE(after(two, {0.5, 0.4, 0.5}).is_over()) << "as good is not better";
  EXPECT_FALSE(after(two, {0.5, 0.4, 0.6, 0.5}).is_over()) << "counted from the best";
  EXPECT_FALSE(after(Patience(0, 0, std::greater<>()), {0.5, 0.4, 0.3, 0.2}).is_over()) << "0: never";
}

TEST(PatienceTest, BetterIsByMoreThanTheLeastDifferenceInEitherDirection) {
  const Patience up(1, 0.125, std::greater<>()), down(1, 0.125, std::less<>());
  EXPECT_TRUE(after(up, {0.5, 0.625}).is_over());
  EXPECT_FALSE(after(up, {0.5, 0.6875}).is_over());
  EXPECT_TRUE(after(down, {0.5, 0.375}).is_over());
  EXPECT_FALSE(after(down, {0.5, 0.3125}).is_over());
}

TEST(PatienceTest, GoesOnWhereAnEarlierRunStopped) {
  Patience resumed(3, 0, std::greater<>());
  const Patience before = after(resumed, {0.5, 0.4});
  resumed.go_on(before.best(), before.in_vain());
  EXPECT_FALSE(after(resumed, {0.4}).is_over());
  EXPECT_TRUE(after(resumed, {0.4, 0.4}).is_over());
  Patience fresh(1, 0, std::greater<>());
  fresh.go_on(std::nan(""), 0);
  EXPECT_FALSE(after(fresh, {0.1}).is_over()) << "the first is better than nothing";
}

}  // namespace
}  // namespace lockstep::app
