#include "io/formats/csv_number.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

using testing::HasSubstr;
using testing::Optional;

TEST(CsvNumberTest, ReadsOtherMarksWhereTheyAreAskedFor) {
  const NumberStyle comma{.decimal = ','}, groups{.thousands = ','}, both{.decimal = ',', .thousands = '.'};
  EXPECT_EQ(csv_number("1,5", comma), 1.5);
  EXPECT_EQ(csv_number("-,5e1", comma), -5.0);
  EXPECT_EQ(csv_number("7", comma), 7.0);
  EXPECT_EQ(csv_number("1.5", comma), std::nullopt) << "one mark has one meaning";
  EXPECT_EQ(csv_number("1,234", groups), 1234.0);
  EXPECT_EQ(csv_number("-12,345,678.5", groups), -12345678.5);
  EXPECT_EQ(csv_number("1,23", groups), std::nullopt);
  EXPECT_EQ(csv_number("1,2345", groups), std::nullopt);
  EXPECT_EQ(csv_number("1.5", groups), 1.5);
  EXPECT_EQ(csv_number("1.234,56", both), 1234.56);
  EXPECT_EQ(csv_number("1.5", both), std::nullopt);
  EXPECT_EQ(csv_number("1,5"), std::nullopt);
  EXPECT_EQ(csv_plain("1.234,0", both), "1234.0");
  EXPECT_EQ(csv_plain("a,b", both), "a,b");
}

TEST(CsvNumberTest, RecognisesNumbersInOtherSpellings) {
  const std::pair<const char*, const char*> odd[] = {{"1,5", "--decimal ,"},
                                                     {"-0,25", "--decimal ,"},
                                                     {"1,234", "--thousands ,"},
                                                     {"1,234", "--decimal ,"},
                                                     {"1,234,567", "--thousands ,"},
                                                     {"12,34,567", "--thousands ,"},
                                                     {"1,234.5", "--thousands ,"},
                                                     {"1.234,56", "--thousands . --decimal ,"},
                                                     {"1.234.567", "--thousands ."},
                                                     {"1 234 567", "--thousands blank"},
                                                     {"1'234", "--thousands \"'\""},
                                                     {"1_000", "--thousands _"},
                                                     {"12%", "percentage"},
                                                     {"12.5 %", "percentage"},
                                                     {"12,5 %", "percentage"},
                                                     {"$5", "money"},
                                                     {"1,200 \xE2\x82\xAC", "money"},
                                                     {"-$5.00", "money"},
                                                     {"USD 5", "money"},
                                                     {"(5)", "parentheses"},
                                                     {"\xE2\x88\x92"
                                                      "5",
                                                      "typographic"},
                                                     {"1\xC2\xA0"
                                                      "234",
                                                      "number"},
                                                     {"'5'", "quotation"},
                                                     {"\"5\"", "quotation"},
                                                     {"- 5", "a sign apart"},
                                                     {"12.5-", "its sign behind"},
                                                     {"inf", "no finite number"},
                                                     {"-Infinity", "no finite number"},
                                                     {"0x1F", "hexadecimal"},
                                                     {"1.5d3", "Fortran"},
                                                     {"1.0 2.0 3.0", "several numbers"},
                                                     {"1;2;3", "--separator \";\""},
                                                     {"1|2", "--separator \"|\""}};
  for (const auto& [text, remedy] : odd) {
    EXPECT_FALSE(csv_number(text)) << text;
    EXPECT_THAT(odd_number(text, {}), Optional(HasSubstr(remedy))) << text;
  }
  EXPECT_THAT(odd_number("1.5", {.decimal = ','}), Optional(HasSubstr("other marks than --decimal ,")));
}

TEST(CsvNumberTest, LeavesWordsAlone) {
  for (const char* text :
       {"red", "A1", "1st", "4WD", "3-5",     "<1H OCEAN", "1.2.3.4",     "B-52", "none",    "high (5)", "+",
        "-",   "$",  "%",   "",    "1,2 GHz", "a,b",       "10th of May", "x1",   "1:2:3:4", "12,3456a"}) {
    EXPECT_FALSE(odd_number(text, {})) << text;
  }
}

TEST(CsvNumberTest, KnowsUnitsDatesAndWhatIsMissing) {
  EXPECT_THAT(number_suffix("5 kg"), Optional(std::string("kg")));
  EXPECT_THAT(number_suffix("-5.5\xC2\xB0"
                            "C"),
              Optional(std::string("\xC2\xB0"
                                   "C")));
  EXPECT_FALSE(number_suffix("kg"));
  EXPECT_FALSE(number_suffix("5"));
  EXPECT_FALSE(number_suffix("5-7"));
  for (const char* date : {"2024-05-31", "31.05.2024", "5/31/24 12:00", "31-May-2024", "May 31, 2024", "may 2024",
                           "12:30", "12:30:45.5", "9:05 pm"}) {
    EXPECT_TRUE(csv_date(date)) << date;
  }
  for (const char* word : {"may", "mayor 5", "12:3", "120:30", "1.2.3.4", "5", "may 12345"}) {
    EXPECT_FALSE(csv_date(word)) << word;
  }
  for (const char* missing : {"", "NA", "n/a", "NaN", "None", "NULL", "?", "#N/A", "<NA>", "-nan"}) {
    EXPECT_TRUE(csv_missing(missing)) << missing;
  }
  EXPECT_FALSE(csv_missing("nano"));
}

}  // namespace
}  // namespace lockstep::io
