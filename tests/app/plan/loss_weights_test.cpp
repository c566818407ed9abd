#include "app/plan/loss_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using ::testing::ElementsAre;

TEST(LossWeights, BalancedClassesCountAlike) {
  EXPECT_THAT(balanced_weights(std::vector<std::int64_t>{6, 2, 0, 4}), ElementsAre(12.0 / 18, 2, 0, 1));
}

TEST(LossWeights, OfASampleAreThoseOfItsClassTimesItsOwn) {
  const std::vector<std::int64_t> samples{3, 0};
  const std::vector<std::int32_t> labels{1, 0};
  std::vector<float> to(2);
  LossWeights({0.5f, 2}, {1, 10, 100, 7}).write(samples, std::as_bytes(std::span(labels)), to);
  EXPECT_THAT(to, ElementsAre(14, 0.5f));
  LossWeights({0.5f, 2}, {}).write(samples, std::as_bytes(std::span(labels)), to);
  EXPECT_THAT(to, ElementsAre(2, 0.5f));
  LossWeights({}, {1, 10, 100, 7}).write(samples, {}, to);
  EXPECT_THAT(to, ElementsAre(7, 1));
  EXPECT_TRUE(LossWeights().empty());
}

}  // namespace
}  // namespace lockstep::app
