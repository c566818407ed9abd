// Augmentation: the draws, their effect in the reference, and equal results of the affine map that CPU and GPU use
// (formulas/augmentation.hpp).
#include "model/formulas/augmentation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "model/backend.hpp"
#include "model/mask_augmentation.hpp"
#include "model/reference/reference_images.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::samples;
using test::view;

/// Returns one result per key; without keys, the result of evaluation for each image.
template <class T>
std::vector<double> augmented(std::vector<T> images, std::vector<std::uint64_t> keys, const Augmentation& spec) {
  ReferenceImages reference;
  const auto batch = static_cast<std::int64_t>(images.size()) / spec.in.elements();
  std::vector<double> out(static_cast<std::size_t>(batch * spec.out.elements()), -77.0);
  reference.augment(view(images, batch, spec.in.elements()), keys.empty() ? Tensor{} : view(keys, batch, 1), spec,
                    view(out, batch, spec.out.elements()));
  return out;
}

/// Repeats the same image.
template <class T>
std::vector<T> repeated(const std::vector<T>& image, std::size_t times) {
  std::vector<T> all;
  for (std::size_t i = 0; i < times; ++i) all.insert(all.end(), image.begin(), image.end());
  return all;
}

/// 1, 2, 3 ...
std::vector<std::uint8_t> counted(const ImageShape& shape) {
  std::vector<std::uint8_t> image(static_cast<std::size_t>(shape.elements()));
  std::iota(image.begin(), image.end(), std::uint8_t{1});
  return image;
}

/// Returns the expected crop of `image`, by the definition.
std::vector<double> crop_of(const std::vector<std::uint8_t>& image, const Augmentation& spec, std::int64_t top,
                            std::int64_t left, bool flipped) {
  std::vector<double> crop;
  for (std::int64_t row = top; row < top + spec.out.height; ++row) {
    for (std::int64_t i = 0; i < spec.out.width; ++i) {
      const std::int64_t column = left + (flipped ? spec.out.width - 1 - i : i);
      for (std::int64_t c = 0; c < spec.in.channels; ++c) {
        const bool inside = row >= 0 && row < spec.in.height && column >= 0 && column < spec.in.width;
        const std::int64_t index = (row * spec.in.width + column) * spec.in.channels + c;
        crop.push_back(inside ? image[static_cast<std::size_t>(index)] : 0);
      }
    }
  }
  return crop;
}

TEST(Augmentation, EvaluationTakesTheCentre) {
  const ImageShape in{5, 6, 2};
  const auto image = counted(in);
  EXPECT_EQ(augmented(image, {}, {.in = in, .out = in}), crop_of(image, {.in = in, .out = in}, 0, 0, false));
  const Augmentation smaller{.in = in, .out = {2, 3, 2}, .pad = 1, .flip = true, .brightness = 9, .contrast_low = 0.5f};
  EXPECT_EQ(augmented(image, {}, smaller), crop_of(image, smaller, 1, 1, false));
  const Augmentation larger{.in = in, .out = {8, 7, 2}, .pad = 2};
  EXPECT_EQ(augmented(image, {}, larger), crop_of(image, larger, -1, 0, false));
  const Augmentation scaled{.in = in, .out = {3, 8, 2}, .minimum_area = 0.1f};
  EXPECT_EQ(augmented(image, {}, scaled), crop_of(image, scaled, 1, -1, false));
  EXPECT_EQ(augmented(repeated(image, 2), {}, smaller), repeated(crop_of(image, smaller, 1, 1, false), 2));
  EXPECT_TRUE(augmented(std::vector<std::uint8_t>{}, {}, smaller).empty());
}

