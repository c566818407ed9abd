/// The division into training and validation of data that are not split.
#include "io/datasets/split_dataset.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(SampleSplitTest, EverySampleIsInOnePartAndInOrder) {
  for (const auto& [samples, validation] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {2, 1}, {3, 1}, {3, 2}, {10, 2}, {10, 3}, {10, 7}, {101, 20}, {1000, 1}, {1000, 999}, {4097, 1024}}) {
    const SampleSplit split(samples, validation);
    ASSERT_EQ(split.training() + split.validation(), samples);
    std::vector<std::int64_t> of_training, of_validation;
    for (std::int64_t i = 0; i < split.training(); ++i) of_training.push_back(split.training_sample(i));
    for (std::int64_t i = 0; i < split.validation(); ++i) of_validation.push_back(split.validation_sample(i));
    EXPECT_TRUE(std::is_sorted(of_training.begin(), of_training.end())) << samples << " " << validation;
    EXPECT_TRUE(std::is_sorted(of_validation.begin(), of_validation.end()));
    std::set<std::int64_t> all(of_training.begin(), of_training.end());
    all.insert(of_validation.begin(), of_validation.end());
    ASSERT_EQ(static_cast<std::int64_t>(all.size()), samples) << samples << " " << validation;
    EXPECT_EQ(*all.begin(), 0);
    EXPECT_EQ(*all.rbegin(), samples - 1);
    for (std::int64_t end = 0; end <= samples; ++end) {
      const auto expected = std::lower_bound(of_validation.begin(), of_validation.end(), end) - of_validation.begin();
      ASSERT_EQ(split.validation_before(end), expected) << samples << " " << validation << " " << end;
    }
  }
}

TEST(SampleSplitTest, SortedDataAreSplitEvenlyAndTheChoiceIsNoPattern) {
  const SampleSplit split(1000, 200);  // ten classes, one after the other
  std::vector<int> of_class(10, 0);
  std::set<std::int64_t> places;
  for (std::int64_t i = 0; i < split.validation(); ++i) {
    ++of_class[static_cast<std::size_t>(split.validation_sample(i) / 100)];
    places.insert(split.validation_sample(i) % 5);
  }
  for (const int count : of_class) EXPECT_EQ(count, 20);
  EXPECT_EQ(places.size(), 5U);
  EXPECT_THROW(SampleSplit(5, 0), std::invalid_argument);
  EXPECT_THROW(SampleSplit(5, 5), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::io
