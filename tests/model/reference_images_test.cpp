// Tests the reference operations on images: gradients by finite differences, values computed by hand or by another form
// of the formula. augmentation_test.cpp tests augmentation.
#include "model/reference/reference_images.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "finite_differences.hpp"
#include "sample_data.hpp"
#include "window_shapes.hpp"

namespace lockstep::model {
namespace {

using test::expect_gradient;
using test::samples;
using test::view;
using test::weighted;
using test::zeros;

using test::kNan;

TEST(Windows, SamePaddingHasTheOddPixelAtTheEnd) {
  const auto expect = [](std::int64_t extent, std::int64_t window, std::int64_t stride, std::int64_t before,
                         std::int64_t behind) {
    const ImageShape in{extent, extent + stride, 1};
    const Sliding got = same_padding(in, window, stride);
    EXPECT_EQ(got.height.before, before) << extent << " " << window << " " << stride;
    EXPECT_EQ(got.height.after, behind) << extent << " " << window << " " << stride;
    EXPECT_EQ(got.width.before, before);
    EXPECT_EQ(got.width.after, behind);
    EXPECT_EQ(slide(in, got, 7), (ImageShape{(extent + stride - 1) / stride, (extent + stride - 1) / stride + 1, 7}));
  };
  expect(24, 5, 1, 2, 2);
  expect(24, 3, 2, 0, 1);
  expect(25, 3, 2, 1, 1);
  expect(24, 2, 2, 0, 0);
  expect(7, 4, 1, 1, 2);
  expect(7, 1, 3, 0, 0);
  expect(6, 1, 4, 0, 0);
}

TEST(Windows, OutputsAreAsManyAsFit) {
  EXPECT_EQ(slide({32, 32, 3}, even_padding(3, 2, 1), 16), (ImageShape{16, 16, 16}));
  EXPECT_EQ(slide({224, 224, 3}, even_padding(7, 2, 3), 64), (ImageShape{112, 112, 64}));
  EXPECT_EQ(slide({5, 9, 1}, even_padding(5, 3, 0), 1), (ImageShape{1, 2, 1}));
  EXPECT_THROW(slide({4, 9, 1}, even_padding(5, 3, 0), 1), std::invalid_argument);
  EXPECT_THROW(slide({9, 4, 1}, even_padding(5, 3, 0), 1), std::invalid_argument);
  EXPECT_THROW(slide({0, 4, 1}, even_padding(1, 1, 1), 1), std::invalid_argument);
  EXPECT_THROW(same_padding({5, 5, 1}, 0, 1), std::invalid_argument);
  EXPECT_THROW(same_padding({5, 5, 1}, 3, 0), std::invalid_argument);
  EXPECT_THROW(same_padding({0, 5, 1}, 3, 1), std::invalid_argument);
  EXPECT_THROW(even_padding(3, 1, -1), std::invalid_argument);
  EXPECT_THROW(even_padding(0, 1, 0), std::invalid_argument);
}

struct WindowCase {
  ImageShape in;
  Sliding window;
  std::int64_t channels, batch;
  Activation activation = Activation::none;
  std::int64_t groups = 1;
};

Convolution shape_of(const WindowCase& of) {
  return {of.in, slide(of.in, of.window, of.channels), of.window, of.groups};
}

const std::vector<WindowCase>& convolutions() {
  static const std::vector<WindowCase> cases{
      {{4, 4, 1}, even_padding(3, 1, 1), 1, 1},
      {{5, 4, 2}, same_padding({5, 4, 2}, 3, 1), 3, 2, Activation::relu},
      {{6, 5, 3}, same_padding({6, 5, 3}, 5, 2), 2, 2, Activation::tanh},
      {{5, 7, 2}, even_padding(3, 2, 1), 4, 1, Activation::sigmoid},
      {{4, 5, 3}, even_padding(1, 2, 0), 2, 3},
      {{5, 6, 1},
       {.height = {.size = 2, .stride = 2, .before = 1}, .width = {.size = 3, .stride = 2, .after = 2}},
       2,
       2},
      {{2, 2, 2}, even_padding(3, 1, 2), 2, 1, Activation::relu},
      {{3, 3, 2}, even_padding(3, 1, 0), 2, 0, Activation::relu},
  };
  return cases;
}

/// A filter with a single 1 shifts the image.
TEST(ReferenceConvolution, ShiftsTheImageByASingleOne) {
  ReferenceImages images;
  for (const WindowCase& of : convolutions()) {
    const Convolution shape = shape_of(of);
    auto x = samples<double>("x", of.batch * of.in.elements());
    for (std::int64_t position = 0; position < of.window.positions(); ++position) {
      const std::int64_t from = of.in.channels - 1, to = of.channels - 1;
      auto w = zeros(shape.patch() * of.channels), y = zeros(of.batch * shape.out.elements());
      w[static_cast<std::size_t>((position * of.in.channels + from) * of.channels + to)] = 1;
      images.convolution_forward(shape, view(x, of.batch, of.in.elements()), view(w, shape.patch(), of.channels), {},
                                 Activation::none, view(y, of.batch, shape.out.elements()));
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(y.size()); ++i) {
        const std::int64_t channel = i % of.channels, pixel = i / of.channels % shape.out.pixels();
        const std::int64_t b = i / shape.out.elements();
        const std::int64_t row = pixel / shape.out.width * of.window.height.stride - of.window.height.before +
                                 position / of.window.width.size;
        const std::int64_t column = pixel % shape.out.width * of.window.height.stride - of.window.width.before +
                                    position % of.window.width.size;
        const bool inside = row >= 0 && row < of.in.height && column >= 0 && column < of.in.width && channel == to;
        const std::int64_t source = ((b * of.in.height + row) * of.in.width + column) * of.in.channels + from;
        EXPECT_EQ(y[static_cast<std::size_t>(i)], inside ? x[static_cast<std::size_t>(source)] : 0) << position;
      }
    }
  }
}

/// Returns y of one sample, by a reference convolution with these filters.
std::vector<double> convolved(const Convolution& shape, std::vector<double> x, std::vector<double> w) {
  auto y = zeros(shape.out.elements());
  ReferenceImages().convolution_forward(shape, view(x, 1, shape.in.elements()),
                                        view(w, shape.patch(), shape.out.channels), {}, Activation::none,
                                        view(y, 1, shape.out.elements()));
  return y;
}

TEST(ReferenceConvolution, OfASeriesVolumeOrGroupIsWhatItSays) {
  const ImageShape series{1, 5, 1};
  const Sliding dilated = same_padding(series, Sliding{.width = {.size = 3, .dilation = 2}});
  EXPECT_EQ(convolved({series, slide(series, dilated, 1), dilated}, {1, 2, 3, 4, 5}, {1, 10, 100}),
            (std::vector<double>{310, 420, 531, 42, 53}));
  const Sliding thrice{.width = {.stride = 3}};
  EXPECT_EQ(convolved({series, slide(series, thrice, 1), thrice}, {1, 2, 3, 4, 5}, {10}),
            (std::vector<double>{10, 40}));
  const ImageShape volume{.height = 1, .width = 2, .channels = 1, .depth = 3};
  const Sliding behind{.depth = {.size = 2, .after = 1}};
  EXPECT_EQ(convolved({volume, slide(volume, behind, 1), behind}, {1, 2, 3, 4, 5, 6}, {10, 1}),
            (std::vector<double>{13, 24, 35, 46, 50, 60}));
  const ImageShape pixel{1, 1, 4};
  EXPECT_EQ(convolved({pixel, {1, 1, 2}, {}, 2}, {1, 2, 3, 4}, {10, 20, 1, 2}), (std::vector<double>{12, 68}))
      << "the first output reads the first two channels alone";
  EXPECT_EQ(convolved({pixel, {1, 1, 4}, {}, 4}, {1, 2, 3, 4}, {1, 10, 100, 1000}),
            (std::vector<double>{1, 20, 300, 4000}));
}

/// Each number of a filter costs two passes over images. Larger filters have the windows of smaller ones, and channels
/// for the vectors of other backends.
constexpr std::int64_t kMaxFilter = 2000;

TEST(ReferenceConvolution, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  auto cases = convolutions();
  for (const Convolution& shape : test::convolutions_of_any_windows()) {
    if (shape.in.channels > 8 || shape.patch() * shape.out.channels > kMaxFilter) continue;
    cases.push_back({shape.in, shape.window, shape.out.channels, 2, Activation::none, shape.groups});
  }
  for (const WindowCase& of : cases) {
    const Convolution shape = shape_of(of);
    auto x = samples<double>("x", of.batch * of.in.elements());
    auto w = samples<double>("w", shape.patch() * of.channels), bias = samples<double>("b", of.channels);
    const auto weight = samples<double>("weight", of.batch * shape.out.elements());
    auto y = zeros(of.batch * shape.out.elements());
    const Tensor in = view(x, of.batch, of.in.elements()), filter = view(w, shape.patch(), of.channels);
    const Tensor shift = view(bias, 1, of.channels), out = view(y, of.batch, shape.out.elements());
    const auto f = [&] {
      images.convolution_forward(shape, in, filter, shift, of.activation, out);
      return weighted(weight, y);
    };
    f();
    std::vector<double> d_y = weight, d_x(x.size(), 9.0), d_w(w.size(), 9.0), d_bias(bias.size(), 9.0);
    const auto backward = [&](Accumulate accumulate, std::vector<double>& d_filter, std::vector<double>& d_shift) {
      d_y = weight;
      images.convolution_backward(shape,
                                  {.x = in,
                                   .w = filter,
                                   .y = out,
                                   .d_y = view(d_y, of.batch, shape.out.elements()),
                                   .d_w = view(d_filter, shape.patch(), of.channels),
                                   .d_bias = view(d_shift, 1, of.channels),
                                   .d_x = view(d_x, of.batch, of.in.elements())},
                                  of.activation, accumulate);
    };
    backward(Accumulate::no, d_w, d_bias);
    auto d_w_twice = d_w, d_bias_twice = d_bias;
    backward(Accumulate::yes, d_w_twice, d_bias_twice);
    for (std::size_t i = 0; i < d_w.size(); ++i) EXPECT_NEAR(d_w_twice[i], 2 * d_w[i], 1e-12);
    for (std::size_t i = 0; i < d_bias.size(); ++i) EXPECT_NEAR(d_bias_twice[i], 2 * d_bias[i], 1e-12);
    expect_gradient(x, d_x, f, "x");
    expect_gradient(w, d_w, f, "w");
    expect_gradient(bias, d_bias, f, "bias");
    // The filter's gradient is the same without bias and d_x.
    auto d_w_alone = zeros(static_cast<std::int64_t>(w.size()));
    d_y = weight;
    f();
    images.convolution_backward(shape,
                                {.x = in,
                                 .w = filter,
                                 .y = out,
                                 .d_y = view(d_y, of.batch, shape.out.elements()),
                                 .d_w = view(d_w_alone, shape.patch(), of.channels)},
                                of.activation, Accumulate::no);
    EXPECT_EQ(d_w_alone, d_w);
  }
}

void expect_pool_gradient(const Pool& shape, std::int64_t batch) {
  ReferenceImages images;
  auto x = samples<double>("x", batch * shape.in.elements());
  auto y = zeros(batch * shape.out.elements());
  const auto weight = samples<double>("weight", batch * shape.out.elements());
  std::vector<std::uint8_t> chosen(y.size());
  const auto f = [&] {
    images.max_pool_forward(shape, view(x, batch, shape.in.elements()), view(y, batch, shape.out.elements()),
                            view(chosen, batch, shape.out.elements()));
    return weighted(weight, y);
  };
  f();
  std::vector<double> d_y = weight, d_x(x.size(), 9.0);
  images.max_pool_backward(shape, view(chosen, batch, shape.out.elements()), view(d_y, batch, shape.out.elements()),
                           view(d_x, batch, shape.in.elements()));
  expect_gradient(x, d_x, f, "x");
}

TEST(ReferencePool, GradientsMatchFiniteDifferences) {
  for (const auto& [in, window, batch] : {std::tuple{ImageShape{5, 5, 3}, same_padding({5, 5, 3}, 3, 2), 2},
                                          std::tuple{ImageShape{4, 6, 1}, even_padding(2, 2, 0), 1},
                                          std::tuple{ImageShape{6, 5, 2}, even_padding(3, 1, 1), 3},
                                          std::tuple{ImageShape{4, 4, 2}, even_padding(2, 2, 0), 0}}) {
    expect_pool_gradient({in, slide(in, window, in.channels), window}, batch);
  }
  for (const Pool& shape : test::pools_of_any_windows()) expect_pool_gradient(shape, 2);
}

TEST(ReferencePool, AveragesHaveTheirDivisor) {
  ReferenceImages images;
  const ImageShape in{1, 3, 1};
  const Sliding window{.width = {.size = 2, .stride = 2, .after = 1}};
  const auto pool = [&](AveragePool::Divisor divisor) {
    std::vector<double> x{1, 3, 8}, y(2);
    images.average_pool_forward({{in, slide(in, window, 1), window}, divisor}, view(x, 1, 3), view(y, 1, 2));
    return y;
  };
  EXPECT_EQ(pool(AveragePool::Divisor::seen), (std::vector<double>{2, 8}));
  EXPECT_EQ(pool(AveragePool::Divisor::positions), (std::vector<double>{2, 4}));
  EXPECT_EQ(pool(AveragePool::Divisor::one), (std::vector<double>{4, 8}));
}

/// Requires that backward(x, y, d_y, d_x) computes the gradient of forward(x, y).
template <class Forward, class Backward>
void expect_gradient_of(std::int64_t batch, std::int64_t in, std::int64_t out, const Forward& forward,
                        const Backward& backward) {
  auto x = samples<double>("x", batch * in), y = zeros(batch * out), d_x = zeros(batch * in);
  auto weight = samples<double>("weight", batch * out);
  const auto f = [&] {
    forward(view(x, batch, in), view(y, batch, out));
    return weighted(weight, y);
  };
  f();
  auto d_y = weight;
  backward(view(x, batch, in), view(y, batch, out), view(d_y, batch, out), view(d_x, batch, in));
  expect_gradient(x, d_x, f, "x");
}

TEST(ReferencePool, GradientsOfAveragesAndGlobalMaximaMatchFiniteDifferences) {
  ReferenceImages images;
  for (const Pool& pool : test::pools_of_any_windows()) {
    for (const auto divisor :
         {AveragePool::Divisor::seen, AveragePool::Divisor::positions, AveragePool::Divisor::one}) {
      expect_gradient_of(
          2, pool.in.elements(), pool.out.elements(),
          [&](const Tensor& x, const Tensor& y) {
            images.average_pool_forward({pool, divisor}, x, y);
          },
          [&](const Tensor&, const Tensor&, const Tensor& d_y, const Tensor& d_x) {
            images.average_pool_backward({pool, divisor}, d_y, d_x);
          });
    }
    expect_gradient_of(
        2, pool.in.elements(), pool.in.channels,
        [&](const Tensor& x, const Tensor& y) { images.global_max_forward(pool.in, x, y); },
        [&](const Tensor& x, const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
          images.global_max_backward(pool.in, x, y, d_y, d_x);
        });
  }
}

TEST(ReferenceUpsampling, InterpolatesBetweenTheCentresOfPlaces) {
  ReferenceImages images;
  const auto enlarged = [&](const LinearUpsampling& shape, std::vector<double> x) {
    std::vector<double> y(static_cast<std::size_t>(shape.out.elements()), -77.0);
    images.linear_upsampling_forward(shape, view(x, 1, shape.in.elements()), view(y, 1, shape.out.elements()));
    return y;
  };
  EXPECT_EQ(enlarged({{1, 4, 1}, {1, 8, 1}}, {10, 20, 40, 60}),
            (std::vector<double>{10, 12.5, 17.5, 25, 35, 45, 55, 60}));
  const std::vector<double> thirds = enlarged({{1, 2, 1}, {1, 6, 1}}, {0, 3}), expected{0, 0, 1, 2, 3, 3};
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(thirds[i], expected[i], 1e-15) << i;
  EXPECT_EQ(enlarged({{1, 1, 2}, {3, 2, 2}}, {5, 7}), (std::vector<double>{5, 7, 5, 7, 5, 7, 5, 7, 5, 7, 5, 7}));
  const LinearUpsampling cube{{2, 3, 1, 4}, {4, 6, 1, 8}};
  std::vector<double> plane;  // a plane: exact between the outer centres
  for (int i = 0; i < 24; ++i) plane.push_back(100 * (i / 6) + 10 * (i / 3 % 2) + i % 3);
  const std::vector<double> y = enlarged(cube, plane);
  const auto place = [](int p, int in) { return std::clamp((p + 0.5) / 2 - 0.5, 0.0, in - 1.0); };
  for (int i = 0; i < 8 * 4 * 6; ++i) {
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], 100 * place(i / 24, 4) + 10 * place(i / 6 % 4, 2) + place(i % 6, 3),
                1e-12);
  }
}

