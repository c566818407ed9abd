#include "io/files/json_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string parse_error(const std::string& text) {
  return error_text<FileError>([&] { parse_json(text); });
}

TEST(JsonTextTest, SaysWhereATextIsNoJson) {
  EXPECT_EQ(parse_error("{\"a\": 1,\n  \"b\" 2}"), "it is no JSON: line 2, column 7");
  EXPECT_EQ(parse_error("{\"a\": 1"), "it is no JSON: it ends too early, at line 1, column 8");
  EXPECT_EQ(parse_error(""), "it is no JSON: it ends too early, at line 1, column 1");
  EXPECT_THAT(parse_error("{\"a\": 1e999}"), AllOf(HasSubstr("too large"), Not(HasSubstr("json.exception"))));
  EXPECT_THAT(parse_error("{\"a\": \"\xF6\"}"), Not(HasSubstr("json.exception")));
}

TEST(JsonTextTest, RefusesNestingThatWouldEndTheProcess) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(to_text(parse_json(nested(60))), nested(60));
  EXPECT_EQ(parse_error(nested(80'000)), "it is JSON nested over 64 deep");
  EXPECT_EQ(parse_error("{\"a\": " + nested(1'000'000)), "it is JSON nested over 64 deep");
}

TEST(JsonTextTest, TakesEntriesOfTheRightKindAlone) {
  const nlohmann::json object = parse_json(R"({"text": "t", "whole": -3, "real": 1.5, "large": 18446744073709551615,
                                               "texts": ["a", "b"], "numbers": [1, 2], "mixed": ["a", 1]})");
  EXPECT_EQ(text_entry(object, "text"), "t");
  EXPECT_EQ(integer_entry(object, "whole"), -3);
  EXPECT_EQ(real_entry(object, "real"), 1.5);
  EXPECT_EQ(real_entry(object, "whole"), -3);
  EXPECT_THAT(texts_entry(object, "texts"), testing::ElementsAre("a", "b"));
  EXPECT_THAT(integers_entry(object, "numbers"), testing::ElementsAre(1, 2));
  const auto error = [](const auto& work) { return error_text<FileError>(work); };
  EXPECT_EQ(error([&] { text_entry(object, "none"); }), "its entry none is missing");
  EXPECT_EQ(error([&] { text_entry(object, "whole"); }), "its entry whole is no text");
  EXPECT_EQ(error([&] { integer_entry(object, "real"); }), "its entry real is no whole number of 64 bits");
  EXPECT_EQ(error([&] { integer_entry(object, "large"); }), "its entry large is no whole number of 64 bits");
  EXPECT_EQ(error([&] { real_entry(object, "text"); }), "its entry text is no number");
  EXPECT_EQ(error([&] { texts_entry(object, "mixed"); }), "its entry mixed is no text");
  EXPECT_EQ(error([&] { list_entry(object, "text"); }), "its entry text is no list");
  EXPECT_THROW(entry(object["text"], "text"), FileError);
}

TEST(JsonTextTest, RefusesToWriteWhatIsNoUtf8) {
  EXPECT_EQ(to_text(parse_json("{\"a\": [1]}")), "{\"a\":[1]}");
  EXPECT_EQ(error_text<FileError>([] { to_text(nlohmann::json("\xF6")); }), "a text in it is no UTF-8");
}

}  // namespace
}  // namespace lockstep::io
