/// Data compared with the training data of a network.
#include "app/data/data_match.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/usage_error.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Names = std::vector<std::string>;

io::DatasetInfo data_with(const Names& names, std::int64_t classes) {
  io::DatasetInfo info;
  info.samples = 10;
  info.x = {.name = "x", .type = io::FileType::float32, .sample_shape = {4}};
  info.y = {.name = "y", .type = io::FileType::int32, .sample_shape = {}};
  info.classes = classes;
  info.class_names = names;
  return info;
}
ClassMatch match(const Names& trained_on, std::int64_t outputs, const Names& names, std::int64_t classes) {
  return match_classes(trained_on, outputs, data_with(names, classes), "shards/new");
}
std::string refusal(const std::function<void()>& work) {
  return test::message_of<UsageError>([&] { work(); });
}

TEST(MatchClassesTest, EqualNamesNeedNothing) {
  const ClassMatch same = match({"a", "b"}, 2, {"a", "b"}, 2);
  EXPECT_THAT(same.output_of_class, IsEmpty());
  EXPECT_EQ(same.note + same.warning, "");
}

TEST(MatchClassesTest, AnotherOrderAndASubsetAreMappedAndSaidSo) {
  const ClassMatch order = match({"a", "b", "c"}, 3, {"c", "a", "b"}, 3);
  EXPECT_THAT(order.output_of_class, ElementsAre(2, 0, 1));
  EXPECT_EQ(order.note, "classes are matched by name: the 3 of shards/new with the network's 3");
  EXPECT_THAT(match({"a", "b", "c"}, 3, {"c"}, 1).output_of_class, ElementsAre(2));
}

TEST(MatchClassesTest, AClassThatTheNetworkDoesNotKnowIsRefusedByName) {
  EXPECT_THAT(
      refusal([] {
        match({"a", "b"}, 2, {"b", "x", "y"}, 3);
      }),
      AllOf(HasSubstr("shards/new has classes that the network does not know: x, y;"), HasSubstr("knows a, b")));
}

TEST(MatchClassesTest, TwoClassesOfOneNameCannotBeMapped) {
  EXPECT_THAT(refusal([] { match({"a", "b"}, 2, {"b", "b"}, 2); }), HasSubstr("have one name"));
  EXPECT_EQ(match({"a", "a"}, 2, {"a", "a"}, 2).note, "") << "equal lists need no map";
}

TEST(MatchClassesTest, WithoutNamesNumbersCountAndAWarningSaysSoWhereThatMayBeWrong) {
  EXPECT_EQ(match({}, 10, {}, 10).warning, "");
  EXPECT_THAT(match({}, 10, {}, 2).warning, HasSubstr("has 2 classes, the network 10, and they have no names"));
  EXPECT_THAT(match({"a", "b"}, 2, {}, 2).warning, HasSubstr("only the network's have names (a, b)"));
  EXPECT_THAT(match({}, 3, {"a", "b"}, 2).warning, HasSubstr("only those of the data have names"));
}

TEST(MatchClassesTest, NamesThatAreWholeNumbersAreComparedAsNumbers) {
  EXPECT_THAT(match({}, 3, {"0", "2.0"}, 2).output_of_class, ElementsAre(0, 2)) << "classes without names are numbers";
  EXPECT_EQ(match({}, 3, {"0.0", "1.0", "2.0"}, 3).note + match({}, 3, {"0.0", "1.0", "2.0"}, 3).warning, "");
  EXPECT_THAT(match({"1", "5"}, 2, {"5.0"}, 1).output_of_class, ElementsAre(1));
  EXPECT_THAT(refusal([] { match({}, 3, {"1", "3"}, 2); }), HasSubstr("does not know: 3; it knows 0, 1, 2"));
  EXPECT_THAT(refusal([] { match({"1", "2"}, 2, {}, 3); }), HasSubstr("does not know: 0; it knows 1, 2"));
}