TEST(Augmentation, EveryCropIsReachedAboutAsOftenAndHalfAreFlipped) {
  const Augmentation spec{.in = {5, 6, 1}, .out = {3, 3, 1}, .pad = 1, .flip = true};
  const auto image = counted(spec.in);
  std::map<std::vector<double>, int> number;  // index of each crop: (top + 1) * 12 + (left + 1) * 2 + flipped
  for (int top = -1; top <= 3; ++top) {
    for (int left = -1; left <= 4; ++left) {
      for (const bool flipped : {false, true}) {
        number[crop_of(image, spec, top, left, flipped)] = (top + 1) * 12 + (left + 1) * 2 + flipped;
      }
    }
  }
  ASSERT_EQ(number.size(), 60u) << "the crops must be distinct";
  const std::size_t draws = 6000;
  const auto out = augmented(repeated(image, draws), test::sample_keys(draws), spec);
  std::array<int, 60> counts{};
  int flipped = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const auto found = number.find(
        {out.begin() + static_cast<std::ptrdiff_t>(9 * i), out.begin() + static_cast<std::ptrdiff_t>(9 * i + 9)});
    ASSERT_NE(found, number.end()) << "no crop of the image";
    ++counts[static_cast<std::size_t>(found->second)];
    flipped += found->second % 2;
  }
  for (const int count : counts) EXPECT_NEAR(count, 100, 50);  // five standard deviations
  EXPECT_NEAR(flipped, 3000, 5 * std::sqrt(1500.0));
}

/// Returns the sample under all permutations and flips of its directions that keep the shape.
std::vector<std::vector<double>> symmetries_of(const std::vector<std::uint8_t>& sample, const ImageShape& shape) {
  std::vector<std::vector<double>> all;
  std::array<std::size_t, 3> order{0, 1, 2};
  const std::array<std::int64_t, 3> extents = shape.extents(),
                                    steps{shape.height * shape.width, shape.width, std::int64_t{1}};
  do {
    for (unsigned backwards = 0; backwards < 8; ++backwards) {
      bool keeps = true;
      std::int64_t first = 0;
      std::array<std::int64_t, 3> step{};
      for (std::size_t i = 0; i < 3; ++i) {
        keeps = keeps && extents[i] == extents[order[i]] && (extents[i] > 1 || (backwards >> i & 1) == 0);
        step[i] = steps[order[i]];
        if ((backwards >> i & 1) == 0) continue;
        first += step[i] * (extents[i] - 1);
        step[i] = -step[i];
      }
      if (!keeps) continue;
      std::vector<double> one;
      for (std::int64_t i = 0; i < extents[0]; ++i) {
        for (std::int64_t j = 0; j < extents[1]; ++j) {
          for (std::int64_t k = 0; k < extents[2]; ++k) {
            const std::int64_t pixel = first + i * step[0] + j * step[1] + k * step[2];
            for (std::int64_t c = 0; c < shape.channels; ++c) {
              one.push_back(sample[static_cast<std::size_t>(pixel * shape.channels + c)]);
            }
          }
        }
      }
      all.push_back(one);
    }
  } while (std::ranges::next_permutation(order).found);
  return all;
}

TEST(Augmentation, AllSymmetriesOfAShapeComeAboutAsOften) {
  const std::pair<ImageShape, std::size_t> cases[]{{{3, 3, 2, 3}, 48}, {{4, 2, 2, 4}, 16}, {{2, 2, 1, 3}, 16},
                                                   {{3, 4, 1, 2}, 8},  {{4, 4, 2}, 8},     {{3, 5, 2}, 4}};
  for (const auto& [shape, order] : cases) {
    const auto sample = counted(shape);
    const Augmentation spec{
        .in = shape, .out = shape, .flip = true, .flip_height = true, .flip_depth = shape.depth > 1, .turns = true};
    std::map<std::vector<double>, int> counts;
    for (const auto& one : symmetries_of(sample, shape)) counts[one] = 0;
    ASSERT_EQ(counts.size(), order) << "the test's own list";
    const std::size_t draws = 100 * order;
    const auto out = augmented(repeated(sample, draws), test::sample_keys(draws), spec);
    const auto size = static_cast<std::ptrdiff_t>(sample.size());
    for (auto at = out.begin(); at != out.end(); at += size) {
      const auto found = counts.find({at, at + size});
      ASSERT_NE(found, counts.end()) << "no symmetry of the sample";
      ++found->second;
    }
    for (const auto& [one, count] : counts) EXPECT_NEAR(count, 100, 50) << order;  // five standard deviations
  }
}

