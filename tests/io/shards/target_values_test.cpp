#include "io/shards/target_values.hpp"

#include <limits>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(WholeNumbersTest, FloatsThatLookLikeClassesAreSome) {
  const auto look = [](const std::vector<double>& values) {
    WholeNumbers numbers;
    numbers.add(FileType::float64, std::as_bytes(std::span(values)));
    return std::pair(numbers.are_whole(), numbers.are_classes());
  };
  const std::pair classes(true, true), whole(true, false), numbers(false, false);
  EXPECT_EQ(look({0, 1, 2, 0, 1, 2}), classes);
  EXPECT_EQ(look({3, 1, 2, 3, 1, 2}), classes) << "MATLAB counts from 1";
  EXPECT_EQ(look({0, 1, 2, 3}), whole) << "each occurs once";
  EXPECT_EQ(look({0, 900, 0, 900}), whole) << "most numbers up to 900 do not occur";
  EXPECT_EQ(look({0, 1000, 0, 1000}), whole);
  EXPECT_EQ(look({0, 1e300, 0, 1}), numbers);
  EXPECT_EQ(look({0, 1, 0.5, 1}), numbers);
  EXPECT_EQ(look({-1, 1, -1, 1}), numbers);
  EXPECT_EQ(look({0, std::numeric_limits<double>::quiet_NaN(), 0, 1}), numbers);
  EXPECT_EQ(look({0, std::numeric_limits<double>::infinity(), 0, 1}), numbers);
}

TEST(WholeNumbersTest, LabelsAreToldAsTheyAre) {
  EXPECT_EQ(label_text(std::uint64_t{1} << 63), "9223372036854775808");
  EXPECT_EQ(label_text(std::int8_t{-3}), "-3");
  EXPECT_EQ(label_text(2.5F), "2.5");
}

}  // namespace
}  // namespace lockstep::io
