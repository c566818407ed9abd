#include "io/formats/image_scale.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::io {
namespace {

constexpr double kSupport = 2;

double cubic(double x) noexcept {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < kSupport) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Makes one output pixel along one axis: weights of the input pixels from `first` on.
struct Tap {
  std::int64_t first = 0;
  std::vector<float> weights;
};

std::vector<Tap> taps(double begin, double extent, std::int64_t in, std::int64_t out) {
  std::vector<Tap> result;
  const double step = extent / static_cast<double>(out);
  const double reach = std::max(1.0, step);
  for (std::int64_t i = 0; i < out; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const auto low = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(centre - kSupport * reach)));
    const auto high = std::min<std::int64_t>(in, static_cast<std::int64_t>(std::ceil(centre + kSupport * reach)));
    Tap tap{.first = low, .weights = {}};
    double sum = 0;
    for (std::int64_t p = low; p < high; ++p) {
      const double weight = cubic((static_cast<double>(p) + 0.5 - centre) / reach);
      tap.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : tap.weights) weight = static_cast<float>(weight / sum);
    result.push_back(std::move(tap));
  }
  return result;
}

/// Scales rows first, then columns.
template <class Pixel>
std::vector<Pixel> scaled(const std::vector<Pixel>& pixels, std::int64_t in_width, const std::vector<Tap>& columns,
                          const std::vector<Tap>& rows) {
  constexpr auto kMax = static_cast<float>(std::numeric_limits<Pixel>::max());
  const std::int64_t first_row = rows.front().first;
  const std::int64_t end_row = rows.back().first + static_cast<std::int64_t>(rows.back().weights.size());

  const std::size_t out_row = columns.size() * 3;
  std::vector<float> narrowed(static_cast<std::size_t>(end_row - first_row) * out_row);
  for (std::int64_t y = first_row; y < end_row; ++y) {
    const Pixel* in = pixels.data() + static_cast<std::size_t>(y * in_width) * 3;
    float* out = narrowed.data() + static_cast<std::size_t>(y - first_row) * out_row;
    for (const Tap& tap : columns) {
      const Pixel* pixel = in + tap.first * 3;
      float red = 0, green = 0, blue = 0;
      for (const float weight : tap.weights) {
        red += weight * static_cast<float>(pixel[0]);
        green += weight * static_cast<float>(pixel[1]);
        blue += weight * static_cast<float>(pixel[2]);
        pixel += 3;
      }
      *out++ = red;
      *out++ = green;
      *out++ = blue;
    }
  }

  std::vector<Pixel> result;
  result.reserve(rows.size() * out_row);
  std::vector<float> sum(out_row);
  for (const Tap& tap : rows) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    const float* in = narrowed.data() + static_cast<std::size_t>(tap.first - first_row) * out_row;
    for (const float weight : tap.weights) {
      for (std::size_t i = 0; i < out_row; ++i) sum[i] += weight * in[i];
      in += out_row;
    }
    for (const float value : sum) result.push_back(static_cast<Pixel>(std::lround(std::clamp(value, 0.0F, kMax))));
  }
  return result;
}

}  // namespace

ImageRegion centre_region(const Image& image, std::int64_t height, std::int64_t width) noexcept {
  const auto in_height = static_cast<double>(image.height);
  const auto in_width = static_cast<double>(image.width);
  const double step = std::min(in_height / static_cast<double>(height), in_width / static_cast<double>(width));
  ImageRegion region{.height = step * static_cast<double>(height), .width = step * static_cast<double>(width)};
  region.top = (in_height - region.height) / 2;
  region.left = (in_width - region.width) / 2;
  return region;
}

Image scale(const Image& image, const ImageRegion& region, std::int64_t height, std::int64_t width) {
  const std::vector<Tap> columns = taps(region.left, region.width, image.width, width);
  const std::vector<Tap> rows = taps(region.top, region.height, image.height, height);
  Image result{.height = height, .width = width};
  if (image.is_deep()) {
    result.deep = scaled(image.deep, image.width, columns, rows);
  } else {
    result.pixels = scaled(image.pixels, image.width, columns, rows);
  }
  return result;
}

}  // namespace lockstep::io