TEST(Augmentation, VolumesAreShiftedInThreeDirections) {
  const ImageShape in{3, 4, 1, 5};
  const auto volume = counted(in);
  const auto value = [&](std::int64_t plane, std::int64_t row, std::int64_t column) {
    const bool inside = plane >= 0 && plane < 5 && row >= 0 && row < 3 && column >= 0 && column < 4;
    return inside ? volume[static_cast<std::size_t>((plane * 3 + row) * 4 + column)] : 0;
  };
  const auto crop_at = [&](std::int64_t front, std::int64_t top, std::int64_t left) {
    std::vector<double> crop;
    for (std::int64_t i = 0; i < 4 * 3 * 2; ++i) crop.push_back(value(front + i / 6, top + i / 2 % 3, left + i % 2));
    return crop;
  };
  const Augmentation spec{.in = in, .out = {3, 2, 1, 4}, .pad = 1};
  EXPECT_EQ(augmented(volume, {}, spec), crop_at(0, 0, 1)) << "evaluation takes the centre";
  const Augmentation larger{.in = in, .out = {3, 2, 1, 8}, .pad = 2};
  EXPECT_EQ(augmented(volume, {}, larger)[5], 0) << "one plane of zeros before";
  EXPECT_EQ(augmented(volume, {}, larger)[6], value(0, 0, 1));
  std::map<std::vector<double>, int> counts;
  const std::size_t offsets = 4 * 3 * 5;
  const auto out = augmented(repeated(volume, 100 * offsets), test::sample_keys(100 * offsets), spec);
  for (auto at = out.begin(); at != out.end(); at += 24) ++counts[{at, at + 24}];
  EXPECT_EQ(counts.size(), offsets);
  for (std::int64_t i = 0; i < 60; ++i) {
    EXPECT_NEAR(counts[crop_at(i / 15 - 1, i / 5 % 3 - 1, i % 5 - 1)], 100, 50) << i;
  }
  // Options do not change each other's draws: with flips, the result is the flipped crop.
  Augmentation flipped = spec;
  flipped.flip_depth = true;
  const auto keys = test::sample_keys(20);
  const auto plain = augmented(repeated(volume, 20), keys, spec), also = augmented(repeated(volume, 20), keys, flipped);
  int backwards = 0;
  for (std::size_t k = 0; k < 20; ++k) {
    std::vector<double> one(&plain[k * 24], &plain[k * 24] + 24), other(&also[k * 24], &also[k * 24] + 24);
    if (one == other) continue;
    ++backwards;
    for (std::size_t plane = 0; plane < 4; ++plane) {
      EXPECT_TRUE(std::equal(&one[plane * 6], &one[plane * 6] + 6, &other[(3 - plane) * 6])) << k;
    }
  }
  EXPECT_TRUE(backwards > 2 && backwards < 18) << backwards;
}