TEST(MatchClassesTest, NamesThatAreOneNumberInSeveralSpellingsAreSeveralClasses) {
  const Names names{"007", "10", "1e1", "7", "A"};
  EXPECT_THAT(match(names, 5, {"7", "A", "1e1"}, 3).output_of_class, ElementsAre(3, 4, 2));
  EXPECT_THAT(refusal([] { match({"7", "A"}, 2, {"007", "7"}, 2); }), HasSubstr("does not know: 007; it knows 7, A"));
}

/// A description of training data with this type and range.
io::DataDescription trained_on(io::FileType type, double least, double greatest) {
  io::DataDescription description;
  description.x = {.name = "x", .type = type, .sample_shape = {4}};
  description.has_range = true;
  description.value_min = least;
  description.value_max = greatest;
  return description;
}
std::string compared(const io::DataDescription& before, io::FileType type, std::optional<ValueRange> range) {
  io::DatasetInfo info = data_with({}, 2);
  info.x.type = type;
  return compare_ranges(before, info, range, "shards/new");
}
using enum io::FileType;

TEST(CompareRangesTest, BytesAndNumbersOfZeroToOneAreAMistakeEitherWay) {
  EXPECT_THAT(refusal([] {
                compared(trained_on(uint8, 0, 255), float32, ValueRange{0, 1});
              }),
              AllOf(HasSubstr("shards/new holds float32 from 0 to 1"), HasSubstr("trained on uint8 from 0 to 255"),
                    HasSubstr("--normalize")));
  EXPECT_THAT(refusal([] {
                compared(trained_on(float32, 0, 1), uint8, ValueRange{0, 255});
              }),
              HasSubstr("holds uint8 from 0 to 255"));
  EXPECT_THAT(refusal([] {
                compared(trained_on(float32, 0, 1), float32, ValueRange{0, 255});
              }),
              HasSubstr("holds float32 from 0 to 255"));
}

TEST(CompareRangesTest, RangesOfOneSizeAreFine) {
  EXPECT_EQ(compared(trained_on(uint8, 0, 255), uint8, ValueRange{0, 255}), "");
  EXPECT_EQ(compared(trained_on(uint8, 0, 255), float32, ValueRange{3, 250}), "");
  EXPECT_EQ(compared(trained_on(float32, -3, 4), float32, ValueRange{-1, 2}), "");
  EXPECT_EQ(compared(trained_on(float32, 0, 1), float32, ValueRange{0, 0}), "") << "zeros fit everywhere";
}

TEST(CompareRangesTest, WhatIsUnusualIsToldAndNotRefused) {
  EXPECT_THAT(compared(trained_on(float32, 0, 1e6), float32, ValueRange{0, 1000}), HasSubstr("is that meant?"));
  EXPECT_THAT(compared(trained_on(uint8, 0, 255), float32, ValueRange{-10, 20}), HasSubstr("is that meant?"));
  EXPECT_THAT(compared(trained_on(uint8, 0, 255), float32, std::nullopt), HasSubstr("a range that is not known"));
  EXPECT_EQ(compared(trained_on(float32, 0, 1), float32, std::nullopt), "");
}

TEST(CompareRangesTest, ImagesThatAreNormalisedOneByOneMayHaveAnyRange) {
  io::DataDescription before = trained_on(uint8, 0, 255);
  before.per_image = true;
  EXPECT_EQ(compared(before, float32, ValueRange{0, 1}), "");
}

TEST(CompareUnitsTest, SayWhichFieldIsInAnotherUnit) {
  io::DataDescription before = trained_on(float32, 0, 1);
  before.x.unit = "kelvin";
  before.target_units = {"m", "m"};
  io::DatasetInfo info = data_with({}, 0);
  info.labels_are_classes = false;
  info.y.sample_shape = {2};
  EXPECT_THAT(compare_units(before, info, "shards/new"), IsEmpty()) << "nothing is known of the data";
  info.x.unit = "kelvin", info.y.unit = "m";
  EXPECT_THAT(compare_units(before, info, "shards/new"), IsEmpty());
  info.x.unit = "celsius";
  EXPECT_THAT(compare_units(before, info, "shards/new"),
              ElementsAre(HasSubstr("shards/new: x is in celsius, and the network was trained on kelvin")));
  info.x.unit = "kelvin", info.y.unit = "ft";
  EXPECT_THAT(compare_units(before, info, "shards/new"),
              ElementsAre(HasSubstr("shards/new: y is in ft, and the network was trained on m")));
  info.labels_are_classes = true;
  EXPECT_THAT(compare_units(before, info, "shards/new"), IsEmpty()) << "classes have no unit";
}

