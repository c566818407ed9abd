#include "io/shards/data_description.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/io_test_support.hpp"

namespace lockstep::io {
namespace {

using testing::HasSubstr;

DataDescription sample_description() {
  return {.x = {.name = "x", .type = FileType::uint8, .sample_shape = {28, 28}, .unit = "cd m-2"},
          .layout = "height, width",
          .has_range = true,
          .value_min = 0,
          .value_max = 255,
          .has_statistics = true,
          .mean = 33.318421449829934,
          .standard_deviation = 78.5,
          .labels = Labels::classes,
          .classes = 3,
          .class_names = {"a", "é \"b\"", ""},
          .target_names = {},
          .target_units = {},
          .class_counts = {7, 0, 2},
          .target_means = {0.1f, -3e30f},
          .target_medians = {0.3f},
          .labels_in_part = true,
          .scale = 1.0 / 255,
          .shift = -0.1,
          .per_image = true,
          .augmentation = "flip,crop=24",
          .source = "idx train-images",
          .contents = "00ff 7"};
}

TEST(DataDescriptionTest, FieldsHaveTheExtentsOfTheirPositions) {
  DataDescription description = sample_description();
  description.field = {6, 5};
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{6, 5}, {6, 5, 2}}) {
    description.target_shape = shape;
    EXPECT_EQ(data_description_from_json(to_json(description)), description);
  }
  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{}, {6}, {6, 4}, {6, 5, 2, 2}, {5, 5, 2}}) {
    description.target_shape = wrong;
    EXPECT_THAT(error_text<FileError>([&] { data_description_from_json(to_json(description)); }),
                HasSubstr("other extents than its positions"));
  }
  description.target_shape = description.field = {6, 0};
  EXPECT_THAT(error_text<FileError>([&] { data_description_from_json(to_json(description)); }),
              HasSubstr("a field has an impossible extent"));
}

TEST(DataDescriptionTest, ComesBackAsItWasToTheLastDigit) {
  EXPECT_EQ(data_description_from_json(to_json(sample_description())), sample_description());
  EXPECT_EQ(data_description_from_json(to_json(DataDescription{})), DataDescription{});
}

TEST(DataDescriptionTest, IsOneLine) { EXPECT_EQ(to_json(sample_description()).find('\n'), std::string::npos); }

TEST(DataDescriptionTest, RefusesWhatIsNone) {
  const auto refused = [](const std::string& text) {
    return error_text<FileError>([&] { data_description_from_json(text); });
  };
  for (const char* text : {"", "{", "[]", "{}", "7", "{\"sample\":{}}"}) {
    EXPECT_THAT(refused(text), HasSubstr("the description of its data is damaged")) << text;
  }
  std::string text = to_json(sample_description());
  EXPECT_THAT(refused(std::string(text).replace(text.find("uint8"), 5, "uint9")), HasSubstr("unknown"));
  EXPECT_THAT(refused(std::string(text).replace(text.find("\"classes\":3"), 11, "\"classes\":4")),
              HasSubstr("not every class has a name"));
}

}  // namespace
}  // namespace lockstep::io