TEST(Augmentation, DrawsTheWordsThatItsHeaderNames) {
  const Augmentation spec{.in = {32, 40, 3},
                          .out = {24, 28, 3},
                          .pad = 2,
                          .flip = true,
                          .brightness = 63,
                          .contrast_low = 0.2f,
                          .contrast_high = 1.8f};
  const formulas::AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  for (const std::uint64_t key : test::sample_keys(100)) {
    const PhiloxKey halves{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
    const PhiloxCounter first = philox4x32({0, 0, kAugmentationStream, 0}, halves);
    const PhiloxCounter second = philox4x32({1, 0, kAugmentationStream, 0}, halves);
    const formulas::SampleAugmentation got = formulas::draw_augmentation(numbers, key);
    EXPECT_EQ(got.top, static_cast<int>(std::uint64_t{first[0]} * 13 >> 32) - 2);
    EXPECT_EQ(got.left, static_cast<int>(std::uint64_t{first[1]} * 17 >> 32) - 2);
    EXPECT_EQ(got.flips, first[2] & formulas::kFlipWidth);
    EXPECT_NEAR(got.brightness, 63 * (static_cast<std::int32_t>(first[3]) * 0x1p-31), 1e-5);
    EXPECT_NEAR(got.contrast, 0.2 + 1.6 * (second[0] * 0x1p-32), 1e-6);
    EXPECT_FALSE(got.scaled);
    // Options do not change each other's draws.
    const formulas::SampleAugmentation bare =
        formulas::draw_augmentation(formulas::augmentation_numbers({.in = spec.in, .out = spec.out, .pad = 2}), key);
    EXPECT_EQ(bare.top, got.top);
    EXPECT_EQ(bare.left, got.left);
    EXPECT_EQ(bare.flips, 0u);
    EXPECT_EQ(bare.brightness, 0);
    EXPECT_EQ(bare.contrast, 1);
  }
}

TEST(Augmentation, BrightnessAndContrastFillTheirRanges) {
  const Augmentation spec{
      .in = {2, 2, 1}, .out = {2, 2, 1}, .brightness = 10, .contrast_low = 0.5f, .contrast_high = 2};
  const std::size_t draws = 2000;
  const auto out =
      augmented(repeated(std::vector<std::uint8_t>{100, 110, 120, 150}, draws), test::sample_keys(draws), spec);
  double sum_brightness = 0, sum_contrast = 0, least = 1e9, most = -1e9, flattest = 1e9, steepest = 0;
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const double brightness = (out[i] + out[i + 1] + out[i + 2] + out[i + 3]) / 4 - 120;  // contrast keeps the mean
    const double contrast = (out[i + 3] - out[i]) / 50;
    EXPECT_NEAR(out[i], 120 + brightness - 20 * contrast, 1e-9);
    EXPECT_NEAR(out[i + 1], 120 + brightness - 10 * contrast, 1e-9);
    sum_brightness += brightness;
    sum_contrast += contrast;
    least = std::min(least, brightness);
    most = std::max(most, brightness);
    flattest = std::min(flattest, contrast);
    steepest = std::max(steepest, contrast);
  }
  EXPECT_NEAR(sum_brightness / 2000, 0, 5 * 10 / std::sqrt(3 * 2000.0));
  EXPECT_NEAR(sum_contrast / 2000, 1.25, 5 * 0.75 / std::sqrt(3 * 2000.0));
  EXPECT_TRUE(least >= -10 && least < -9.8 && most <= 10 && most > 9.8);
  EXPECT_TRUE(flattest >= 0.5 && flattest < 0.52 && steepest <= 2.000001 && steepest > 1.98);
}

TEST(Augmentation, ContrastIsAboutTheMeanOfEachChannel) {
  const Augmentation spec{.in = {1, 2, 2}, .out = {1, 2, 2}, .contrast_low = 0, .contrast_high = 0};
  EXPECT_EQ(augmented(std::vector<float>{1, 10, 3, 30}, test::sample_keys(1), spec),
            (std::vector<double>{2, 20, 2, 20}));
}

TEST(Augmentation, NormalisesByChannelOrByImage) {
  const ImageShape wide{1, 1, 6};
  EXPECT_EQ(augmented(std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}, {},
                      {.in = wide, .out = wide, .scale = {1, 2, 3, 4}, .shift = {0.5f, 0, 0, -1}}),
            (std::vector<double>{1.5, 4, 9, 15, 19, 23}))
      << "the fourth stands for those beyond";
  const ImageShape shape{4, 5, 3};
  const auto image = samples<float>("image", shape.elements(), 100);
  const auto out = augmented(image, {}, {.in = shape, .out = shape, .per_image = true});
  double mean = 0, variance = 0, stored_mean = 0;
  for (const double x : out) mean += x / 60;
  for (const double x : out) variance += (x - mean) * (x - mean) / 60;
  for (const float x : image) stored_mean += static_cast<double>(x) / 60;
  EXPECT_NEAR(mean, 0, 1e-12);
  EXPECT_NEAR(variance, 1, 1e-12);
  EXPECT_EQ(out[7] > 0, static_cast<double>(image[7]) > stored_mean);
  // A deviation below 1 / sqrt(elements) counts as that value.
  auto flat = std::vector<double>(60, 5.0);
  flat[0] = 5.06;
  const auto flattened = augmented(flat, {}, {.in = shape, .out = shape, .per_image = true});
  EXPECT_NEAR(flattened[1], -0.001 * std::sqrt(60.0), 1e-12);
  EXPECT_NEAR(flattened[0], 0.059 * std::sqrt(60.0), 1e-12);
}

