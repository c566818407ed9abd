// Compares the CPU's image operations with the float64 reference, with one, two and three threads, which must give the
// same bits. Tolerances are multiples of the fp32 rounding unit 2^-24.
#include "model/cpu/cpu_images.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "channel_calls.hpp"
#include "cpu_against_reference.hpp"
#include "model/cpu/convolution.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/reference/reference_images.hpp"
#include "window_shapes.hpp"

namespace lockstep::model {
namespace {

using test::element;
using test::kNan;
using test::Operand;

using CpuImagesTest = test::CpuAgainstReference<ImageOperations, cpu::CpuImages, ReferenceImages>;

Convolution convolution(const ImageShape& in, const Sliding& window, std::int64_t channels) {
  return {.in = in, .out = slide(in, window, channels), .window = window};
}

struct ConvolutionCase {
  Convolution shape;
  std::int64_t batch = 1;
  Activation activation = Activation::none;
  bool bias = true, d_x = true;
  Accumulate accumulate = Accumulate::no;
  std::int64_t nan_at = -1;  ///< index of a NaN in x; -1: none
};

void convolve(const ConvolutionCase& one, ImageOperations& images, const std::vector<Tensor>& t) {
  images.convolution_forward(one.shape, t[0], t[1], t[2], one.activation, t[3]);
  // The gradient uses fixed values of y, so that both backends mask the same elements.
  images.convolution_backward(one.shape,
                              {.x = t[0], .w = t[1], .y = t[4], .d_y = t[5], .d_w = t[6], .d_bias = t[7], .d_x = t[8]},
                              one.activation, one.accumulate);
}

std::vector<Operand> operands_of(const ConvolutionCase& one) {
  const Convolution& s = one.shape;
  const std::int64_t in = s.in.elements(), out = s.out.elements(), patch = s.patch();
  const auto terms = [](std::int64_t count) { return 16 + 16 * std::sqrt(static_cast<double>(count)); };
  const auto bias = one.bias ? Operand::values : Operand::nothing;
  const auto d_x = one.d_x ? Operand::values : Operand::nothing;
  return {{.name = "x", .rows = one.batch, .columns = in, .nan_at = one.nan_at, .image = true},
          {.name = "w", .rows = patch, .columns = s.out.channels},
          {.name = "bias", .rows = 1, .columns = s.out.channels, .holds = bias},
          {.name = "y", .rows = one.batch, .columns = out, .tolerance = terms(patch), .image = true},
          {.name = "value", .rows = one.batch, .columns = out, .shift = 0.25, .image = true},
          {.name = "d_y", .rows = one.batch, .columns = out, .tolerance = 8, .image = true},
          {.name = "d_w", .rows = patch, .columns = s.out.channels, .tolerance = terms(one.batch * s.out.pixels())},
          {.name = "d_bias",
           .rows = 1,
           .columns = s.out.channels,
           .tolerance = terms(one.batch * s.out.pixels()),
           .holds = bias},
          {.name = "d_x",
           .rows = one.batch,
           .columns = in,
           .tolerance = terms(patch * s.out.channels / s.in.channels),
           .holds = d_x,
           .image = true}};
}

TEST_F(CpuImagesTest, ConvolutionsOfManyShapes) {
  std::vector<Convolution> shapes = {
      convolution({6, 6, 3}, even_padding(5, 1, 2), 64),   // like the first layer of the tutorial network
      convolution({5, 5, 64}, even_padding(5, 1, 2), 64),  // like its second layer
      convolution({8, 8, 16}, even_padding(3, 1, 1), 16),  // residual networks
      convolution({8, 8, 16}, even_padding(3, 2, 1), 32),
      convolution({9, 7, 5}, same_padding({9, 7, 5}, 3, 2), 7),  // no extent divides another
      convolution({6, 5, 5}, same_padding({6, 5, 5}, 4, 1), 3),  // more padding after than before
      convolution({7, 9, 17}, even_padding(3, 1, 1), 33),
      convolution({11, 11, 3}, even_padding(7, 2, 3), 8),
      convolution({7, 7, 20}, even_padding(1, 2, 0), 24),
      convolution({5, 4, 1}, even_padding(2, 1, 0), 1),
      convolution({3, 3, 2}, {.height = {.size = 3, .stride = 3, .before = 1}, .width = {.stride = 3, .after = 2}}, 4),
      convolution({4, 4, 16}, even_padding(1, 1, 1), 16),  // padding as wide as the window
  };
  for (const Convolution& shape : test::convolutions_of_any_windows()) shapes.push_back(shape);
  int count = 0;
  for (const Convolution& shape : shapes) {
    for (const std::int64_t batch : {1, 2, 19}) {
      const ConvolutionCase one{.shape = shape,
                                .batch = batch,
                                .activation = static_cast<Activation>(count % 4),
                                .bias = count % 3 != 0,
                                .d_x = count % 5 != 0,
                                .accumulate = static_cast<Accumulate>(count % 2 == 0)};
      ++count;
      compare(
          operands_of(one), [&](auto& images, const auto& t) { convolve(one, images, t); },
          fmt::format("shape {} batch {}", &shape - shapes.data(), batch), test::kBf16Unit);
    }
  }
}

TEST_F(CpuImagesTest, ConvolutionsOfLongBatches) {
  // First shapes with many runs of one block each and more parts than threads, then shapes with few runs of several
  // blocks.
  const std::vector<Convolution> shapes = {convolution({12, 12, 3}, even_padding(3, 1, 1), 16),
                                           convolution({4, 4, 64}, even_padding(3, 1, 1), 32)};
  for (const Convolution& shape : shapes) {
    for (const std::int64_t batch : {37, 200, 37}) {  // the last reuses the memory of the first
      const ConvolutionCase one{.shape = shape, .batch = batch, .activation = Activation::relu};
      compare(
          operands_of(one), [&](auto& images, const auto& t) { convolve(one, images, t); },
          fmt::format("shape {} batch {}", &shape - shapes.data(), batch), test::kBf16Unit);
    }
  }
}

TEST_F(CpuImagesTest, ConvolutionsOfNoImages) {
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    const ConvolutionCase one{
        .shape = convolution({6, 6, 3}, even_padding(3, 1, 1), 4), .batch = 0, .accumulate = accumulate};
    compare(
        operands_of(one), [&](auto& images, const auto& t) { convolve(one, images, t); }, "no images", test::kBf16Unit);
  }
}

TEST_F(CpuImagesTest, ConvolutionsLetNanThrough) {
  for (const std::int64_t channels : {3, 16}) {
    for (const Activation activation : {Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid}) {
      const ConvolutionCase one{.shape = convolution({6, 6, channels}, even_padding(3, 1, 1), 16),
                                .batch = 3,
                                .activation = activation,
                                .nan_at = 50 * channels};
      int before = 0, behind = 0;
      compare(
          operands_of(one),
          [&](auto& images, const auto& t) {
            convolve(one, images, t);
            before = std::isnan(element(t[0], static_cast<std::size_t>(one.nan_at)));
            behind = 0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(t[3].count()); ++i) {
              behind += std::isnan(element(t[3], i));
            }
          },
          "one NaN", test::kBf16Unit);
      EXPECT_EQ(before, 1);
      EXPECT_GE(behind, 9 * 16) << "in bf16 the NaN may reach further";
    }
  }
}