TEST(ReferenceUpsampling, GradientMatchesFiniteDifferences) {
  ReferenceImages images;
  for (const LinearUpsampling& shape : {LinearUpsampling{{1, 5, 2}, {1, 15, 2}}, LinearUpsampling{{3, 2, 2}, {6, 8, 2}},
                                        LinearUpsampling{{2, 3, 1, 2}, {4, 3, 1, 6}}}) {
    expect_gradient_of(
        2, shape.in.elements(), shape.out.elements(),
        [&](const Tensor& x, const Tensor& y) { images.linear_upsampling_forward(shape, x, y); },
        [&](const Tensor&, const Tensor&, const Tensor& d_y, const Tensor& d_x) {
          images.linear_upsampling_backward(shape, d_y, d_x);
        });
  }
}

TEST(ReferenceChannels, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  expect_gradient_of(
      4, 5, 5, [&](const Tensor& x, const Tensor& y) { images.softmax_forward(x, y); },
      [&](const Tensor&, const Tensor& y, const Tensor& d_y, const Tensor& d_x) {
        images.softmax_backward(y, d_y, d_x);
      });
  auto other = samples<double>("b", 2 * 3), left = samples<double>("a", 6 * 3);
  const Tensor b = view(other, 2, 3), a = view(left, 6, 3);
  expect_gradient_of(
      6, 3, 3, [&](const Tensor& x, const Tensor& y) { images.multiply(x, b, y); },
      [&](const Tensor&, const Tensor&, const Tensor& d_y, const Tensor& d_x) { images.multiply(d_y, b, d_x); });
  auto product = zeros(6 * 3);
  const auto weight = samples<double>("weight", 6 * 3);
  const auto f = [&] {
    images.multiply(a, b, view(product, 6, 3));
    return weighted(weight, product);
  };
  auto d_y = weight, d_b = zeros(2 * 3);
  images.multiply_sums(a, view(d_y, 6, 3), view(d_b, 2, 3));
  expect_gradient(other, d_b, f, "b");
}