TEST(Augmentation, DependsOnTheKeyAlone) {
  const Augmentation spec{.in = {8, 8, 2},
                          .out = {6, 6, 2},
                          .pad = 1,
                          .flip = true,
                          .brightness = 5,
                          .contrast_low = 0.5f,
                          .contrast_high = 1.5f,
                          .per_image = true};
  const auto image = samples<float>("image", spec.in.elements(), 100);
  auto keys = test::sample_keys(6);
  const auto forwards = augmented(repeated(image, 6), keys, spec);
  std::ranges::reverse(keys);
  const auto backwards = augmented(repeated(image, 6), keys, spec);
  for (std::ptrdiff_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(
        std::equal(forwards.begin() + 72 * i, forwards.begin() + 72 * (i + 1), backwards.begin() + 72 * (5 - i)));
  }
  EXPECT_FALSE(std::equal(forwards.begin(), forwards.begin() + 72, backwards.begin()));
}

TEST(Augmentation, NanStays) {
  const Augmentation spec{.in = {2, 2, 1}, .out = {2, 2, 1}, .brightness = 5, .per_image = true};
  std::vector<float> image{1, 2, std::numeric_limits<float>::quiet_NaN(), 4};
  for (const double x : augmented(image, test::sample_keys(1), spec)) EXPECT_TRUE(std::isnan(x));
}

/// A label moves like its pixel: the test augments an image of one channel that holds the labels of the mask.
TEST(Masks, AreMovedAsTheirImages) {
  const ImageShape in{.height = 7, .width = 6, .channels = 1};
  std::vector<std::uint64_t> keys(40);
  std::iota(keys.begin(), keys.end(), 100);
  const ImageShape volume{.height = 5, .width = 4, .channels = 1, .depth = 3};
  for (const Augmentation& spec :
       {Augmentation{.in = in, .out = in, .flip = true}, Augmentation{.in = in, .out = in, .pad = 2, .flip = true},
        Augmentation{.in = in, .out = {.height = 4, .width = 5, .channels = 1}, .pad = 1, .brightness = 0.0f},
        Augmentation{.in = in, .out = {.height = 9, .width = 8, .channels = 1}, .pad = 1},
        Augmentation{.in = in,
        .out = {.height = 6, .width = 6, .channels = 1},
        .flip = true,
        .flip_height = true,
        .turns = true},
        Augmentation{.in = volume,
        .out = {.height = 4, .width = 4, .channels = 1, .depth = 4},
        .pad = 1,
        .flip = true,
        .flip_height = true,
        .flip_depth = true,
        .turns = true},
        Augmentation{.in = volume, .out = {.height = 3, .width = 4, .channels = 1, .depth = 2}, .flip_depth = true},
        Augmentation{.in = volume, .out = {.height = 6, .width = 4, .channels = 1, .depth = 4}, .pad = 2}}) {
    std::vector<std::uint8_t> image = counted(spec.in);
    const std::vector<std::int32_t> mask(image.begin(), image.end());
    for (const bool trains : {true, false}) {
      const std::vector<std::uint64_t> own = trains ? keys : std::vector<std::uint64_t>{};
      const std::vector<double> images = augmented(repeated(image, keys.size()), own, spec);
      std::vector<std::int32_t> labels(images.size(), 77);
      augment_masks(repeated(mask, keys.size()), own, spec, labels);
      for (std::size_t i = 0; i < images.size(); ++i) {  // zeros around an image, kNoClass around a mask
        ASSERT_EQ(labels[i], images[i] == 0 ? kNoClass : static_cast<std::int32_t>(images[i])) << i;
      }
    }
  }
}