TEST_F(CpuImagesTest, ConvolutionsThatFallBackAreNoted) {
  const auto run = [&](const Convolution& shape) {
    const ConvolutionCase one{.shape = shape, .batch = 2};
    compare(
        operands_of(one), [&](auto& images, const auto& t) { convolve(one, images, t); }, "noted", test::kBf16Unit);
    compare(
        operands_of(one), [&](auto& images, const auto& t) { convolve(one, images, t); }, "noted once",
        test::kBf16Unit);
  };
  run(convolution({8, 8, 16}, even_padding(3, 1, 1), 16));
  const auto before = cpu_[0].of_threads[0]->notes();
  run(convolution({4, 4, 16}, even_padding(1, 1, 2), 16));  // no generated code allows more padding than window
  const auto behind = cpu_[0].of_threads[0]->notes();
  if (std::string(cpu::loop_instruction_set()) != "baseline") {
    EXPECT_EQ(before, std::vector<std::string>{});
  }
  ASSERT_GT(behind.size(), before.size());
  EXPECT_LE(behind.size(), before.size() + 3);
  EXPECT_NE(behind.back().find("1 x 1 convolution, of 4 x 4 x 16 to 16 channels"), std::string::npos) << behind.back();
}

TEST(Fallbacks, AreKnownByTheirNames) {
  for (const char* name : {"ref:any", "gemm:jit", "x64:gemm:jit", "simple:any:ref"})
    EXPECT_TRUE(cpu::is_fallback(name));
  for (const char* name : {"jit:avx2", "jit:avx512_core", "brgconv:avx512_core", "jit_1x1:avx2", "brgconv_1x1:avx2"}) {
    EXPECT_FALSE(cpu::is_fallback(name));
  }
}