TEST(ReferenceGroupNorm, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  for (const std::int64_t groups : {1, 2, 4}) {
    const GroupNorm norm{.places = 5, .channels = 4, .groups = groups};
    const std::int64_t batch = 3, elements = norm.elements();
    auto x = samples<double>("x", batch * elements), scale = samples<double>("scale", 4),
         shift = samples<double>("shift", 4), y = zeros(batch * elements), mean = zeros(batch * groups),
         inverse = zeros(batch * groups), d_x = zeros(batch * elements), d_scale = zeros(4), d_shift = zeros(4),
         sums = zeros(batch * 2 * (4 + groups));
    const auto weight = samples<double>("weight", batch * elements);
    const auto f = [&] {
      images.group_norm_forward(norm, {.x = view(x, batch, elements),
                                       .scale = view(scale, 1, 4),
                                       .shift = view(shift, 1, 4),
                                       .mean = view(mean, batch, groups),
                                       .inverse = view(inverse, batch, groups),
                                       .y = view(y, batch, elements)});
      return weighted(weight, y);
    };
    f();
    auto d_y = weight;
    images.group_norm_backward(norm,
                               {.x = view(x, batch, elements),
                                .d_y = view(d_y, batch, elements),
                                .mean = view(mean, batch, groups),
                                .inverse = view(inverse, batch, groups),
                                .scale = view(scale, 1, 4),
                                .d_scale = view(d_scale, 1, 4),
                                .d_shift = view(d_shift, 1, 4),
                                .sums = view(sums, batch, 2 * (4 + groups)),
                                .d_x = view(d_x, batch, elements)},
                               Accumulate::no);
    expect_gradient(x, d_x, f, "x");
    expect_gradient(scale, d_scale, f, "scale");
    expect_gradient(shift, d_shift, f, "shift");
  }
}

