#include "io/shards/table_schema.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/files/file_error.hpp"
#include "io/io_test_support.hpp"
#include "io/shards/class_names.hpp"

namespace lockstep::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = TableColumn::Kind;

TableSchema houses() {
  return {.named = true,
          .columns = {{.name = "size [m2]", .fill = 81.25, .filled = 3},
                      {.name = "colour", .kind = Kind::categories, .categories = {"blue", "green", "red"}},
                      {.name = "rooms", .fill = 1.0 / 3}},
          .labels = {"price [EUR]"}};
}

TEST(TableSchemaTest, ComesBackAsItWasToTheLastDigit) {
  EXPECT_EQ(table_from_json(to_json(houses())), houses());
  EXPECT_EQ(table_from_json(to_json(TableSchema{})), TableSchema{});
  EXPECT_THAT(to_json(houses()), HasSubstr("\"unit\":\"m2\""));
  EXPECT_EQ(to_json(houses()).find('\n'), std::string::npos);
}

TEST(TableSchemaTest, KnowsTheFeaturesOfItsColumns) {
  EXPECT_EQ(houses().features(), 5);
  EXPECT_THAT(houses().first_features(), ElementsAre(0, 1, 4));
}

TEST(TableSchemaTest, RefusesWhatIsNone) {
  const auto refused = [](TableSchema table) {
    return error_text<FileError>([&] { table_from_json(to_json(table)); });
  };
  for (const char* text : {"", "{}", "[]", "{\"named\":1,\"columns\":[{}],\"labels\":[]}"}) {
    EXPECT_THROW(table_from_json(text), FileError) << text;
  }
  TableSchema twins = houses();
  twins.columns[2].name = "colour";
  EXPECT_THAT(refused(twins), HasSubstr("two columns are called colour"));
  TableSchema categories = houses();
  categories.columns[1].categories = {"a", "a"};
  EXPECT_THAT(refused(categories), HasSubstr("two categories are called a"));
  categories.columns[1].categories = {};
  EXPECT_THAT(refused(categories), HasSubstr("no categories"));
}

TEST(TableSchemaTest, UnitsStandInBrackets) {
  EXPECT_EQ(unit_of("height [cm]"), "cm");
  EXPECT_EQ(unit_of("height"), "");
  EXPECT_EQ(unit_of("[cm]"), "");
  EXPECT_EQ(unit_of("a [b] c"), "");
}

TEST(PairNamesTest, TellsWhatIsMissingAndWhatIsSurplus) {
  const std::vector<std::string> wanted{"a", "b", "c"}, present{"c", "x", "a"};
  const PairedNames paired = pair_names(wanted, present);
  EXPECT_THAT(paired.places, ElementsAre(2, std::nullopt, 0));
  EXPECT_THAT(paired.missing, ElementsAre("b"));
  EXPECT_THAT(paired.surplus, ElementsAre("x"));
}

TEST(ClassNamesTest, WholeNumbersHaveOneSpelling) {
  for (const char* two : {"2", "2.0", "+2", "2.", "2e0", " 02", "0.2e1"}) EXPECT_EQ(class_name(two), "2") << two;
  EXPECT_EQ(class_name("-1.0"), "-1");
  for (const char* text : {"2.5", "two", "", "2a", "+-2", "1e300", "nan", "inf", "0x10"}) {
    EXPECT_EQ(class_name(text), text);
  }
}

TEST(ClassNamesTest, NumbersOf2To53AndMoreAreTexts) {
  EXPECT_EQ(class_name("9007199254740991.0"), "9007199254740991");
  for (const char* text : {"9007199254740992.0", "9007199254740993"}) EXPECT_EQ(class_name(text), text);
}

TEST(ClassNamesTest, AreFoundByTextAndThenByTheOnlyNumberLeft) {
  using Names = std::vector<std::string>;
  EXPECT_THAT(places_among({"a", "2"}, {"2.0", "a", "b"}), ElementsAre(1, 0, std::nullopt));
  EXPECT_THAT(places_among({"007", "7", "A"}, {"7", "A"}), ElementsAre(1, 2)) << "the very text";
  EXPECT_THAT(places_among({"7"}, {"007", "7"}), ElementsAre(std::nullopt, 0)) << "two classes never become one";
  EXPECT_THAT(places_among({"7"}, {"007", "07"}), ElementsAre(std::nullopt, std::nullopt));
  EXPECT_THAT(places_among({"007", "07"}, {"7"}), ElementsAre(std::nullopt)) << "either could be meant";
  EXPECT_THAT(places_among(Names{}, {"7"}), ElementsAre(std::nullopt));
}

TEST(ClassNamesTest, AreSortedByTheirNumbersOrTheirBytes) {
  std::vector<std::string> numbers{"10", "9", "-1"}, texts{"b", "10", "a", "9"};
  sort_class_names(numbers);
  sort_class_names(texts);
  EXPECT_THAT(numbers, ElementsAre("-1", "9", "10"));
  EXPECT_THAT(texts, ElementsAre("10", "9", "a", "b"));
  EXPECT_THAT(numbered_classes(3), ElementsAre("0", "1", "2"));
  EXPECT_THAT(numbered_classes(0), IsEmpty());
}

}  // namespace
}  // namespace lockstep::io