TEST(Masks, TakeTheNearestPixelAndNoColour) {
  const ImageShape in{.height = 5, .width = 4, .channels = 1};
  const Augmentation spec{.in = in,
                          .out = {.height = 10, .width = 8, .channels = 1},
                          .flip = true,
                          .minimum_area = 0.2f,
                          .brightness = 0.7f,
                          .contrast_low = 0.5f,
                          .contrast_high = 2};
  Augmentation pale = spec;
  pale.brightness = 0;
  pale.contrast_low = pale.contrast_high = 1;
  std::vector<std::int32_t> mask(20);
  std::iota(mask.begin(), mask.end(), 0);
  std::vector<std::uint64_t> keys(50);
  std::iota(keys.begin(), keys.end(), 7);
  const std::vector<float> rows = [&] {
    std::vector<float> image(20);
    for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<float>(i / 4);
    return image;
  }();
  const std::vector<double> images = augmented(repeated(rows, keys.size()), keys, pale);
  std::vector<std::int32_t> labels(images.size()), plain(images.size());
  augment_masks(repeated(mask, keys.size()), keys, spec, labels);
  augment_masks(repeated(mask, keys.size()), keys, pale, plain);
  EXPECT_EQ(labels, plain) << "colour changes no label";
  for (std::size_t i = 0; i < labels.size(); ++i) {
    ASSERT_GE(labels[i], 0);
    ASSERT_LE(std::abs(labels[i] / 4 - images[i]), 0.5 + 1e-6) << "the row of the label is the nearest to the image's";
  }
  EXPECT_THROW(augment_masks(mask, keys, spec, labels), std::invalid_argument);
}

