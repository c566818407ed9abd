// Compares gradients of filters by AMX with their emulation, bit for bit. cpu_images_test.cpp compares both with
// float64.
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "model/cpu/bf16/filters.hpp"
#include "model/cpu/bf16/kernels.hpp"
#include "sample_data.hpp"
#include "window_shapes.hpp"

namespace lockstep::model {
namespace {

/// Returns the bits of the sums of all parts.
std::vector<std::uint32_t> sums_of(const Convolution& shape, Bf16Unit unit, std::int64_t images, double scale) {
  const auto x = test::samples<float>("x", images * shape.in.elements(), scale),
             d_y = test::samples<float>("d_y", images * shape.out.elements(), scale);
  const cpu::FilterGradient gradient(shape, unit);
  cpu::FilterScratch scratch;
  std::vector<float> sums(gradient.sums());
  std::vector<std::uint32_t> all;
  for (std::size_t part = 0; part < gradient.parts(static_cast<std::size_t>(images)); ++part) {
    gradient.run(host_tensor(x.data(), images, shape.in.elements()),
                 host_tensor(d_y.data(), images, shape.out.elements()), part, sums, scratch);
    for (const float sum : sums) all.push_back(std::bit_cast<std::uint32_t>(sum));
  }
  return all;
}

TEST(Bf16Filters, OfTheProcessorHaveTheBitsOfTheirEmulation) {
  if (!cpu::has_bf16_kernels(Bf16Unit::amx)) GTEST_SKIP() << "not run: this processor has no AMX";
  const auto images = [](const ImageShape& in, const Sliding& window, std::int64_t channels) {
    return Convolution{.in = in, .out = slide(in, window, channels), .window = window};
  };
  std::vector<Convolution> shapes = {
      images({6, 6, 3}, even_padding(5, 1, 2), 64),     // positions of a filter's row are folded
      images({12, 12, 40}, even_padding(5, 1, 2), 48),  // partial tiles, in pairs and single
      images({32, 32, 16}, even_padding(3, 1, 1), 16),  // many strips
      images({9, 7, 17}, even_padding(3, 2, 1), 33),    // a grid for each remainder
      images({7, 9, 1}, even_padding(3, 2, 1), 1),
  };
  for (const Convolution& shape : test::convolutions_of_any_windows()) {
    if (shape.groups == 1) shapes.push_back(shape);
  }
  for (const Convolution& shape : shapes) {
    for (const auto& [batch, scale] :
         {std::pair{std::int64_t{1}, 1e-19}, {std::int64_t{1}, 1e19}, {std::int64_t{5}, 1.0}}) {
      ASSERT_EQ(sums_of(shape, Bf16Unit::amx, batch, scale), sums_of(shape, Bf16Unit::emulated_amx, batch, scale))
          << to_string(shape) << ", batch " << batch << ", scale " << scale;
    }
  }
}

}  // namespace
}  // namespace lockstep::model