TEST_F(CpuImagesTest, MaxPools) {
  const auto pool = [](const ImageShape& in, const Sliding& window) {
    return Pool{.in = in, .out = slide(in, window, in.channels), .window = window};
  };
  std::vector<Pool> shapes = {
      pool({12, 12, 64}, same_padding({12, 12, 64}, 3, 2)),
      pool({6, 7, 3}, same_padding({6, 7, 3}, 3, 2)),
      pool({5, 6, 17}, even_padding(2, 2, 0)),
      pool({5, 4, 20}, even_padding(3, 1, 1)),
      pool({9, 9, 16}, even_padding(3, 4, 1)),  // some pixels are in no window
      pool({16, 17, 1}, even_padding(16, 1, 0)),
      pool({6, 4, 19}, {.height = {.size = 3, .stride = 3}, .width = {.size = 2, .stride = 2}})};
  for (const Pool& shape : test::pools_of_any_windows()) shapes.push_back(shape);
  for (const Pool& shape : shapes) {
    for (const std::int64_t batch : {0, 1, 9}) {
      for (const std::int64_t nan_at : {-1, 20}) {
        const std::int64_t in = shape.in.elements(), out = shape.out.elements();
        compare(
            {{.name = "x", .rows = batch, .columns = in, .nan_at = nan_at, .image = true},
             {.name = "y", .rows = batch, .columns = out, .image = true},
             {.name = "chosen", .rows = batch, .columns = out, .holds = Operand::choices},
             {.name = "d_y", .rows = batch, .columns = out, .nan_at = 2 * nan_at, .image = true},
             {.name = "d_x", .rows = batch, .columns = in, .tolerance = 4, .image = true}},
            [&](auto& images, const auto& t) {
              images.max_pool_forward(shape, t[0], t[1], t[2]);
              images.max_pool_backward(shape, t[2], t[3], t[4]);
            },
            fmt::format("pool {} batch {}", &shape - shapes.data(), batch));
      }
    }
  }
}

TEST_F(CpuImagesTest, PoolsAndPassesOverChannels) {
  int count = 0;
  for (const test::ChannelCall& call : test::channel_calls()) {
    std::vector<Operand> operands;
    for (const test::ChannelOperand& operand : call.operands) {
      operands.push_back({.name = fmt::format("operand {}", operands.size()),
                          .rows = operand.rows,
                          .columns = operand.columns,
                          .tolerance = operand.holds == test::ChannelOperand::sums ? 1e30 : 200.0,
                          .holds = operand.holds == test::ChannelOperand::sums ? Operand::sums : Operand::values,
                          .image = operand.image});
    }
    compare(operands, call.run, fmt::format("{}, call {}", call.what, count++));
  }
}

