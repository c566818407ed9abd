#include "model/nearest_name.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

const std::vector<std::string> kNames{"learning-rate", "batch", "global-batch", "weight-decay", "epochs", "x", "l2"};

TEST(EditDistance, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("abc", "abc"), 0);
  EXPECT_EQ(edit_distance("abc", "abxc"), 1);
  EXPECT_EQ(edit_distance("abc", "ac"), 1);
  EXPECT_EQ(edit_distance("abc", "axc"), 1);
  EXPECT_EQ(edit_distance("abc", "acb"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(EditDistance, IgnoresCaseAndUnderscores) { EXPECT_EQ(edit_distance("Learning_Rate", "learning-rate"), 0); }

TEST(NearestName, FindsWhatWasMeant) {
  EXPECT_EQ(nearest_name("learnig-rate", kNames), "learning-rate");
  EXPECT_EQ(nearest_name("learning_rate", kNames), "learning-rate");
  EXPECT_EQ(nearest_name("epoch", kNames), "epochs");
  EXPECT_EQ(nearest_name("batch-size", kNames), "batch");
  EXPECT_EQ(nearest_name("learn", kNames), "learning-rate");
  EXPECT_EQ(nearest_name("lr", kNames), "learning-rate");
  EXPECT_EQ(nearest_name("wd", kNames), "weight-decay");
}

TEST(NearestName, ALongerCommonBeginningDecidesTies) {
  EXPECT_EQ(nearest_name("of", std::vector<std::string>{"on", "off"}), "off");
  EXPECT_EQ(nearest_name("of", std::vector<std::string>{"off", "on"}), "off");
}

TEST(NearestName, StaysSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("zzzzzzzz", kNames), "");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("q", kNames), "") << "every letter of a one-letter name replaced is no resemblance";
  EXPECT_EQ(nearest_name("epochs", {}), "");
  EXPECT_EQ(did_you_mean("zzzzzzzz", kNames, "--"), "");
  EXPECT_EQ(did_you_mean("epoch", kNames, "--"), "; did you mean --epochs?");
}

TEST(ListNames, JoinsWithCommasAndAWord) {
  EXPECT_EQ(list_names({}), "");
  EXPECT_EQ(list_names(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(list_names(std::vector<std::string>{"a", "b"}), "a or b");
  EXPECT_EQ(list_names(std::vector<std::string>{"a", "b", "c"}, "and"), "a, b and c");
}

}  // namespace
}  // namespace lockstep::model