TEST(ReferencePool, TheFirstGreatestIsChosenAndNanWins) {
  ReferenceImages images;
  const ImageShape in{2, 4, 1};
  const Pool shape{in, {1, 2, 1}, even_padding(2, 2, 0)};
  const double infinity = std::numeric_limits<double>::infinity();
  const auto pool = [&](std::vector<double> x) {
    std::vector<double> y(2);
    std::vector<std::uint8_t> chosen(2);
    images.max_pool_forward(shape, view(x, 1, 8), view(y, 1, 2), view(chosen, 1, 2));
    return std::pair{y, chosen};
  };
  EXPECT_EQ(pool({1, 3, 5, 5, 3, 2, 5, 5}), (std::pair{std::vector{3.0, 5.0}, std::vector<std::uint8_t>{1, 0}}));
  EXPECT_EQ(pool({-infinity, -infinity, 0, -0.0, -infinity, -infinity, 0, 0}),
            (std::pair{std::vector{-infinity, 0.0}, std::vector<std::uint8_t>{0, 0}}));
  const auto [y, chosen] = pool({1, 2, kNan, infinity, kNan, kNan, kNan, 5});
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_EQ(chosen, (std::vector<std::uint8_t>{2, 0}));
}

/// Padding is ignored, not zero: the maximum of a window of negative numbers at the edge is negative.
TEST(ReferencePool, PaddingIsNotSeen) {
  ReferenceImages images;
  const ImageShape in{2, 2, 1};
  const Sliding window = even_padding(3, 2, 1);
  std::vector<double> x{-4, -3, -2, -1}, y(1);
  std::vector<std::uint8_t> chosen(1);
  images.max_pool_forward({in, slide(in, window, 1), window}, view(x, 1, 4), view(y, 1, 1), view(chosen, 1, 1));
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(chosen[0], 8);
}