TEST_F(CpuImagesTest, MaxPoolsTakeTheFirstOfEqualsAndTheFirstNan) {
  const Pool shape{.in = {1, 4, 1}, .out = {1, 1, 1}, .window = {.width = {.size = 4}}};
  const float infinity = std::numeric_limits<float>::infinity();
  const auto chosen = [&](const std::vector<float>& x) {
    std::vector<int> places;
    for (const auto& [unit, cpus] : cpu_) {
      std::vector<test::Memory> memories;
      const ElementType images = cpu::narrow_type(unit);
      for (const auto& [columns, holds] : {std::pair{4, Operand::values}, {1, Operand::values}, {1, Operand::bytes}}) {
        memories.push_back(
            test::make({.name = "t", .rows = 1, .columns = columns, .holds = holds, .image = holds == Operand::values},
                       ElementType::float32, images));
      }
      const auto& [in, y, place] = std::tie(memories[0].tensor, memories[1].tensor, memories[2].tensor);
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (images == ElementType::bfloat16) {
          static_cast<std::uint16_t*>(in.data)[i] = test::bf16_of(x[i]);
        } else {
          in.elements<float>()[i] = x[i];
        }
      }
      cpus[0]->max_pool_forward(shape, in, y, place);
      places.push_back(place.elements<std::uint8_t>()[0]);
    }
    EXPECT_EQ(std::ranges::count(places, places[0]), std::ssize(places)) << "images in bf16 have another";
    return places[0];
  };
  EXPECT_EQ(chosen({1, 2, 2, 0}), 1);
  EXPECT_EQ(chosen({-infinity, -infinity, -infinity, -infinity}), 0);
  EXPECT_EQ(chosen({1, kNan, 3, kNan}), 1);
  EXPECT_EQ(chosen({kNan, infinity, 3, 4}), 0);
  EXPECT_EQ(chosen({-0.0f, 0, 0, 0}), 0);
}

TEST_F(CpuImagesTest, AveragesAndShortcuts) {
  for (const std::int64_t channels : {1, 16, 30}) {
    for (const std::int64_t batch : {0, 1, 13}) {
      const ImageShape in{7, 5, channels}, out{4, 3, channels + 6};
      compare(
          {{.name = "x", .rows = batch, .columns = in.elements(), .nan_at = 40, .image = true},
           {.name = "mean", .rows = batch, .columns = channels, .tolerance = 2},
           {.name = "d_mean", .rows = batch, .columns = channels},
           {.name = "d_x", .rows = batch, .columns = in.elements(), .tolerance = 4, .image = true},
           {.name = "short", .rows = batch, .columns = out.elements(), .image = true},
           {.name = "d_short", .rows = batch, .columns = out.elements(), .image = true}},
          [&](auto& images, const auto& t) {
            images.global_average_forward(in, t[0], t[1]);
            images.global_average_backward(in, t[2], t[3]);
            images.subsample_forward(in, out, 2, t[0], t[4]);
            images.subsample_backward(in, out, 2, t[5], t[3]);
          },
          fmt::format("{} channels, batch {}", channels, batch));
    }
  }
}

TEST_F(CpuImagesTest, ResponseNormalization) {
  for (const ResponseNormalization& norm :
       {ResponseNormalization{.channels = 64}, ResponseNormalization{.channels = 3, .alpha = 0.5f},
        ResponseNormalization{.channels = 17, .radius = 2, .bias = 2, .alpha = 0.3f, .beta = 0.6f},
        ResponseNormalization{.channels = 20, .radius = 0, .alpha = 1}}) {
    for (const std::int64_t batch : {0, 1, 5}) {
      for (const bool in_place : {false, true}) {
        const std::int64_t columns = 6 * norm.channels;
        compare(
            {{.name = "x", .rows = batch, .columns = columns, .nan_at = in_place ? -1 : 7, .image = true},
             {.name = "y", .rows = batch, .columns = columns, .tolerance = 8, .image = true},
             {.name = "d_y", .rows = batch, .columns = columns, .tolerance = 32, .image = true},
             {.name = "d_x", .rows = batch, .columns = columns, .tolerance = 32, .image = true}},
            [&](auto& images, const auto& t) {
              images.response_normalization_forward(norm, t[0], t[1]);
              images.response_normalization_backward(norm, t[0], t[1], t[2], in_place ? t[2] : t[3]);
            },
            fmt::format("{} channels, batch {}", norm.channels, batch));
      }
    }
  }
}