TEST(Rectangles, HaveTheAreaAndAspectThatWereDrawn) {
  const Augmentation spec{.in = {480, 640, 3}, .out = {224, 224, 3}, .minimum_area = 0.08f};
  const formulas::AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  double areas = 0, aspects = 0, least = 1;
  int whole = 0, tops = 0;
  const int draws = 4000;
  for (const std::uint64_t key : test::sample_keys(draws)) {
    const formulas::SampleAugmentation got = formulas::draw_augmentation(numbers, key);
    ASSERT_TRUE(got.scaled);
    ASSERT_TRUE(got.height >= 1 && got.width >= 1 && got.top >= 0 && got.left >= 0);
    ASSERT_TRUE(got.top + got.height <= 480 && got.left + got.width <= 640);
    const PhiloxCounter words = philox4x32({1, 0, kAugmentationStream, 0},
                                           {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
    const double share = static_cast<double>(0.08f) + (1 - static_cast<double>(0.08f)) * (words[1] * 0x1p-32);
    const double aspect = std::pow(4.0 / 3, static_cast<std::int32_t>(words[2]) * 0x1p-31);
    const double height = std::sqrt(share * 480 * 640 / aspect), width = std::sqrt(share * 480 * 640 * aspect);
    EXPECT_NEAR(got.height, std::min(height, 480.0), 0.501);
    EXPECT_NEAR(got.width, std::min(width, 640.0), 0.501);
    areas += share;
    aspects += std::log(aspect);
    least = std::min(least, share);
    whole += got.height == 480;
    tops += got.top > 0;
  }
  EXPECT_NEAR(areas / draws, 0.54, 0.02);
  EXPECT_NEAR(aspects / draws, 0, 0.02);
  EXPECT_LT(least, 0.09);
  EXPECT_GT(whole, 0) << "no rectangle was cut to the image";
  EXPECT_GT(tops, draws / 2);
}

TEST(Rectangles, AreScaledBetweenPixels) {
  // Scales one row from four pixels to eight: positions -0.25 (clamped), 0.25, 0.75 ... 3.25 (clamped).
  std::vector<double> expected{10, 12.5, 17.5, 25, 35, 45, 55, 60}, got;
  const std::vector<double> pixels{10, 20, 40, 60};
  for (int i = 0; i < 8; ++i) {
    const formulas::Tap tap = formulas::tap_of(i, 4, 8);
    got.push_back(pixels[static_cast<std::size_t>(tap.first)] * (1 - tap.share) +
                  pixels[static_cast<std::size_t>(tap.second)] * tap.share);
  }
  EXPECT_EQ(got, expected);
  for (const auto& [in, out] : {std::pair{7, 3}, std::pair{3, 7}, std::pair{1, 5}, std::pair{32768, 1}, std::pair{5, 5},
                                std::pair{32768, 32768}}) {
    for (int i = 0; i < out; ++i) {
      const formulas::Tap tap = formulas::tap_of(i, in, out);
      const double position = std::clamp((i + 0.5) * in / out - 0.5, 0.0, in - 1.0);
      ASSERT_NEAR(tap.first + (tap.second - tap.first) * static_cast<double>(tap.share), position, 1e-6 * in);
      ASSERT_TRUE(tap.first >= 0 && tap.second < in && tap.share >= 0 && tap.share < 1);
    }
  }
  // A plane stays a plane.
  const Augmentation spec{.in = {6, 8, 1}, .out = {9, 5, 1}, .flip = true, .minimum_area = 0.3f};
  std::vector<double> plane;
  for (int row = 0; row < 6; ++row) {
    for (int column = 0; column < 8; ++column) plane.push_back(100 * row + column);
  }
  const auto keys = test::sample_keys(40);
  const auto out = augmented(repeated(plane, 40), keys, spec);
  for (std::size_t k = 0; k < 40; ++k) {
    const auto drawn = formulas::draw_augmentation(formulas::augmentation_numbers(spec), keys[k]);
    for (int row = 0; row < 9; ++row) {
      for (int column = 0; column < 5; ++column) {
        const auto place = [](int index, int in, int to) {
          return std::clamp((index + 0.5) * in / to - 0.5, 0.0, in - 1.0);
        };
        const double y = drawn.top + place(row, drawn.height, 9);
        const double x = drawn.left + place(drawn.flips != 0 ? 4 - column : column, drawn.width, 5);
        EXPECT_NEAR(out[k * 45 + static_cast<std::size_t>(row * 5 + column)], 100 * y + x, 1e-4);
      }
    }
  }
}

TEST(Rectangles, AreMadeOfIntegersThatAreRight) {
  for (const std::uint64_t value : {0ull, 1ull, 2ull, 3ull, 4ull, 99ull, 1ull << 40, (1ull << 62) - 1, 1ull << 62}) {
    const std::uint64_t root = formulas::square_root(value);
    EXPECT_LE(root * root, value);
    EXPECT_GT((root + 1) * (root + 1), value);
  }
  for (const std::uint32_t word :
       {0u, 1u, 0x40000000u, 0x7FFFFFFFu, 0x80000000u, 0x80000001u, 0xC0000000u, 0xFFFFFFFFu}) {
    const double exponent = static_cast<std::int32_t>(word) * 0x1p-32;
    EXPECT_NEAR(static_cast<double>(formulas::root_of_aspect(word)) * 0x1p-30, std::pow(4.0 / 3, exponent), 3e-8);
  }
  EXPECT_EQ(formulas::draw_offset(0, 7), 0);
  EXPECT_EQ(formulas::draw_offset(0xFFFFFFFF, 7), 6);
  EXPECT_EQ(formulas::draw_offset(0xFFFFFFFF, 1), 0);
}

/// Computes like CPU and GPU: pixels, sums, one affine map per channel.
std::vector<float> by_formulas(const std::vector<float>& image, std::uint64_t key, const Augmentation& spec) {
  const formulas::AugmentationNumbers numbers = formulas::augmentation_numbers(spec);
  const formulas::SampleAugmentation sample = formulas::draw_augmentation(numbers, key);
  std::int32_t plane = 0;
  const auto stored = [&](std::int32_t row, std::int32_t column, std::int32_t c) {
    row += sample.top;
    column += sample.left;
    if (plane < 0 || plane >= numbers.in_depth) return 0.0f;
    if (row < 0 || row >= numbers.in_height || column < 0 || column >= numbers.in_width) return 0.0f;
    const std::int32_t line = plane * numbers.in_height + row;
    return image[static_cast<std::size_t>((line * numbers.in_width + column) * numbers.channels + c)];
  };
  std::vector<float> out;
  const auto channels = static_cast<std::size_t>(numbers.channels);
  std::vector<double> sums(channels), squares(channels);
  for (std::int32_t line = 0; line < numbers.out_depth * numbers.out_height; ++line) {
    for (std::int32_t i = 0; i < numbers.out_width; ++i) {
      const auto shown =
          formulas::shown_pixel(numbers, sample, {line / numbers.out_height, line % numbers.out_height, i});
      const std::int32_t row = shown.row, column = shown.column;
      plane = sample.front + shown.plane;
      for (std::int32_t c = 0; c < numbers.channels; ++c) {
        float x = 0;
        if (sample.scaled) {
          const formulas::Tap r = formulas::tap_of(row, sample.height, numbers.out_height);
          const formulas::Tap s = formulas::tap_of(column, sample.width, numbers.out_width);
          x = formulas::blend(stored(r.first, s.first, c), stored(r.first, s.second, c), stored(r.second, s.first, c),
                              stored(r.second, s.second, c), r, s);
        } else {
          x = stored(row, column, c);
        }
        out.push_back(x);
        sums[static_cast<std::size_t>(c)] += static_cast<double>(x);
        squares[static_cast<std::size_t>(c)] += static_cast<double>(x) * static_cast<double>(x);
      }
    }
  }
  const auto pixels = static_cast<double>(spec.out.pixels());
  const formulas::CropMoments crop = formulas::crop_moments(sums.data(), squares.data(), numbers.channels, pixels,
                                                            static_cast<double>(sample.contrast));
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t c = i % channels;
    const double mean = formulas::needs_sums(numbers, sample) ? sums[c] / pixels : 1e30;
    const formulas::Affine map = formulas::channel_map(numbers, sample, crop, mean, static_cast<std::int32_t>(c));
    out[i] = map.gain * out[i] + map.offset;
  }
  return out;
}

TEST(Augmentation, OneAffineMapDoesAllOfColourAndNormalisation) {
  const ImageShape in{9, 10, 3}, out{7, 8, 3};
  const std::array<float, 4> scale{0.1f, 0.2f, 0.3f, 0.4f}, shift{1, -2, 3, -4};
  const auto image = samples<float>("image", in.elements(), 100);
  const auto keys = test::sample_keys(20);
  for (const Augmentation& spec :
       {Augmentation{.in = in, .out = out, .pad = 1, .flip = true, .scale = scale, .shift = shift},
        Augmentation{.in = in, .out = out, .brightness = 60, .scale = scale, .shift = shift},
        Augmentation{.in = in,
        .out = out,
        .brightness = 60,
        .contrast_low = 0.2f,
        .contrast_high = 1.8f,
        .scale = scale,
        .shift = shift},
        Augmentation{.in = in,
        .out = out,
        .pad = 2,
        .flip = true,
        .brightness = 60,
        .contrast_low = 0.2f,
        .contrast_high = 1.8f,
        .per_image = true},
        Augmentation{.in = in, .out = out, .brightness = 60, .per_image = true},
        Augmentation{.in = in, .out = out, .contrast_low = 0, .contrast_high = 0, .per_image = true},
        Augmentation{.in = {6, 5, 3, 3},
        .out = {5, 5, 3, 5},
        .pad = 1,
        .flip = true,
        .flip_depth = true,
        .turns = true,
        .brightness = 60,
        .contrast_low = 0.5f,
        .per_image = true},
        Augmentation{
            .in = in, .out = {7, 7, 3}, .flip_height = true, .turns = true, .minimum_area = 0.2f, .scale = scale},
        Augmentation{
            .in = in, .out = out, .flip = true, .minimum_area = 0.2f, .contrast_low = 0.5f, .per_image = true}}) {
    for (const std::uint64_t key : keys) {
      const auto expected = augmented(image, {key}, spec);
      const auto got = by_formulas(image, key, spec);
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-5 * (1 + std::abs(expected[i])));
    }
  }
}

}  // namespace
}  // namespace lockstep::model
