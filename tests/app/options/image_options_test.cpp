#include "app/options/image_options.hpp"

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/options/usage_error.hpp"

namespace lockstep::app {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

TEST(ImageOptions, VolumesAndSymmetries) {
  const model::ImageShape volume{.height = 16, .width = 12, .channels = 2, .depth = 20};
  const auto spec_of = [](const char* text, const model::ImageShape& in) {
    return augmentation_of(parse_augmentation(text), in);
  };
  EXPECT_EQ(spec_of("pad=2,crop=16", volume).out,
            (model::ImageShape{.height = 16, .width = 16, .channels = 2, .depth = 16}));
  EXPECT_EQ(spec_of("crop=10x9x8", volume).out,
            (model::ImageShape{.height = 9, .width = 8, .channels = 2, .depth = 10}));
  const model::Augmentation flips = spec_of("flip=dw", volume);
  EXPECT_TRUE(flips.flip && flips.flip_depth && !flips.flip_height && !flips.turns);
  const model::Augmentation all = spec_of("symmetries", volume);
  EXPECT_TRUE(all.flip && all.flip_depth && all.flip_height && all.turns);
  const model::Augmentation square = spec_of("symmetries", kImage);
  EXPECT_TRUE(square.flip && !square.flip_depth && square.flip_height && square.turns);
  const std::tuple<const char*, model::ImageShape, const char*> cases[]{
      {"crop=10x9", volume, "volumes of 20 x 16 x 12: give crop=DEPTHxHEIGHTxWIDTH"},
      {"crop=10x9x8", kImage, "images of 32 x 24: give crop=HEIGHTxWIDTH"},
      {"crop=1x9x8", volume, "one plane is no volume: a crop has a depth of 2 or more"},
      {"crop=16", volume, "a crop of 16 x 16 x 16 does not fit volumes of 20 x 16 x 12"},
      {"pad=1,crop=23x16x12", volume, "does not fit volumes of 20 x 16 x 12 with 1 zeros around"},
      {"flip=d", kImage, "images of 32 x 24, which have no depth"},
      {"area=0.5", volume, "area scales images"}};
  for (const auto& [text, in, reason] : cases) {
    try {
      spec_of(text, in);
      ADD_FAILURE() << text << " was accepted";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(reason)) << text;
    }
  }
}

TEST(ImageOptions, AreWrittenAsTheyAreRead) {
  for (const char* text : {"none", "pad=4,crop=20x16,flip,brightness=63,contrast=0.2:1.8", "crop=24,area=0.08",
                           "pad=2,crop=10x9x8,flip=dhw", "flip=h", "crop=8x8x8,symmetries"}) {
    EXPECT_EQ(to_text(parse_augmentation(text)), text);
  }
  EXPECT_EQ(to_text(parse_augmentation("flip,crop=8x8")), "crop=8,flip");
  EXPECT_EQ(to_text(parse_image_shape("28x28")), "28x28x1");
}

TEST(ImageOptions, EachMistakeIsNamed) {
  const std::pair<const char*, const char*> cases[]{{"flip,flip", "twice"},
                                                    {"flop", "did you mean flip"},
                                                    {"crop=0", "whole numbers"},
                                                    {"crop=2x3x4x5", "HEIGHTxWIDTH"},
                                                    {"pad", "whole numbers"},
                                                    {"flip=1", "letters of d, h and w"},
                                                    {"flip=", "letters of d, h and w"},
                                                    {"flip=ww", "each once"},
                                                    {"symmetries=2", "takes no value"},
                                                    {"flip=h,symmetries", "contains all flips"},
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
      EXPECT_THAT(error.what(), Not(HasSubstr(text))) << "the option's row says the text";
    }
  }
}

}  // namespace
}  // namespace lockstep::app