TEST_F(CpuImagesTest, BatchNormalization) {
  int count = 0;
  for (const std::int64_t channels : {1, 16, 30, 64}) {
    for (const std::int64_t batch : {0, 1, 7, 60}) {
      for (const bool relu : {false, true}) {
        const BatchNorm norm{.channels = channels, .relu = relu};
        const bool residual = count % 3 != 0, in_place = count % 2 == 0;
        const auto accumulate = static_cast<Accumulate>(count % 5 < 2);
        ++count;
        const std::int64_t columns = 24 * channels;
        const double few = batch == 1 ? 400 : 100;  // few values may have a small deviation
        compare(
            {{.name = "x", .rows = batch, .columns = columns, .scale = 2, .shift = 3, .image = true},
             {.name = "sums", .rows = 1, .columns = 2 * channels + 1, .tolerance = 1e-4, .holds = Operand::sums},
             {.name = "scale", .rows = 1, .columns = channels},
             {.name = "shift", .rows = 1, .columns = channels},
             {.name = "residual",
              .rows = batch,
              .columns = columns,
              .holds = residual ? Operand::values : Operand::nothing,
              .image = true},
             {.name = "mean", .rows = 1, .columns = channels, .tolerance = 2},
             {.name = "inverse", .rows = 1, .columns = channels, .tolerance = 2},
             {.name = "y", .rows = batch, .columns = columns, .tolerance = few, .image = true},
             {.name = "d_mean", .rows = 1, .columns = channels, .tolerance = 4},
             {.name = "d_variance", .rows = 1, .columns = channels, .tolerance = 4},
             {.name = "value", .rows = batch, .columns = columns, .image = true},
             {.name = "d_y", .rows = batch, .columns = columns, .tolerance = few, .image = true},
             {.name = "d_scale", .rows = 1, .columns = channels, .tolerance = few},
             {.name = "d_shift", .rows = 1, .columns = channels, .tolerance = few},
             {.name = "d_sums", .rows = 1, .columns = 2 * channels, .tolerance = few, .holds = Operand::sums},
             {.name = "d_x", .rows = batch, .columns = columns, .tolerance = few, .image = true},
             {.name = "kept mean", .rows = 1, .columns = channels},
             {.name = "kept variance", .rows = 1, .columns = channels, .scale = 0.5, .shift = 1},
             {.name = "inference", .rows = batch, .columns = columns, .tolerance = 100, .image = true},
             {.name = "fixed d_y", .rows = batch, .columns = columns, .image = true},
             {.name = "fixed d_x", .rows = batch, .columns = columns, .tolerance = 8, .image = true}},
            [&](auto& images, const auto& t) {
              images.batch_norm_sums(norm, t[0], t[1]);
              images.batch_norm_forward(norm, {.x = t[0],
                                               .sums = t[1],
                                               .scale = t[2],
                                               .shift = t[3],
                                               .residual = t[4],
                                               .mean = t[5],
                                               .inverse = t[6],
                                               .y = t[7]});
              images.batch_norm_statistics(norm, t[1], 0.5, accumulate, t[8], t[9]);
              images.batch_norm_backward_sums(norm,
                                              {.x = t[0],
                                               .y = t[10],
                                               .d_y = t[11],
                                               .mean = t[5],
                                               .inverse = t[6],
                                               .d_scale = t[12],
                                               .d_shift = t[13],
                                               .sums = t[14]},
                                              accumulate);
              images.batch_norm_backward(norm, {.x = t[0],
                                                .d_y = t[11],
                                                .mean = t[5],
                                                .inverse = t[6],
                                                .scale = t[2],
                                                .forward_sums = t[1],
                                                .sums = t[14],
                                                .d_x = in_place ? t[11] : t[15]});
              images.batch_norm_inference(norm, {.x = t[0],
                                                 .mean = t[16],
                                                 .variance = t[17],
                                                 .scale = t[2],
                                                 .shift = t[3],
                                                 .residual = t[4],
                                                 .y = t[18]});
              images.batch_norm_inference_backward(
                  norm, {.y = t[10], .d_y = t[19], .variance = t[17], .scale = t[2], .d_x = t[20]});
            },
            fmt::format("{} channels, batch {}, relu {}", channels, batch, relu));
      }
    }
  }
}

