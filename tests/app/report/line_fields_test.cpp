#include "app/report/line_fields.hpp"

#include <gtest/gtest.h>

#include "app/report/text_table.hpp"

namespace lockstep::app {
namespace {

const std::vector<LineField> kLine{
    {"step 5/9", 9, LineStyle::strong}, {"loss 0.5", 8}, {"lr 0.1", 2}, {"left 0:01", 6}};

TEST(LineFields, TheLightestGoFirstWhereThereIsNoRoom) {
  EXPECT_EQ(full_line(kLine), "step 5/9  loss 0.5  lr 0.1  left 0:01");
  EXPECT_EQ(fitted_line(kLine, 37, false), full_line(kLine));
  EXPECT_EQ(fitted_line(kLine, 36, false), "step 5/9  loss 0.5  left 0:01");
  EXPECT_EQ(fitted_line(kLine, 20, false), "step 5/9  loss 0.5");
  EXPECT_EQ(fitted_line(kLine, 1, false), "step 5/9");
}

TEST(LineFields, ColoursTakeNoRoom) { EXPECT_EQ(fitted_line(kLine, 20, true), "\x1b[1mstep 5/9\x1b[0m  loss 0.5"); }

TEST(TextTable, AlignsLettersNotBytes) {
  EXPECT_EQ(format_table({{"a", "10 µs", "x"}, {"long", "9", ""}}, {1}), "a     10 µs  x\nlong      9\n");
}

}  // namespace
}  // namespace lockstep::app
