// Tests the checks of operands of ImageOperations.
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/operation_checks.hpp"
#include "spoilt_calls.hpp"

namespace lockstep::model {
namespace {

using test::Argument;
using test::each;
using test::examine;
using test::kCompute;
using test::kMaster;
using test::Tensors;
using test::tensors_for;

const ImageShape kIn{5, 6, 2};
const Sliding kWindow = even_padding(3, 2, 1);
const Convolution kConvolution{kIn, slide(kIn, kWindow, 4), kWindow};
const Pool kPool{kIn, slide(kIn, kWindow, 2), kWindow};
const ResponseNormalization kResponse{.channels = 3};
const BatchNorm kNorm{.channels = 3, .relu = true};

TEST(ImageChecks, AugmentAndConvolutions) {
  test::IdleImages images;
  const Augmentation spec{.in = kIn, .out = {4, 4, 2}};
  examine("augment",
          {{.name = "images",
            .type = ElementType::uint8,
            .rows = each(1),
            .columns = 60,
            .also = {ElementType::float32, ElementType::float64}},
           {.name = "keys", .type = ElementType::uint64, .rows = each(1), .columns = 1, .optional = true},
           {.name = "out", .type = kCompute, .rows = each(1), .columns = 32}},
          {{2}, {0}}, [&](const Tensors& t) { images.augment(t[0], t[1], spec, t[2]); });
  const std::int64_t outputs = kConvolution.out.elements();
  examine("convolution_forward",
          {{"x", kCompute, each(1), 60},
           {"w", kCompute, 18, 4},
           {"bias", kCompute, 1, 4, true},
           {"y", kCompute, each(1), outputs}},
          {{3}, {0}}, [&](const Tensors& t) {
            images.convolution_forward(kConvolution, t[0], t[1], t[2], Activation::relu, t[3]);
          });
  examine("convolution_backward",
          {{"x", kCompute, each(1), 60},
           {"w", kCompute, 18, 4},
           {"y", kCompute, each(1), outputs},
           {"d_y", kCompute, each(1), outputs},
           {"d_w", kMaster, 18, 4, true},
           {"d_bias", kMaster, 1, 4, true},
           {"d_x", kCompute, each(1), 60, true}},
          {{6}, {0, 3}}, [&](const Tensors& t) {
            images.convolution_backward(
                kConvolution, {.x = t[0], .w = t[1], .y = t[2], .d_y = t[3], .d_w = t[4], .d_bias = t[5], .d_x = t[6]},
                Activation::relu, Accumulate::no);
          });
  examine("add_image_gradient",
          {{"w", kCompute, 18, 4}, {"d_y", kCompute, each(1), outputs}, {"d_x", kCompute, each(1), 60}}, {{2}, {1}},
          [&](const Tensors& t) { images.add_image_gradient(kConvolution, t[0], t[1], t[2]); });
  const Convolution product{kIn, slide(kIn, even_padding(1, 1, 0), 4), even_padding(1, 1, 0)};
  const Tensors of_product = tensors_for({{"w", kCompute, 2, 4}, {"d_y", kCompute, 2, 120}, {"d_x", kCompute, 2, 60}});
  EXPECT_THROW(images.add_image_gradient(product, of_product[0], of_product[1], of_product[2]), std::invalid_argument)
      << "this device does not add there";
  // Without an activation y is not read.
  const Tensors t = tensors_for(
      {{"x", kCompute, 2, 60}, {"w", kCompute, 18, 4}, {"d_y", kCompute, 2, outputs}, {"d_w", kMaster, 18, 4}});
  EXPECT_NO_THROW(images.convolution_backward(kConvolution, {.x = t[0], .w = t[1], .d_y = t[2], .d_w = t[3]},
                                              Activation::none, Accumulate::no));
}

TEST(ImageChecks, PoolsAveragesAndShortcuts) {
  test::IdleImages images;
  const std::int64_t outputs = kPool.out.elements();
  examine("max_pool_forward",
          {{"x", kCompute, each(1), 60},
           {"y", kCompute, each(1), outputs},
           {"chosen", ElementType::uint8, each(1), outputs}},
          {{1}, {0}}, [&](const Tensors& t) { images.max_pool_forward(kPool, t[0], t[1], t[2]); });
  examine("max_pool_backward",
          {{"chosen", ElementType::uint8, each(1), outputs},
           {"d_y", kCompute, each(1), outputs},
           {"d_x", kCompute, each(1), 60}},
          {{2}, {1}}, [&](const Tensors& t) { images.max_pool_backward(kPool, t[0], t[1], t[2]); });
  const auto in_and_out = [](std::int64_t in, std::int64_t out) {
    return std::vector<Argument>{{"first", kCompute, each(1), in}, {"second", kCompute, each(1), out}};
  };
  examine("global_average_forward", in_and_out(60, 2), {{1}, {0}},
          [&](const Tensors& t) { images.global_average_forward(kIn, t[0], t[1]); });
  examine("global_average_backward", in_and_out(2, 60), {{1}, {0}},
          [&](const Tensors& t) { images.global_average_backward(kIn, t[0], t[1]); });
  const ImageShape half{3, 3, 4};
  examine("subsample_forward", in_and_out(60, 36), {{1}, {0}},
          [&](const Tensors& t) { images.subsample_forward(kIn, half, 2, t[0], t[1]); });
  examine("subsample_backward", in_and_out(36, 60), {{1}, {0}},
          [&](const Tensors& t) { images.subsample_backward(kIn, half, 2, t[0], t[1]); });
}

TEST(ImageChecks, Normalisations) {
  test::IdleImages images;
  examine("response_normalization_forward", {{"x", kCompute, each(1), 12}, {"y", kCompute, each(1), 12}}, {{1}, {0}},
          [&](const Tensors& t) { images.response_normalization_forward(kResponse, t[0], t[1]); });
  examine("response_normalization_backward",
          {{"x", kCompute, each(1), 12},
           {"y", kCompute, each(1), 12},
           {"d_y", kCompute, each(1), 12},
           {"d_x", kCompute, each(1), 12}},
          {{3}, {0, 1, 2}, {{3, 2}}},
          [&](const Tensors& t) { images.response_normalization_backward(kResponse, t[0], t[1], t[2], t[3]); });
  examine("batch_norm_sums",
          {{.name = "x", .type = kCompute, .rows = each(1), .columns = 12, .any_rows = true},
           {"sums", ElementType::float64, 1, 7}},
          {{}, {}}, [&](const Tensors& t) { images.batch_norm_sums(kNorm, t[0], t[1]); });
  examine("batch_norm_forward",
          {{"x", kCompute, each(1), 12},
           {"sums", ElementType::float64, 1, 7},
           {"scale", kCompute, 1, 3},
           {"shift", kCompute, 1, 3},
           {"residual", kCompute, each(1), 12, true},
           {"mean", kMaster, 1, 3},
           {"inverse", kMaster, 1, 3},
           {"y", kCompute, each(1), 12}},
          {{7}, {0, 4}, {{7, 4}}}, [&](const Tensors& t) {
            images.batch_norm_forward(kNorm, {.x = t[0],
                                              .sums = t[1],
                                              .scale = t[2],
                                              .shift = t[3],
                                              .residual = t[4],
                                              .mean = t[5],
                                              .inverse = t[6],
                                              .y = t[7]});
          });
  examine("batch_norm_statistics",
          {{"sums", ElementType::float64, 1, 7}, {"d_mean", kMaster, 1, 3}, {"d_variance", kMaster, 1, 3}}, {{}, {}},
          [&](const Tensors& t) { images.batch_norm_statistics(kNorm, t[0], 1, Accumulate::yes, t[1], t[2]); });
  examine("batch_norm_inference",
          {{"x", kCompute, each(1), 12},
           {"mean", kCompute, 1, 3},
           {"variance", kCompute, 1, 3},
           {"scale", kCompute, 1, 3},
           {"shift", kCompute, 1, 3},
           {"residual", kCompute, each(1), 12, true},
           {"y", kCompute, each(1), 12}},
          {{6}, {0, 5}, {{6, 0}, {6, 5}}}, [&](const Tensors& t) {
            images.batch_norm_inference(
                kNorm,
                {.x = t[0], .mean = t[1], .variance = t[2], .scale = t[3], .shift = t[4], .residual = t[5], .y = t[6]});
          });
  examine("batch_norm_inference_backward",
          {{"y", kCompute, each(1), 12},
           {"d_y", kCompute, each(1), 12},
           {"variance", kCompute, 1, 3},
           {"scale", kCompute, 1, 3},
           {"d_x", kCompute, each(1), 12}},
          {{1, 4}, {0, 1}, {{4, 1}}}, [&](const Tensors& t) {
            images.batch_norm_inference_backward(
                kNorm, {.y = t[0], .d_y = t[1], .variance = t[2], .scale = t[3], .d_x = t[4]});
          });
  examine("batch_norm_backward_sums",
          {{"x", kCompute, each(1), 12},
           {"y", kCompute, each(1), 12},
           {"d_y", kCompute, each(1), 12},
           {"mean", kMaster, 1, 3},
           {"inverse", kMaster, 1, 3},
           {"d_scale", kMaster, 1, 3, true},
           {"d_shift", kMaster, 1, 3, true},
           {"sums", ElementType::float64, 1, 6}},
          {{2}, {0, 1}}, [&](const Tensors& t) {
            images.batch_norm_backward_sums(kNorm,
                                            {.x = t[0],
                                             .y = t[1],
                                             .d_y = t[2],
                                             .mean = t[3],
                                             .inverse = t[4],
                                             .d_scale = t[5],
                                             .d_shift = t[6],
                                             .sums = t[7]},
                                            Accumulate::no);
          });
  examine("batch_norm_backward",
          {{"x", kCompute, each(1), 12},
           {"d_y", kCompute, each(1), 12},
           {"mean", kMaster, 1, 3},
           {"inverse", kMaster, 1, 3},
           {"scale", kCompute, 1, 3},
           {"forward_sums", ElementType::float64, 1, 7},
           {"sums", ElementType::float64, 1, 6},
           {"d_x", kCompute, each(1), 12}},
          {{7}, {0, 1}, {{7, 1}}}, [&](const Tensors& t) {
            images.batch_norm_backward(kNorm, {.x = t[0],
                                               .d_y = t[1],
                                               .mean = t[2],
                                               .inverse = t[3],
                                               .scale = t[4],
                                               .forward_sums = t[5],
                                               .sums = t[6],
                                               .d_x = t[7]});
          });
}

TEST(ImageChecks, ShapesThatContradictThemselves) {
  test::IdleImages images;
  const auto augment = [&](const Augmentation& spec) {
    const Tensors t =
        tensors_for({{"images", ElementType::uint8, 2, spec.in.elements()}, {"out", kCompute, 2, spec.out.elements()}});
    images.augment(t[0], {}, spec, t[1]);
  };
  const Augmentation good{.in = {5, 6, 2}, .out = {4, 4, 2}};
  EXPECT_NO_THROW(augment(good));
  const auto refused = [&](auto spoil) {
    Augmentation spec = good;
    spoil(spec);
    EXPECT_THROW(augment(spec), std::invalid_argument);
  };
  refused([](Augmentation& s) { s.out.channels = 1; });
  refused([](Augmentation& s) { s.in.height = 0; });
  refused([](Augmentation& s) { s.out = {6, 4, 2}; });
  refused([](Augmentation& s) { s.out = {4, 7, 2}; });
  refused([](Augmentation& s) {
    s.pad = -1;
    s.out = {2, 2, 2};
  });
  refused([](Augmentation& s) { s.pad = 32769; });
  refused([](Augmentation& s) { s.minimum_area = 0; });
  refused([](Augmentation& s) { s.minimum_area = 1.5f; });
  refused([](Augmentation& s) { s.minimum_area = std::nanf(""); });
  refused([](Augmentation& s) { s.brightness = -1; });
  refused([](Augmentation& s) { s.brightness = HUGE_VALF; });
  refused([](Augmentation& s) { s.contrast_low = 2; });
  refused([](Augmentation& s) { s.contrast_high = HUGE_VALF; });
  Augmentation padded = good;
  padded.out = {7, 8, 2};
  padded.pad = 1;
  EXPECT_NO_THROW(augment(padded));
  padded.pad = 0;
  padded.minimum_area = 0.5f;
  EXPECT_NO_THROW(augment(padded)) << "a rectangle is scaled to any size";
  Augmentation volume{.in = {5, 6, 2, 4}, .out = {5, 6, 2, 6}, .pad = 1, .flip_depth = true};
  EXPECT_NO_THROW(augment(volume));
  volume.pad = 0;
  EXPECT_THROW(augment(volume), std::invalid_argument) << "six planes of four";
  volume.out = {5, 6, 2, 4};
  volume.minimum_area = 0.5f;
  EXPECT_THROW(augment(volume), std::invalid_argument) << "volumes are not scaled";
  refused([](Augmentation& s) { s.flip_depth = true; });
  refused([](Augmentation& s) { s.out.depth = 2; });

  const auto upsample = [&](const LinearUpsampling& shape, std::int64_t x_columns, std::int64_t y_columns) {
    const Tensors t = tensors_for({{"x", kCompute, 2, x_columns},
                                   {"y", kCompute, 2, y_columns},
                                   {"d_y", kCompute, 2, y_columns},
                                   {"d_x", kCompute, 2, x_columns}});
    images.linear_upsampling_forward(shape, t[0], t[1]);
    images.linear_upsampling_backward(shape, t[2], t[3]);
  };
  EXPECT_NO_THROW(upsample({{2, 3, 4}, {4, 9, 4}}, 24, 144));
  EXPECT_THROW(upsample({{2, 3, 4}, {4, 9, 4}}, 24, 143), std::invalid_argument);
  EXPECT_THROW(upsample({{2, 3, 4}, {4, 8, 4}}, 24, 128), std::invalid_argument) << "no whole factor";
  EXPECT_THROW(upsample({{2, 3, 4}, {4, 9, 2}}, 24, 72), std::invalid_argument) << "other channels";

  const auto pool = [&](const Pool& shape) { images.max_pool_forward(shape, {}, {}, {}); };
  const auto pooled = [](const ImageShape& in, const Sliding& window) {
    return Pool{in, slide(in, window, 1), window};
  };
  const auto message = [](auto call) {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return std::string(error.what());
    }
    return std::string("passed");
  };
  using ::testing::HasSubstr;
  const ImageShape one{20, 20, 1};
  EXPECT_THAT(message([&] { pool(pooled(one, even_padding(17, 1, 0))); }), HasSubstr("16 x 16"));
  EXPECT_THAT(message([&] { pool(pooled(one, even_padding(2, 2, 2))); }), HasSubstr("must see a pixel"));
  EXPECT_THAT(message([&] { pool(pooled(one, {.height = {.size = 2}, .width = {.size = 2, .after = 2}})); }),
              HasSubstr("must see a pixel"));
  EXPECT_THAT(message([&] { pool({one, {10, 10, 1}, even_padding(2, 1, 0)}); }), HasSubstr("what the window makes"));
  EXPECT_THAT(message([&] { pool({one, {19, 19, 2}, even_padding(2, 1, 0)}); }), HasSubstr("what the window makes"));
  EXPECT_THAT(message([&] {
                images.convolution_forward({kIn, {5, 6, 4}, kWindow}, {}, {}, {}, Activation::none, {});
              }),
              HasSubstr("what the window makes"));
  EXPECT_THAT(message([&] {
                images.convolution_forward({kIn, {5, 6, 0}, kWindow}, {}, {}, {}, Activation::none, {});
              }),
              HasSubstr("pixels and channels"));
  for (const auto& [out, stride, rule] :
       {std::tuple{ImageShape{2, 3, 2}, 2, "high and wide"}, std::tuple{ImageShape{3, 2, 2}, 2, "high and wide"},
        std::tuple{ImageShape{3, 3, 3}, 2, "even number"}, std::tuple{ImageShape{5, 6, 0}, 1, "even number"},
        std::tuple{ImageShape{5, 6, 2}, 0, "stride"}}) {
    EXPECT_THAT(message([&] { images.subsample_forward(kIn, out, stride, {}, {}); }), HasSubstr(rule));
    EXPECT_THAT(message([&] { images.subsample_backward(kIn, out, stride, {}, {}); }), HasSubstr(rule));
  }
  EXPECT_THAT(message([&] { images.subsample_forward({5, 6, 0}, {5, 6, 2}, 1, {}, {}); }), HasSubstr("pixels"));
  EXPECT_THAT(message([&] { pool({{4, 4, 0}, {3, 3, 0}, even_padding(2, 1, 0)}); }), HasSubstr("pixels and channels"));
  for (const ResponseNormalization& norm :
       {ResponseNormalization{}, ResponseNormalization{.channels = 1, .radius = -1},
        ResponseNormalization{.channels = 1, .bias = 0}, ResponseNormalization{.channels = 1, .alpha = -1}}) {
    EXPECT_THAT(message([&] { images.response_normalization_forward(norm, {}, {}); }),
                ::testing::AnyOf(HasSubstr("at least one channel"), HasSubstr("bias must")));
  }
  EXPECT_THAT(message([&] { images.batch_norm_sums({}, {}, {}); }), HasSubstr("at least one channel"));
  EXPECT_THAT(message([&] { images.batch_norm_sums({.channels = 1, .epsilon = 0}, {}, {}); }), HasSubstr("epsilon"));
  EXPECT_THROW(images.global_average_forward({}, {}, {}), std::invalid_argument);
  EXPECT_THROW(images.global_average_backward({}, {}, {}), std::invalid_argument);
}

TEST(MemoryChecks, TellSharedFromApart) {
  std::array<float, 8> memory{};
  const auto part = [&](std::size_t first, std::int64_t count) {
    return Tensor{memory.data() + first, ElementType::float32, 1, count};
  };
  EXPECT_TRUE(apart(part(0, 4), part(4, 4)));
  EXPECT_TRUE(apart(part(4, 4), part(0, 4)));
  EXPECT_FALSE(apart(part(0, 5), part(4, 4)));
  EXPECT_FALSE(apart(part(4, 4), part(0, 5)));
  EXPECT_FALSE(apart(part(0, 8), part(3, 1)));
  EXPECT_TRUE(apart(part(0, 8), part(3, 0)));
  EXPECT_TRUE(apart(part(0, 8), {}));
  EXPECT_TRUE(same_or_apart(part(0, 4), part(0, 4)));
  EXPECT_FALSE(same_or_apart(part(0, 4), part(1, 4)));
}

}  // namespace
}  // namespace lockstep::model