TEST(ReferenceGlobalAverage, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  for (const auto& [in, batch] :
       {std::pair{ImageShape{3, 5, 4}, 2}, std::pair{ImageShape{1, 1, 1}, 3}, std::pair{ImageShape{2, 2, 2}, 0}}) {
    auto x = samples<double>("x", batch * in.elements()), y = zeros(batch * in.channels);
    const auto weight = samples<double>("weight", batch * in.channels);
    const auto f = [&] {
      images.global_average_forward(in, view(x, batch, in.elements()), view(y, batch, in.channels));
      return weighted(weight, y);
    };
    f();
    if (batch > 0) {
      double mean = 0;
      for (std::int64_t p = 0; p < in.pixels(); ++p) mean += x[static_cast<std::size_t>(p * in.channels)];
      EXPECT_NEAR(y[0], mean / static_cast<double>(in.pixels()), 1e-14);
    }
    std::vector<double> d_y = weight, d_x(x.size(), 9.0);
    images.global_average_backward(in, view(d_y, batch, in.channels), view(d_x, batch, in.elements()));
    expect_gradient(x, d_x, f, "x");
  }
}

TEST(ReferenceResponseNormalization, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  for (const ResponseNormalization& norm :
       {ResponseNormalization{.channels = 7, .radius = 2, .bias = 1, .alpha = 0.5f, .beta = 0.75f},
        ResponseNormalization{.channels = 3, .radius = 4, .bias = 2, .alpha = 0.3f, .beta = 0.5f},
        ResponseNormalization{.channels = 1, .radius = 0, .bias = 1, .alpha = 1, .beta = 1}}) {
    const std::int64_t batch = 2, columns = 3 * norm.channels;
    auto x = samples<double>("x", batch * columns), y = zeros(batch * columns);
    const auto weight = samples<double>("weight", batch * columns);
    const auto f = [&] {
      images.response_normalization_forward(norm, view(x, batch, columns), view(y, batch, columns));
      return weighted(weight, y);
    };
    f();
    double sum = 0;  // over the channels around the first one
    for (std::int64_t j = 0; j < std::min(norm.channels, norm.radius + 1); ++j)
      sum += std::pow(x[static_cast<std::size_t>(j)], 2);
    EXPECT_NEAR(y[0], x[0] * std::pow(norm.bias + norm.alpha * sum, -norm.beta), 1e-12);
    std::vector<double> d_y = weight, d_x(x.size(), 9.0);
    images.response_normalization_backward(norm, view(x, batch, columns), view(y, batch, columns),
                                           view(d_y, batch, columns), view(d_x, batch, columns));
    expect_gradient(x, d_x, f, "x");
    f();
    images.response_normalization_backward(norm, view(x, batch, columns), view(y, batch, columns),
                                           view(d_y, batch, columns), view(d_y, batch, columns));
    EXPECT_EQ(d_y, d_x) << "in place";
  }
}