TEST(CompareUnitsTest, CompareEachOfSeveralInputsAndTargets) {
  const auto field = [](const char* name, const char* unit) {
    return io::Field{.name = name, .type = float32, .sample_shape = {}, .unit = unit};
  };
  io::DatasetInfo info = data_with({}, 0);
  info.labels_are_classes = false;
  info.inputs = {{.field = field("speed", "m s-1")}, {.field = field("heat", "K")}};
  info.targets = {{.field = field("mass", "kg")}, {.field = field("place", "m")}};
  const io::DataDescription before = describe_data(info, {});
  EXPECT_THAT(before.target_units, ElementsAre("kg", "m"));
  EXPECT_THAT(compare_units(before, info, "new"), IsEmpty());
  info.inputs[1].field.unit = "degC";
  info.targets[0].field.unit = "g";
  EXPECT_THAT(compare_units(before, info, "new"),
              ElementsAre(HasSubstr("new: heat is in degC, and the network was trained on K"),
                          HasSubstr("new: mass is in g, and the network was trained on kg")));
}

TEST(SameDataTest, IsThatOfEqualContentsWithEqualMeaning) {
  io::DataDescription before = trained_on(float32, 0, 1);
  before.class_names = {"a", "b"};
  before.classes = 2;
  before.source = "one.h5";
  EXPECT_FALSE(is_same_data(before, before)) << "nothing is known of the contents";
  before.contents = "1";
  io::DataDescription now = before;
  now.source = "other.h5";
  now.scale = 2;
  EXPECT_TRUE(is_same_data(before, now));
  now.contents = "2";
  EXPECT_FALSE(is_same_data(before, now));
  EXPECT_THAT(changes_of(before, now),
              ElementsAre("its numbers, their types or order, or the part taken by --validation are others now"));
  now.contents = "1";
  now.class_names = {"b", "a"};
  EXPECT_FALSE(is_same_data(before, now));
  EXPECT_THAT(changes_of(before, now), ElementsAre("its classes are b, a now, and were a, b"));
  before.class_names.clear();
  EXPECT_THAT(changes_of(before, now), ElementsAre("its classes are b, a now, and were 2 without names"));
}

TEST(SameSamplesTest, AnotherOrderOfExtentsIsRefusedAndAFlatOneIsNot) {
  io::DataDescription before = trained_on(uint8, 0, 255);
  before.x.sample_shape = {32, 32, 3};
  before.layout = "height, width, channels";
  io::DatasetInfo info = data_with({}, 2);
  info.x.sample_shape = {3, 32, 32};
  EXPECT_THAT(
      refusal([&] { require_same_samples(before, info, "shards/new"); }),
      HasSubstr("its samples are 3 x 32 x 32, those that the network was trained on 32 x 32 x 3 (height, width"));
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{3072}, {32, 32, 3}, {1, 32, 32, 3}}) {
    info.x.sample_shape = shape;
    require_same_samples(before, info, "shards/new");
  }
}

TEST(CompareVocabulariesTest, AnotherVocabularyIsRefusedAndOneThatNobodyKnowsIsTold) {
  const io::TokenInfo one{.kind = "char", .vocabulary = 2, .texts = {"a", "b"}},
      other{.kind = "char", .vocabulary = 2, .texts = {"a", "c"}}, ids{.kind = "ids", .vocabulary = 2};
  EXPECT_EQ(compare_vocabularies(one, one, "text"), "");
  EXPECT_EQ(compare_vocabularies(ids, ids, "text"), "");
  EXPECT_THAT(compare_vocabularies(one, ids, "text"), HasSubstr("tokens of kind ids"));
  EXPECT_THAT(refusal([&] { compare_vocabularies(one, other, "text"); }), HasSubstr("--vocabulary-from"));
}

}  // namespace
}  // namespace lockstep::app
