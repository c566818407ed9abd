#include "io/text/shell_word.hpp"

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(ShellWordTest, LeavesPlainWordsAsTheyAre) { EXPECT_EQ(shell_word("runs/a_1.5:x=@%+,-Z"), "runs/a_1.5:x=@%+,-Z"); }

TEST(ShellWordTest, QuotesAllOthers) {
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("$(id) `id` \"!\""), "'$(id) `id` \"!\"'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~"), "'~'");
  EXPECT_EQ(shell_word("a\nb"), "'a\nb'");
  EXPECT_EQ(shell_word("Größe"), "'Größe'");
}

TEST(ShellWordTest, TakesNoPathForAnOption) {
  EXPECT_EQ(shell_path("-x.csv"), "./-x.csv");
  EXPECT_EQ(shell_path("-x y.csv"), "'./-x y.csv'");
  EXPECT_EQ(shell_path("a/-x.csv"), "a/-x.csv");
}

}  // namespace
}  // namespace lockstep::io