TEST_F(CpuImagesTest, BatchNormalizationRecomputesItsRelu) {
  for (const std::int64_t channels : {1, 16, 30}) {
    const BatchNorm norm{.channels = channels, .relu = true};
    const std::int64_t columns = 24 * channels;
    compare(
        {{.name = "x", .rows = 11, .columns = columns, .scale = 2, .shift = 3, .image = true},
         {.name = "sums", .rows = 1, .columns = 2 * channels + 1, .tolerance = 1e-4, .holds = Operand::sums},
         {.name = "scale", .rows = 1, .columns = channels},
         {.name = "shift", .rows = 1, .columns = channels},
         {.name = "mean", .rows = 1, .columns = channels, .tolerance = 2},
         {.name = "inverse", .rows = 1, .columns = channels, .tolerance = 2},
         {.name = "y", .rows = 11, .columns = columns, .tolerance = 100, .image = true},
         {.name = "d_y", .rows = 11, .columns = columns, .tolerance = 1e9, .image = true},  // masked or not
         {.name = "d_sums", .rows = 1, .columns = 2 * channels, .tolerance = 100, .holds = Operand::sums},
         {.name = "d_x", .rows = 11, .columns = columns, .tolerance = 100, .image = true}},
        [&](auto& images, const auto& t) {
          images.batch_norm_sums(norm, t[0], t[1]);
          images.batch_norm_forward(
              norm, {.x = t[0], .sums = t[1], .scale = t[2], .shift = t[3], .mean = t[4], .inverse = t[5], .y = t[6]});
          const bool again = images.recomputes_relu();
          images.batch_norm_backward_sums(norm,
                                          {.x = t[0],
                                           .y = again ? Tensor{} : t[6],
                                           .d_y = t[7],
                                           .mean = t[4],
                                           .inverse = t[5],
                                           .scale = again ? t[2] : Tensor{},
                                           .shift = again ? t[3] : Tensor{},
                                           .sums = t[8]},
                                          Accumulate::no);
          images.batch_norm_backward(norm, {.x = t[0],
                                            .d_y = t[7],
                                            .mean = t[4],
                                            .inverse = t[5],
                                            .scale = t[2],
                                            .shift = again ? t[3] : Tensor{},
                                            .forward_sums = t[1],
                                            .sums = t[8],
                                            .d_x = t[9]});
        },
        fmt::format("{} channels", channels));
  }
  EXPECT_FALSE(cpu_[0].of_threads[0]->recomputes_relu()) << "fp32 keeps its bits";
  EXPECT_TRUE(cpu_[1].of_threads[0]->recomputes_relu());
}