TEST(ReferenceSubsample, TakesEveryPixelAndAddsItsGradient) {
  ReferenceImages images;
  for (const auto& [in, channels, stride, batch] :
       {std::tuple{ImageShape{5, 4, 2}, 6, 2, 2}, std::tuple{ImageShape{3, 3, 3}, 3, 1, 1},
        std::tuple{ImageShape{7, 7, 1}, 3, 3, 2}, std::tuple{ImageShape{7, 7, 1}, 3, 3, 0}}) {
    const ImageShape out{(in.height + stride - 1) / stride, (in.width + stride - 1) / stride, channels};
    auto x = samples<double>("x", batch * in.elements());
    auto y = samples<double>("before", batch * out.elements());
    const auto weight = samples<double>("weight", batch * out.elements());
    const auto f = [&] {
      images.subsample_forward(in, out, stride, view(x, batch, in.elements()), view(y, batch, out.elements()));
      return weighted(weight, y);
    };
    f();
    if (batch > 0) {
      const std::size_t second = static_cast<std::size_t>(out.channels);  // pixel (0, 1)
      const auto before = static_cast<std::size_t>((out.channels - in.channels) / 2);
      EXPECT_EQ(y[second + before], x[static_cast<std::size_t>(stride * in.channels)]);
      if (before > 0) {
        EXPECT_EQ(y[second], 0);
        EXPECT_EQ(y[second + static_cast<std::size_t>(out.channels) - 1], 0);
      }
    }
    std::vector<double> d_y = weight, d_x(x.size(), 9.0);
    images.subsample_backward(in, out, stride, view(d_y, batch, out.elements()), view(d_x, batch, in.elements()));
    for (double& d : d_x) d -= 9;
    expect_gradient(x, d_x, f, "x");
  }
}

