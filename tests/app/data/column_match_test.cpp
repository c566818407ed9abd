/// The columns of data compared with those of a network's training data.
#include "app/data/column_match.hpp"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/usage_error.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using io::TableSchema;
using io::UnknownCategories;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = io::TableColumn::Kind;

TableSchema trained_on() {
  return {.named = true,
          .columns = {{.name = "size", .fill = 2},
                      {.name = "colour", .kind = Kind::categories, .categories = {"blue", "green", "red"}},
                      {.name = "age", .fill = 5}},
          .labels = {"price", "rent"}};
}

io::DatasetInfo data_of(const std::optional<TableSchema>& table) {
  io::DatasetInfo info;
  info.samples = 10;
  info.x = {.name = "x", .type = io::FileType::float32, .sample_shape = {table ? table->features() : 5}};
  info.y = {.name = "y", .type = io::FileType::float32, .sample_shape = {2}};
  info.labels_are_classes = false;
  info.table = table;
  return info;
}

ColumnMatch match(const std::optional<TableSchema>& data, UnknownCategories unknown = UnknownCategories::error) {
  return match_columns(trained_on(), data_of(data), "shards/new", unknown);
}

std::string refusal(const TableSchema& data) {
  return test::message_of<UsageError>([&] { match(data); });
}

TEST(MatchColumnsTest, EqualTablesNeedNothing) {
  const ColumnMatch same = match(trained_on());
  EXPECT_TRUE(same.arrangement.empty());
  EXPECT_THAT(same.notes, IsEmpty());
  EXPECT_THAT(same.warnings, IsEmpty());
  const ColumnMatch nothing =
      match_columns(std::nullopt, data_of(std::nullopt), "shards/new", UnknownCategories::error);
  EXPECT_TRUE(nothing.arrangement.empty());
  EXPECT_THAT(nothing.warnings, IsEmpty()) << "plain numbers are as they were";
}

TEST(MatchColumnsTest, ColumnsAndCategoriesAreFoundByName) {
  TableSchema data = trained_on();
  std::swap(data.columns[0], data.columns[1]);
  data.columns[0].categories = {"blue", "red"};
  const ColumnMatch found = match(data);
  EXPECT_THAT(found.arrangement.features, ElementsAre(2, 0, -1, 1, 3));
  EXPECT_THAT(found.notes, ElementsAre("columns are matched by name: the 3 of shards/new with the network's"));
}

TEST(MatchColumnsTest, TargetsAreFoundByName) {
  TableSchema data = trained_on();
  data.labels = {"tax", "rent", "price"};
  const ColumnMatch found = match(data);
  EXPECT_THAT(found.arrangement.targets, ElementsAre(2, 1));
  EXPECT_THAT(found.notes, ElementsAre(HasSubstr("does not predict are left out: tax")));
  data.labels = {"rent"};
  EXPECT_THAT(refusal(data), HasSubstr("lacks a column that the network predicts: price"));
}

TEST(MatchColumnsTest, AMissingColumnIsNamedAndASurplusOneSaid) {
  TableSchema data = trained_on();
  data.columns[2].name = "Age";
  EXPECT_THAT(refusal(data), AllOf(HasSubstr("lacks a column that the network was trained on: age"), HasSubstr("Age")));
  data.columns.push_back({.name = "age"});
  EXPECT_THAT(match(data).notes, ElementsAre(HasSubstr("columns that the network does not know are left out: Age")));
}

TEST(MatchColumnsTest, AnUnknownCategoryIsRefusedOrNone) {
  TableSchema data = trained_on();
  data.columns[1].categories = {"blue", "pink"};
  EXPECT_THAT(refusal(data), AllOf(HasSubstr("pink"), HasSubstr("--unknown-categories none")));
  const ColumnMatch found = match(data, UnknownCategories::none);
  EXPECT_THAT(found.arrangement.features, ElementsAre(0, 1, -1, -1, 3));
  EXPECT_THAT(found.notes, testing::Contains(HasSubstr("count as none: pink")));
}

TEST(MatchColumnsTest, NumbersAreNoCategories) {
  TableSchema data = trained_on();
  data.columns[1] = {.name = "colour"};
  EXPECT_THAT(refusal(data), AllOf(HasSubstr("colour holds numbers"), HasSubstr("--columns-from")));
}

TEST(MatchColumnsTest, CellsFilledWithAnotherMeanAreRefused) {
  TableSchema data = trained_on();
  data.columns[0].fill = 3;
  EXPECT_TRUE(match(data).arrangement.empty()) << "no cell is filled with it";
  data.columns[0].filled = 4;
  EXPECT_THAT(refusal(data), AllOf(HasSubstr("4 missing cells"), HasSubstr("size"), HasSubstr("--columns-from")));
}

TEST(MatchColumnsTest, WithoutNamesOnOneSideAWarningSaysSo) {
  EXPECT_THAT(match(std::nullopt).warnings, ElementsAre(HasSubstr("only the network knows their names (size, colour")));
  EXPECT_THAT(match_columns(std::nullopt, data_of(trained_on()), "shards/new", UnknownCategories::error).warnings,
              ElementsAre(HasSubstr("only the data know their names")));
  TableSchema unnamed = trained_on();
  unnamed.named = false;
  for (io::TableColumn& column : unnamed.columns) column.name = "column " + column.name;
  EXPECT_TRUE(match(unnamed).arrangement.empty()) << "by place";
  unnamed.columns.pop_back();
  EXPECT_THAT(refusal(unnamed), HasSubstr("has 2 columns, the network was trained on 3"));
}

}  // namespace
}  // namespace lockstep::app
