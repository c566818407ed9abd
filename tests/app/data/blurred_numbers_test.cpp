/// Warnings of numbers that float64 or float32 does not tell apart.
#include "app/data/blurred_numbers.hpp"

#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr double kNanoseconds = 1.7e18, kHour = 1040;

io::DatasetInfo two_columns(io::FileType type) {
  io::DatasetInfo info;
  info.x = {.name = "x", .type = type, .sample_shape = {2}};
  info.y = {.name = "y", .type = type, .sample_shape = {}};
  info.labels_are_classes = false;
  return info;
}
std::string warning(io::FeatureSpread second, ToldApartIn type, io::FileType stored = io::FileType::int64) {
  const io::FeaturePart columns{.elements = 2, .features = 2};
  return blurred_features({.x = {{.mean = 1, .deviation = 1}, second}, .y = {}}, std::span(&columns, 1), type,
                          two_columns(stored), "t.h5");
}

TEST(BlurredNumbersTest, NanosecondsThatDifferByLittleAreNamedWithTheirColumn) {
  EXPECT_THAT(warning({kNanoseconds, 128}, ToldApartIn::float64),
              AllOf(HasSubstr("t.h5: x at [1] holds numbers around 1700000000000000000 with a deviation of 128"),
                    HasSubstr("multiples of 256")));
  EXPECT_EQ(warning({kNanoseconds, 1e9}, ToldApartIn::float64), "") << "seconds";
}

TEST(BlurredNumbersTest, OneNumberIsSuspectOnlyWhereTheFileHoldsLongIntegers) {
  EXPECT_THAT(warning({kNanoseconds, 0}, ToldApartIn::float64), HasSubstr("as far as float64 shows"));
  EXPECT_EQ(warning({kNanoseconds, 0}, ToldApartIn::float64, io::FileType::float64), "");
  EXPECT_EQ(warning({1.7e9, 0}, ToldApartIn::float64), "") << "exact in float64";
}

TEST(BlurredNumbersTest, UnixTimesBlurOnlyInFloat32) {
  EXPECT_EQ(warning({1.7e9, kHour}, ToldApartIn::float64), "");
  EXPECT_THAT(warning({1.7e9, kHour}, ToldApartIn::float32),
              AllOf(HasSubstr("multiples of 128"), HasSubstr("--normalize per-feature")));
  EXPECT_EQ(warning({1.7e9, 1e7}, ToldApartIn::float32), "") << "a year";
}

TEST(BlurredNumbersTest, NoiseOfAConstantIsNoDifference) {
  EXPECT_EQ(warning({0.1, 1e-17}, ToldApartIn::float32, io::FileType::float64), "");
  EXPECT_EQ(warning({0.1, 1e-17}, ToldApartIn::float64, io::FileType::float64), "");
}

TEST(BlurredNumbersTest, TargetsHaveTheirOwnRemedy) {
  const io::DatasetInfo info = two_columns(io::FileType::int64);
  const FeatureStatistics statistics{.x = {}, .y = {{.mean = 1.7e9, .deviation = kHour}}};
  EXPECT_THAT(blurred_targets(statistics, ToldApartIn::float32, info, "t.h5"),
              AllOf(HasSubstr("t.h5: y holds"), HasSubstr("--normalize-targets standard")));
}

}  // namespace
}  // namespace lockstep::app
