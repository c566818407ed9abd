// Compares every operation on images at every precision with the float64 reference: windows with odd sizes and padding,
// fresh random inputs, poisoned outputs.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/twins.hpp"
#include "model/channel_calls.hpp"

namespace lockstep::model::test {
namespace {

class Images : public Twins {};

struct ConvolutionCase {
  std::int64_t batch;
  ImageShape in;
  std::int64_t out_channels;
  Sliding window;
  std::int64_t groups = 1;
};

/// Those of the networks, small; then odd ones.
std::vector<ConvolutionCase> convolutions() {
  std::vector<ConvolutionCase> cases{
      {2, {12, 12, 3}, 64, same_padding({12, 12, 3}, 5, 1)},
      {2, {8, 8, 16}, 16, even_padding(3, 1, 1)},
      {3, {8, 8, 16}, 32, even_padding(3, 2, 1)},
      {2, {7, 7, 64}, 32, even_padding(1, 1, 0)},
      {2, {7, 7, 32}, 64, even_padding(1, 2, 0)},
      {1, {18, 18, 3}, 64, even_padding(7, 2, 3)},
      {1, {1, 1, 1}, 1, even_padding(1, 1, 0)},
      {5, {5, 9, 2}, 3, same_padding({5, 9, 2}, 3, 2)},
      {3,
       {6, 5, 7},
       5,
       {.height = {.size = 2, .stride = 3, .before = 1}, .width = {.size = 4, .stride = 3, .after = 2}}}};
  if (!subject().quick) {
    cases.push_back({2, {32, 32, 16}, 16, even_padding(3, 1, 1)});
    cases.push_back({1, {14, 14, 128}, 128, even_padding(3, 1, 1)});
    cases.push_back({33, {8, 8, 64}, 64, even_padding(3, 2, 1)});
    cases.push_back({2, {24, 24, 64}, 64, same_padding({24, 24, 64}, 5, 1)});
  }
  for (const Convolution& any : convolutions_of_any_windows()) {
    cases.push_back({3, any.in, any.out.channels, any.window, any.groups});
  }
  return cases;
}

TEST_P(Images, Convolution) {
  for (const ConvolutionCase& at : convolutions()) {
    const Activation activation = random_.pick<Activation>({Activation::none, Activation::relu, Activation::tanh});
    const Accumulate accumulate = random_.coin() ? Accumulate::yes : Accumulate::no;
    const bool biased = random_.coin(), wants_d_x = random_.generator()() % 4 != 0;
    const Convolution shape{at.in, slide(at.in, at.window, at.out_channels), at.window, at.groups};
    SCOPED_TRACE(fmt::format("batch {}, {}, {}{}{}{}", at.batch, to_string(shape), name_of(activation),
                             biased ? ", bias" : "", wants_d_x ? "" : ", no d_x",
                             accumulate == Accumulate::yes ? ", accumulating" : ""));
    const std::int64_t patch = shape.patch(), pixels = at.batch * shape.out.pixels();
    const Twin x = activations(at.batch, at.in.elements());
    const Twin w = activations(patch, at.out_channels, 2 / std::sqrt(static_cast<double>(patch)));
    const Twin bias = biased ? activations(1, at.out_channels) : Twin();
    const Twin y = poison(Holds::activations, at.batch, shape.out.elements());
    both([&](Backend& backend, const auto& of) {
      backend.images().convolution_forward(shape, of(x), of(w), of(bias), activation, of(y));
    });
    expect_close(y, "y");

    const Twin given_y = settled(y), d_y = activations(at.batch, shape.out.elements());
    const Twin d_w = gradient(accumulate, patch, at.out_channels);
    const Twin d_bias = biased ? gradient(accumulate, 1, at.out_channels) : Twin();
    const Twin d_x = wants_d_x ? poison(Holds::activations, at.batch, at.in.elements()) : Twin();
    both([&](Backend& backend, const auto& of) {
      backend.images().convolution_backward(shape,
                                            {.x = of(x),
                                             .w = of(w),
                                             .y = of(given_y),
                                             .d_y = of(d_y),
                                             .d_w = of(d_w),
                                             .d_bias = of(d_bias),
                                             .d_x = of(d_x)},
                                            activation, accumulate);
    });
    const double terms = std::sqrt(static_cast<double>(pixels));
    expect_close(d_y, "gradient before the activation");
    expect_close(d_w, "d_w", 0.1 * terms);
    if (biased) expect_close(d_bias, "d_bias", 0.2 * terms);
    if (wants_d_x) expect_close(d_x, "d_x");
  }
}

// A device that cannot add writes the gradient.
TEST_P(Images, AddedImageGradient) {
  for (const ConvolutionCase& at : convolutions()) {
    if (at.window.positions() > 1 || at.window.height.stride > 1 || at.groups > 1 || at.in.depth > 1) continue;
    const Convolution shape{at.in, slide(at.in, at.window, at.out_channels), at.window};
    const bool adds = device_->images().adds_image_gradient(shape);
    EXPECT_TRUE(adds || subject().backend != "cuda");
    SCOPED_TRACE(fmt::format("batch {}, {} x {} x {} -> {} channels", at.batch, at.in.height, at.in.width,
                             at.in.channels, at.out_channels));
    const Twin x = activations(at.batch, at.in.elements());
    const Twin w = activations(shape.patch(), at.out_channels, 2 / std::sqrt(static_cast<double>(shape.patch())));
    const Twin d_y = activations(at.batch, shape.out.elements()), d_x = activations(at.batch, at.in.elements());
    both([&](Backend& backend, const auto& of) {
      if (adds) return backend.images().add_image_gradient(shape, of(w), of(d_y), of(d_x));
      backend.images().convolution_backward(shape, {.x = of(x), .w = of(w), .d_y = of(d_y), .d_x = of(d_x)},
                                            Activation::none, Accumulate::no);
    });
    expect_close(d_x, "d_x");
  }
}

TEST_P(Images, ConvolutionOfNoImages) {
  const Convolution shape{{6, 6, 3}, {6, 6, 8}, even_padding(3, 1, 1)};
  const Twin x = activations(0, shape.in.elements()), y = activations(0, shape.out.elements());
  const Twin d_x = activations(0, shape.in.elements()), w = activations(shape.patch(), 8);
  for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
    const Twin d_w = gradient(accumulate, shape.patch(), 8), d_bias = gradient(accumulate, 1, 8);
    both([&](Backend& backend, const auto& of) {
      backend.images().convolution_forward(shape, of(x), of(w), {}, Activation::relu, of(y));
      backend.images().convolution_backward(
          shape,
          {.x = of(x), .w = of(w), .y = of(y), .d_y = of(y), .d_w = of(d_w), .d_bias = of(d_bias), .d_x = of(d_x)},
          Activation::relu, accumulate);
    });
    expect_equal(d_w, "d_w");
    expect_equal(d_bias, "d_bias");
  }
}

TEST_P(Images, MaxPool) {
  struct Case {
    std::int64_t batch;
    ImageShape in;
    Sliding window;
  };
  const ImageShape cifar{24, 24, 64}, odd{9, 7, 5};
  std::vector<Case> cases{{2, cifar, same_padding(cifar, 3, 2)},   {3, odd, same_padding(odd, 3, 2)},
                          {2, {16, 16, 8}, even_padding(3, 2, 1)}, {4, {8, 8, 16}, even_padding(2, 2, 0)},
                          {1, {4, 4, 1}, even_padding(4, 1, 0)},   {2, {17, 16, 3}, even_padding(16, 1, 0)}};
  for (const Pool& any : pools_of_any_windows()) cases.push_back({2, any.in, any.window});
  for (const Case& at : cases) {
    SCOPED_TRACE(fmt::format("batch {}, {} x {} x {}, window {}, stride {}", at.batch, at.in.height, at.in.width,
                             at.in.channels, at.window.height.size, at.window.height.stride));
    const Pool shape{at.in, slide(at.in, at.window, at.in.channels), at.window};
    // Few different numbers, because the first of equal ones counts. And some NaN.
    std::vector<float> values = random_.numbers(at.batch * at.in.elements(), precision_);
    for (float& value : values) value = std::floor(8 * value);
    values[values.size() / 2] = std::numeric_limits<float>::quiet_NaN();
    values[0] = -std::numeric_limits<float>::infinity();
    const Twin x = given(Holds::activations, at.batch, at.in.elements(), values);
    const Twin y = poison(Holds::activations, at.batch, shape.out.elements());
    const Twin chosen = poison(Holds::choices, at.batch, shape.out.elements());
    const Twin d_y = activations(at.batch, shape.out.elements());
    const Twin d_x = poison(Holds::activations, at.batch, at.in.elements());
    both([&](Backend& backend, const auto& of) {
      backend.images().max_pool_forward(shape, of(x), of(y), of(chosen));
      backend.images().max_pool_backward(shape, of(chosen), of(d_y), of(d_x));
    });
    expect_equal(y, "y");
    expect_equal(chosen, "which");
    expect_close(d_x, "d_x");
  }
}

TEST_P(Images, PoolsAndPassesOverChannels) {
  int count = 0;
  for (const ChannelCall& call : channel_calls()) {
    std::vector<Twin> twins;
    for (const ChannelOperand& operand : call.operands) {
      twins.push_back(operand.holds == ChannelOperand::sums ? poison(Holds::sums, operand.rows, operand.columns)
                      : operand.holds == ChannelOperand::master
                          ? numbers(Holds::statistics, operand.rows, operand.columns)
                          : activations(operand.rows, operand.columns));
    }
    both([&](Backend& backend, const auto& of) {
      std::vector<Tensor> tensors;
      std::ranges::transform(twins, std::back_inserter(tensors), of);
      call.run(backend.images(), tensors);
    });
    for (std::size_t i = 0; i < twins.size(); ++i) {
      if (call.operands[i].holds == ChannelOperand::sums) continue;
      expect_close(twins[i], fmt::format("{}, call {}, operand {}", call.what, count, i), 0.05, 2);
    }
    ++count;
  }
}

TEST_P(Images, GlobalAverage) {
  for (const ImageShape& in : {ImageShape{1, 1, 1}, {7, 7, 65}, {8, 8, 64}, {3, 5, 2048}}) {
    for (const std::int64_t batch : {1, 3}) {
      SCOPED_TRACE(fmt::format("batch {}, {} x {} x {}", batch, in.height, in.width, in.channels));
      const Twin x = activations(batch, in.elements()), y = poison(Holds::activations, batch, in.channels);
      const Twin d_y = activations(batch, in.channels), d_x = poison(Holds::activations, batch, in.elements());
      both([&](Backend& backend, const auto& of) {
        backend.images().global_average_forward(in, of(x), of(y));
        backend.images().global_average_backward(in, of(d_y), of(d_x));
      });
      expect_close(y, "y", 0.5 / std::sqrt(static_cast<double>(in.pixels())));
      expect_close(d_x, "d_x", 0.5 / static_cast<double>(in.pixels()));
    }
  }
}

TEST_P(Images, ResponseNormalization) {
  for (const ResponseNormalization& norm : {ResponseNormalization{.channels = 64},
                                            {.channels = 64, .radius = 4, .bias = 1, .alpha = 0.5f, .beta = 0.75f},
                                            {.channels = 7, .radius = 2, .bias = 2, .alpha = 0.3f, .beta = 0.5f},
                                            {.channels = 1, .radius = 5, .alpha = 1, .beta = 1},
                                            {.channels = 33, .radius = 0, .alpha = 1, .beta = 0.75f}}) {
    for (const bool in_place : {false, true}) {
      SCOPED_TRACE(fmt::format("{} channels, radius {}{}", norm.channels, norm.radius, in_place ? ", in place" : ""));
      const std::int64_t batch = 3, columns = 35 * norm.channels;
      const Twin x = activations(batch, columns, 3), y = poison(Holds::activations, batch, columns);
      both([&](Backend& backend, const auto& of) {
        backend.images().response_normalization_forward(norm, of(x), of(y));
      });
      expect_close(y, "y");
      const Twin given_y = settled(y), d_y = activations(batch, columns);
      const Twin d_x = in_place ? d_y : poison(Holds::activations, batch, columns);
      both([&](Backend& backend, const auto& of) {
        backend.images().response_normalization_backward(norm, of(x), of(given_y), of(d_y), of(d_x));
      });
      expect_close(d_x, "d_x", 0.2);
    }
  }
}

TEST_P(Images, Subsample) {
  struct Case {
    ImageShape in;
    std::int64_t channels, stride;
  };
  for (const Case& at : {Case{{8, 8, 16}, 32, 2}, {{7, 9, 3}, 3, 2}, {{4, 4, 8}, 10, 1}, {{5, 5, 1}, 5, 3}}) {
    SCOPED_TRACE(fmt::format("{} x {} x {} -> {} channels, stride {}", at.in.height, at.in.width, at.in.channels,
                             at.channels, at.stride));
    const ImageShape out{(at.in.height + at.stride - 1) / at.stride, (at.in.width + at.stride - 1) / at.stride,
                         at.channels};
    const Twin x = activations(3, at.in.elements()), y = poison(Holds::activations, 3, out.elements());
    const Twin d_y = activations(3, out.elements()), d_x = activations(3, at.in.elements());
    both([&](Backend& backend, const auto& of) {
      backend.images().subsample_forward(at.in, out, at.stride, of(x), of(y));
      backend.images().subsample_backward(at.in, out, at.stride, of(d_y), of(d_x));
    });
    expect_equal(y, "y");
    expect_close(d_x, "d_x");
  }
}

struct BatchNormCase {
  std::int64_t batch, pixels, channels;
  bool relu, residual;
};

TEST_P(Images, BatchNorm) {
  for (const BatchNormCase& at : std::vector<BatchNormCase>{{4, 64, 16, true, false},
                                                            {3, 49, 65, true, true},
                                                            {2, 5, 3, false, false},
                                                            {1, 9, 64, false, true},
                                                            {300, 1, 8, true, true},
                                                            {16, 196, 128, true, true}}) {
    const Accumulate accumulate = random_.coin() ? Accumulate::yes : Accumulate::no;
    const bool in_place = random_.coin();
    SCOPED_TRACE(fmt::format("batch {}, {} pixels, {} channels{}{}{}", at.batch, at.pixels, at.channels,
                             at.relu ? ", relu" : "", at.residual ? ", residual" : "", in_place ? ", in place" : ""));
    const BatchNorm norm{.channels = at.channels, .relu = at.relu};
    const std::int64_t rows = at.batch, columns = at.pixels * at.channels;
    const double terms = std::sqrt(static_cast<double>(at.batch * at.pixels));
    const Twin x = activations(rows, columns, 2), residual = at.residual ? activations(rows, columns) : Twin();
    const Twin scale = activations(1, at.channels), shift = activations(1, at.channels);
    const Twin sums = poison(Holds::sums, 1, 2 * at.channels + 1);
    const Twin mean = poison(Holds::statistics, 1, at.channels), inverse = poison(Holds::statistics, 1, at.channels);
    const Twin y = poison(Holds::activations, rows, columns);
    const Twin d_mean = gradient(accumulate, 1, at.channels), d_variance = gradient(accumulate, 1, at.channels);
    both([&](Backend& backend, const auto& of) {
      backend.images().batch_norm_sums(norm, of(x), of(sums));
      backend.images().batch_norm_forward(norm, {.x = of(x),
                                                 .sums = of(sums),
                                                 .scale = of(scale),
                                                 .shift = of(shift),
                                                 .residual = of(residual),
                                                 .mean = of(mean),
                                                 .inverse = of(inverse),
                                                 .y = of(y)});
      backend.images().batch_norm_statistics(norm, of(sums), 0.375, accumulate, of(d_mean), of(d_variance));
    });
    expect_close(sums, "sums", terms);
    expect_close(mean, "mean", 1 / terms);
    expect_close(inverse, "1 / deviation");
    expect_close(d_mean, "statistic of the mean", 1 / terms);
    expect_close(d_variance, "statistic of the variance");
    expect_close(y, "y");

    const Twin given_y = settled(y), d_y = activations(rows, columns),
               d_x = in_place ? d_y : poison(Holds::activations, rows, columns);
    const Twin given_mean = settled(mean), given_inverse = settled(inverse);
    const Twin d_scale = gradient(accumulate, 1, at.channels), d_shift = gradient(accumulate, 1, at.channels);
    const Twin backward_sums = poison(Holds::sums, 1, 2 * at.channels);
    both([&](Backend& backend, const auto& of) {
      backend.images().batch_norm_backward_sums(norm,
                                                {.x = of(x),
                                                 .y = of(given_y),
                                                 .d_y = of(d_y),
                                                 .mean = of(given_mean),
                                                 .inverse = of(given_inverse),
                                                 .d_scale = of(d_scale),
                                                 .d_shift = of(d_shift),
                                                 .sums = of(backward_sums)},
                                                accumulate);
    });
    expect_close(d_y, "gradient before the relu");
    expect_close(d_scale, "d_scale", 0.3 * terms);
    expect_close(d_shift, "d_shift", 0.3 * terms);
    expect_close(backward_sums, "sums of the backward pass", 0.3 * terms);
    both([&](Backend& backend, const auto& of) {
      backend.images().batch_norm_backward(norm, {.x = of(x),
                                                  .d_y = of(d_y),
                                                  .mean = of(given_mean),
                                                  .inverse = of(given_inverse),
                                                  .scale = of(scale),
                                                  .forward_sums = of(sums),
                                                  .sums = of(backward_sums),
                                                  .d_x = of(d_x)});
    });
    expect_close(d_x, "d_x");

    // Fixed statistics; a variance is at least 0.
    std::vector<float> variances = random_.numbers(at.channels, precision_);
    for (float& variance : variances) variance = std::abs(variance);
    const Twin fixed_mean = activations(1, at.channels);
    const Twin variance = given(Holds::activations, 1, at.channels, variances);
    const Twin inferred = poison(Holds::activations, rows, columns);
    both([&](Backend& backend, const auto& of) {
      backend.images().batch_norm_inference(norm, {.x = of(x),
                                                   .mean = of(fixed_mean),
                                                   .variance = of(variance),
                                                   .scale = of(scale),
                                                   .shift = of(shift),
                                                   .residual = of(residual),
                                                   .y = of(inferred)});
    });
    expect_close(inferred, "y from fixed statistics");
  }
}

TEST_P(Images, Augment) {
  const ImageShape cifar{32, 32, 3}, crop{24, 24, 3};
  const std::vector<Augmentation> specs{
      {.in = cifar, .out = cifar, .scale = {1.0f / 255, 0.01f, 0.02f, 1}, .shift = {-0.5f, 0, 1, 0}},
      {.in = cifar, .out = cifar, .pad = 4, .flip = true, .scale = {0.02f, 0.02f, 0.02f, 1}},
      {.in = cifar,
       .out = crop,
       .flip = true,
       .brightness = 63,
       .contrast_low = 0.2f,
       .contrast_high = 1.8f,
       .per_image = true},
      {.in = {20, 17, 1},
       .out = {13, 9, 1},
       .flip = true,
       .contrast_low = 0.5f,
       .contrast_high = 1.5f,
       .scale = {0.01f, 0.01f, 0.01f, 0.01f}},
      {.in = {30, 23, 3}, .out = {16, 16, 3}, .flip = true, .minimum_area = 0.2f, .scale = {0.01f, 0.01f, 0.01f, 1}},
      {.in = {9, 7, 5}, .out = {7, 7, 5}, .scale = {0.01f, 0.02f, 0.03f, 0.04f}, .shift = {1, 2, 3, 4}}};
  for (const Augmentation& spec : specs) {
    for (const ElementType type : {ElementType::uint8, ElementType::float32, ElementType::float64}) {
      for (const bool training : {true, false}) {
        SCOPED_TRACE(fmt::format("{} x {} x {} of {} -> {} x {}, {}", spec.in.height, spec.in.width, spec.in.channels,
                                 name_of(type), spec.out.height, spec.out.width, training ? "training" : "evaluation"));
        const std::int64_t batch = 7, count = batch * spec.in.elements();
        std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count));
        for (std::uint8_t& pixel : pixels) pixel = static_cast<std::uint8_t>(random_.generator()());
        const std::vector<float> floats(pixels.begin(), pixels.end());
        const std::vector<double> doubles(pixels.begin(), pixels.end());
        const auto bytes = type == ElementType::uint8     ? std::as_bytes(std::span(pixels))
                           : type == ElementType::float32 ? std::as_bytes(std::span(floats))
                                                          : std::as_bytes(std::span(doubles));
        const Twin images(*device_, type, batch, spec.in.elements(), {bytes.begin(), bytes.end()});
        const Twin sample_keys = training ? keys(batch) : Twin();
        const Twin out = poison(Holds::activations, batch, spec.out.elements());
        both([&](Backend& backend, const auto& of) {
          backend.images().augment(of(images), of(sample_keys), spec, of(out));
        });
        expect_close(out, "out");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Images, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