/// All operands and results of one batch norm.
struct NormRun {
  BatchNorm norm;
  std::int64_t rows, columns;
  bool with_residual;
  std::vector<double> x = samples<double>("x", rows*columns, 2), residual = samples<double>("r", rows*columns);
  std::vector<double> scale = samples<double>("scale", norm.channels), shift = samples<double>("s", norm.channels);
  std::vector<double> sums = zeros(2 * norm.channels + 1), mean = zeros(norm.channels), inverse = zeros(norm.channels);
  std::vector<double> y = zeros(rows * columns);

  Tensor matrix(std::vector<double>& of) const { return view(of, rows, columns); }
  Tensor vector(std::vector<double>& of) const { return view(of, 1, static_cast<std::int64_t>(of.size())); }
  void forward(ReferenceImages& images) {
    images.batch_norm_sums(norm, matrix(x), vector(sums));
    images.batch_norm_forward(norm, {.x = matrix(x),
                                     .sums = vector(sums),
                                     .scale = vector(scale),
                                     .shift = vector(shift),
                                     .residual = with_residual ? matrix(residual) : Tensor{},
                                     .mean = vector(mean),
                                     .inverse = vector(inverse),
                                     .y = matrix(y)});
  }
};

TEST(ReferenceBatchNorm, GradientsMatchFiniteDifferences) {
  ReferenceImages images;
  for (const auto& [rows, pixels, channels, relu, with_residual] :
       {std::tuple{3, 4, 2, false, false}, std::tuple{2, 3, 3, true, false}, std::tuple{4, 1, 2, true, true},
        std::tuple{1, 6, 1, false, true}, std::tuple{0, 6, 2, true, true}}) {
    NormRun run{.norm = {.channels = channels, .epsilon = 1e-3f, .relu = relu},
                .rows = rows,
                .columns = pixels * channels,
                .with_residual = with_residual};
    const auto weight = samples<double>("weight", rows * run.columns);
    const auto f = [&] {
      run.forward(images);
      return weighted(weight, run.y);
    };
    f();
    std::vector<double> d_y = weight, d_x(run.x.size(), 9.0), d_scale(run.scale.size(), 9.0), d_shift(d_scale);
    std::vector<double> sums(2 * run.scale.size(), 9.0);
    const auto backward = [&](Accumulate accumulate) {
      d_y = weight;
      images.batch_norm_backward_sums(run.norm,
                                      {.x = run.matrix(run.x),
                                       .y = run.matrix(run.y),
                                       .d_y = run.matrix(d_y),
                                       .mean = run.vector(run.mean),
                                       .inverse = run.vector(run.inverse),
                                       .d_scale = run.vector(d_scale),
                                       .d_shift = run.vector(d_shift),
                                       .sums = run.vector(sums)},
                                      accumulate);
      images.batch_norm_backward(run.norm, {.x = run.matrix(run.x),
                                            .d_y = run.matrix(d_y),
                                            .mean = run.vector(run.mean),
                                            .inverse = run.vector(run.inverse),
                                            .scale = run.vector(run.scale),
                                            .forward_sums = run.vector(run.sums),
                                            .sums = run.vector(sums),
                                            .d_x = run.matrix(d_x)});
    };
    backward(Accumulate::no);
    const auto d_scale_once = d_scale, d_shift_once = d_shift;
    backward(Accumulate::yes);
    for (std::size_t c = 0; c < d_scale.size(); ++c) {
      EXPECT_NEAR(d_scale[c], 2 * d_scale_once[c], 1e-12);
      EXPECT_NEAR(d_shift[c], 2 * d_shift_once[c], 1e-12);
    }
    expect_gradient(run.x, d_x, f, "x");
    expect_gradient(run.scale, d_scale_once, f, "scale");
    expect_gradient(run.shift, d_shift_once, f, "shift");
    if (with_residual) expect_gradient(run.residual, d_y, f, "residual");
    for (const double value : run.mean) EXPECT_TRUE(std::isfinite(value));
    // In place, and without parameter gradients.
    f();
    auto in_place = d_y;
    images.batch_norm_backward(run.norm, {.x = run.matrix(run.x),
                                          .d_y = run.matrix(in_place),
                                          .mean = run.vector(run.mean),
                                          .inverse = run.vector(run.inverse),
                                          .scale = run.vector(run.scale),
                                          .forward_sums = run.vector(run.sums),
                                          .sums = run.vector(sums),
                                          .d_x = run.matrix(in_place)});
    EXPECT_EQ(in_place, d_x);
  }
}

