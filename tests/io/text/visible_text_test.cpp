/// Foreign text in output for people.
#include "io/text/visible_text.hpp"

#include <gtest/gtest.h>

namespace lockstep::io {
namespace {

TEST(VisibleText, KeepsLetters) {
  for (const char* text : {"plain", "Köln", "Łódź", "東京", "می‌خواهم", "👩‍🔬", "a\\b", ""})
    EXPECT_EQ(visible_line(text), text);
}

TEST(VisibleText, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(visible_text("\x1b]0;owned\x07"), "\\x1B]0;owned\\x07");
  EXPECT_EQ(visible_text("\x7f\b\r"), "\\x7F\\x08\\r");
  EXPECT_EQ(visible_text("\xc2\x9b"
                         "31m"),
            "\\u009B31m");
  EXPECT_EQ(visible_text(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(VisibleText, ShowsWhatTurnsOrHidesText) {
  EXPECT_EQ(visible_line("\u202Egpj.exe"), "\\u202Egpj.exe");
  EXPECT_EQ(visible_line("\u2066a\u2069\u200B\uFEFF"), "\\u2066a\\u2069\\u200B\\uFEFF");
  EXPECT_EQ(visible_line("\U000E0041"), "\\U000E0041");
}

TEST(VisibleText, ShowsBytesThatAreNoUtf8) { EXPECT_EQ(visible_line("K\xF6ln \x9b\xC3"), "K\\xF6ln \\x9B\\xC3"); }

TEST(VisibleText, HasItsOwnLinesOrIsOne) {
  EXPECT_EQ(visible_text("a\n\tb"), "a\n\tb");
  EXPECT_EQ(visible_line("a\n\tb"), "a\\n\\tb");
  EXPECT_EQ(visible_line("a\u2028b"), "a\\u2028b");
}

TEST(VisibleText, ALetterThatIsCutOffWaits) {
  EXPECT_EQ(whole_letters("ab\xE2\x82"), 2U);
  EXPECT_EQ(whole_letters("ab\xE2\x82\xAC"), 5U);
  EXPECT_EQ(whole_letters("\xF0\x9F\x91"), 0U);
  EXPECT_EQ(whole_letters("ab\xFF"), 3U) << "no letter begins so";
  EXPECT_EQ(whole_letters(""), 0U);
}

}  // namespace
}  // namespace lockstep::io
