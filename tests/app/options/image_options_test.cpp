#include "app/options/image_options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

using ::testing::HasSubstr;

constexpr model::ImageShape kImage{.height = 32, .width = 24, .channels = 3};

TEST(ImageOptions, ShapesAreReadAndWrongOnesRefused) {
  EXPECT_EQ(parse_image_shape("32x24x3"), kImage);
  EXPECT_EQ(parse_image_shape("28x28").channels, 1);
  const model::ImageShape volume{.height = 8, .width = 6, .channels = 2, .depth = 10};
  EXPECT_EQ(parse_image_shape("10x8x6x2"), volume);
  EXPECT_EQ(to_text(volume), "10x8x6x2");
  for (const char* wrong : {"", "32", "32x", "0x3x3", "2x32x24x3x1", "2x0x24x3", "ax3", "-1x3", "32x24x3 "}) {
    EXPECT_THROW(parse_image_shape(wrong), UsageError) << wrong;
  }
}

TEST(ImageOptions, EveryItemOfAnAugmentation) {
  const model::Augmentation spec =
      augmentation_of(parse_augmentation("pad=4,crop=20x16,flip,brightness=63,contrast=0.2:1.8"), kImage);
  EXPECT_EQ(spec.in, kImage);
  EXPECT_EQ(spec.out, (model::ImageShape{.height = 20, .width = 16, .channels = 3}));
  EXPECT_EQ(spec.pad, 4);
  EXPECT_TRUE(spec.flip);
  EXPECT_FLOAT_EQ(spec.brightness, 63);
  EXPECT_FLOAT_EQ(spec.contrast_low, 0.2f);
  EXPECT_FLOAT_EQ(spec.contrast_high, 1.8f);
  EXPECT_FLOAT_EQ(parse_augmentation("crop=24,area=0.08").minimum_area, 0.08f);
  EXPECT_EQ(augmentation_of(parse_augmentation("none"), kImage), (model::Augmentation{.in = kImage, .out = kImage}));
}

TEST(ImageOptions, AreWrittenAsTheyAreRead) {
  for (const char* text : {"none", "pad=4,crop=20x16,flip,brightness=63,contrast=0.2:1.8", "crop=24,area=0.08"}) {
    EXPECT_EQ(to_text(parse_augmentation(text)), text);
  }
  EXPECT_EQ(to_text(parse_augmentation("flip,crop=8x8")), "crop=8,flip");
  EXPECT_EQ(to_text(parse_image_shape("28x28")), "28x28x1");
}

TEST(ImageOptions, EachMistakeIsNamed) {
  const std::pair<const char*, const char*> cases[]{{"flip,flip", "twice"},
                                                    {"flop", "did you mean flip"},
                                                    {"crop=0", "whole numbers"},
                                                    {"crop=2x3x4", "HEIGHTxWIDTH"},
                                                    {"pad", "whole numbers"},
                                                    {"flip=1", "takes no value"},
                                                    {"area=1.5", "at most 1"},
                                                    {"contrast=2", "LOW:HIGH"},
                                                    {"contrast=2:1", "LOW is above HIGH"},
                                                    {"brightness=-1", "positive"},
                                                    {"area=0.1,pad=2", "exclude each other"}};
  for (const auto& [text, reason] : cases) {
    try {
      parse_augmentation(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason)) << text;
    }
  }
}

}  // namespace
}  // namespace lockstep::app