TEST_F(CpuImagesTest, BatchNormalizationLetsNanThrough) {
  const BatchNorm norm{.channels = 20, .relu = true};
  compare(
      {{.name = "x", .rows = 3, .columns = 80, .nan_at = 25, .image = true},
       {.name = "sums", .rows = 1, .columns = 41, .tolerance = 1, .holds = Operand::sums},
       {.name = "scale", .rows = 1, .columns = 20},
       {.name = "shift", .rows = 1, .columns = 20},
       {.name = "mean", .rows = 1, .columns = 20, .tolerance = 4},
       {.name = "inverse", .rows = 1, .columns = 20, .tolerance = 4},
       {.name = "y", .rows = 3, .columns = 80, .tolerance = 100, .image = true},
       {.name = "d_y", .rows = 3, .columns = 80, .nan_at = 7, .image = true},
       {.name = "d_sums", .rows = 1, .columns = 40, .tolerance = 100, .holds = Operand::sums},
       {.name = "value", .rows = 3, .columns = 80, .shift = 2, .image = true}},
      [&](auto& images, const auto& t) {
        images.batch_norm_sums(norm, t[0], t[1]);
        images.batch_norm_forward(norm, {.x = t[0],
                                         .sums = t[1],
                                         .scale = t[2],
                                         .shift = t[3],
                                         .residual = Tensor{},
                                         .mean = t[4],
                                         .inverse = t[5],
                                         .y = t[6]});
        images.batch_norm_backward_sums(norm,
                                        {.x = t[0],
                                         .y = t[9],
                                         .d_y = t[7],
                                         .mean = t[4],
                                         .inverse = t[5],
                                         .d_scale = Tensor{},
                                         .d_shift = Tensor{},
                                         .sums = t[8]},
                                        Accumulate::no);
        EXPECT_TRUE(std::isnan(element(t[6], 5)));  // channel of the NaN, in another sample
        EXPECT_TRUE(std::isnan(element(t[8], 7)));
      },
      "one NaN");
}

TEST_F(CpuImagesTest, Augmentation) {
  const ImageShape in{10, 9, 3}, small{8, 7, 3}, large{14, 12, 3};
  const std::vector<Augmentation> specs = {
      {.in = in, .out = small},
      {.in = in, .out = in, .pad = 2, .flip = true, .scale = {0.1f, 0.2f, 0.3f, 1}, .shift = {-1, -2, -3, 0}},
      {.in = in, .out = large, .pad = 3, .flip = true, .brightness = 10},
      {.in = in,
       .out = small,
       .flip = true,
       .brightness = 63,
       .contrast_low = 0.2f,
       .contrast_high = 1.8f,
       .per_image = true},
      {.in = in, .out = small, .flip = true, .minimum_area = 0.3f, .contrast_low = 0.5f, .contrast_high = 1.5f},
      {.in = {10, 9, 6}, .out = {8, 8, 6}, .pad = 1, .scale = {1, 2, 3, 4}, .shift = {5, 6, 7, 8}},
      {.in = {5, 4, 2, 6}, .out = {5, 4, 2, 5}, .pad = 1, .flip = true, .flip_depth = true, .brightness = 10},
      {.in = {5, 5, 2, 5}, .out = {5, 5, 2, 5}, .flip = true, .flip_height = true, .flip_depth = true, .turns = true},
      {.in = {6, 4, 3, 4},
       .out = {5, 5, 3, 5},
       .pad = 1,
       .flip = true,
       .turns = true,
       .contrast_low = 0.2f,
       .contrast_high = 1.8f,
       .per_image = true},
      {.in = {9, 10, 2}, .out = {8, 8, 2}, .pad = 1, .flip_height = true, .turns = true},
      {.in = {9, 10, 2}, .out = {8, 8, 2}, .flip_height = true, .turns = true, .minimum_area = 0.3f},
  };
  for (const Augmentation& spec : specs) {
    for (const auto stored : {Operand::bytes, Operand::values, Operand::sums}) {
      for (const auto keys : {Operand::keys, Operand::nothing}) {
        for (const std::int64_t batch : {0, 1, 40}) {
          compare(
              {{.name = "images", .rows = batch, .columns = spec.in.elements(), .holds = stored},
               {.name = "keys", .rows = batch, .columns = 1, .holds = keys},
               {.name = "out", .rows = batch, .columns = spec.out.elements(), .tolerance = 512}},
              [&](auto& images, const auto& t) { images.augment(t[0], t[1], spec, t[2]); },
              fmt::format("augmentation {}, batch {}", &spec - specs.data(), batch));
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model