TEST(ReferenceBatchNorm, SumsOfPartsMakeTheWhole) {
  ReferenceImages images;
  NormRun run{.norm = {.channels = 3}, .rows = 5, .columns = 6, .with_residual = false};
  run.forward(images);
  std::vector<double> part(7), total(7);
  for (const auto& [first, count] : {std::pair{0, 2}, std::pair{2, 0}, std::pair{2, 3}}) {
    const Tensor rows{run.x.data() + first * 6, ElementType::float64, count, 6};
    images.batch_norm_sums(run.norm, rows, view(part, 1, 7));
    for (std::size_t i = 0; i < part.size(); ++i) total[i] += part[i];
  }
  for (std::size_t i = 0; i < total.size(); ++i) EXPECT_NEAR(total[i], run.sums[i], 1e-12) << i;
  EXPECT_EQ(run.sums[6], 10);
}

TEST(ReferenceBatchNorm, StatisticsAndInferenceAreThoseOfTheFormula) {
  ReferenceImages images;
  NormRun run{.norm = {.channels = 2, .relu = true}, .rows = 3, .columns = 4, .with_residual = true};
  run.forward(images);
  double mean = 0, variance = 0;  // channel 1: six values
  for (std::size_t i = 1; i < 12; i += 2) mean += run.x[i] / 6;
  for (std::size_t i = 1; i < 12; i += 2) variance += std::pow(run.x[i] - mean, 2) / 6;
  EXPECT_NEAR(run.mean[1], mean, 1e-14);
  EXPECT_NEAR(run.inverse[1], 1 / std::sqrt(variance + static_cast<double>(1e-5f)), 1e-10);
  std::vector<double> d_mean(2, 9.0), d_variance(2, 9.0);
  images.batch_norm_statistics(run.norm, run.vector(run.sums), 0.25, Accumulate::no, run.vector(d_mean),
                               run.vector(d_variance));
  EXPECT_NEAR(d_mean[1], 0.25 * mean, 1e-14);
  EXPECT_NEAR(d_variance[1], 0.25 * variance * 6 / 5, 1e-12);
  images.batch_norm_statistics(run.norm, run.vector(run.sums), 0.5, Accumulate::yes, run.vector(d_mean),
                               run.vector(d_variance));
  EXPECT_NEAR(d_mean[1], 0.75 * mean, 1e-14);
  EXPECT_NEAR(d_variance[1], 0.75 * variance * 6 / 5, 1e-12);

  // With the batch's own (biased) statistics, inference gives the same as training.
  std::vector<double> batch_variance(2), y(run.y.size());
  for (std::size_t c = 0; c < 2; ++c) batch_variance[c] = 1 / std::pow(run.inverse[c], 2) - static_cast<double>(1e-5f);
  images.batch_norm_inference(run.norm, {.x = run.matrix(run.x),
                                         .mean = run.vector(run.mean),
                                         .variance = run.vector(batch_variance),
                                         .scale = run.vector(run.scale),
                                         .shift = run.vector(run.shift),
                                         .residual = run.matrix(run.residual),
                                         .y = run.matrix(y)});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], run.y[i], 1e-12);
  EXPECT_GT(std::ranges::count(y, 0.0), 0) << "the relu has nothing to do";
}

TEST(ReferenceBatchNorm, ConstantsAndNothingGiveNumbersButNanStays) {
  ReferenceImages images;
  NormRun run{.norm = {.channels = 1}, .rows = 3, .columns = 2, .with_residual = false};
  std::ranges::fill(run.x, 0.1);
  run.forward(images);
  for (const double y : run.y) EXPECT_NEAR(y, run.shift[0], 1e-9);
  run.x[3] = kNan;
  run.forward(images);
  for (const double y : run.y) EXPECT_TRUE(std::isnan(y));
}

}  // namespace
}  // namespace lockstep::model
