// Compares every kernel of model/cuda/kernels/image_kernels.hpp on the host (support/cuda_on_cpu.hpp) with the float64
// operations of tests/model/reference/: odd shapes, empty batches, unaligned tensors, guards around each, three orders
// of threads with the same bits.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/convolution_by_gemm.hpp"
#include "model/cuda/kernels/image_kernels.hpp"
#include "model/kernel_harness.hpp"
#include "model/plain_product.hpp"
#include "model/reference/reference_images.hpp"
#include "model/window_shapes.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the harness of these tests
using Doubles = std::vector<double>;

/// Returns the values that Tensors::add_filled() writes to a tensor of this name.
Doubles filled(const std::string& name, ElementType type, std::int64_t rows, std::int64_t columns, double scale = 1) {
  Tensors tensors(0);
  return tensors.add_filled(name, type, rows, columns, scale).values();
}
Doubles zeros(std::int64_t count) { return Doubles(static_cast<std::size_t>(count)); }
Tensor doubles(Doubles& values, std::int64_t rows, std::int64_t columns) {
  return model::test::view(values, rows, columns);
}

// ---- convolutions ----

Convolution convolution(const ImageShape& in, const Sliding& window, std::int64_t channels) {
  return {in, slide(in, window, channels), window};
}

std::vector<Convolution> convolutions() {
  std::vector<Convolution> all{
      convolution({5, 7, 3}, same_padding({5, 7, 3}, 3, 1), 4),
      convolution({6, 6, 8}, same_padding({6, 6, 8}, 3, 2), 8),
      convolution({7, 5, 16}, even_padding(1, 2, 0), 5),
      convolution({4, 3, 8}, even_padding(1, 1, 0), 8),
      convolution({9, 8, 3}, even_padding(7, 2, 3), 5),
      convolution({3, 400, 3}, even_padding(7, 2, 3), 2),            // rows of several segments
      convolution({450, 2, 3}, same_padding({450, 2, 3}, 3, 1), 2),  // blocks of several segments
      convolution({5, 5, 4}, even_padding(2, 3, 0), 3),              // some pixels are in no window
      convolution({3, 4, 8}, even_padding(5, 1, 4), 2),              // and some windows in no image
      convolution({4, 6, 40},
                  {.height = {.size = 2, .stride = 2, .after = 1}, .width = {.size = 3, .stride = 2, .before = 2}}, 1)};
  for (const Convolution& shape : model::test::convolutions_of_any_windows()) {
    if (shape.groups == 1) all.push_back(shape);
  }
  return all;
}

std::string name_of_shape(const Convolution& shape, ElementType type, std::int64_t batch, std::size_t shift) {
  return fmt::format("{} images [{}, {}, {}], window {} x {} by {}, {} channels, {}, shifted by {}", batch,
                     shape.in.height, shape.in.width, shape.in.channels, shape.window.height.size,
                     shape.window.width.size, shape.window.height.stride, shape.out.channels, name_of(type), shift);
}

/// Calls `with` for each shape, type, batch and alignment.
template <class With>
void for_each_convolution(const With& with) {
  for (const Convolution& shape : convolutions()) {
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 0}, {3, 1}, {5, 0}}) {
        with(shape, type, batch, shift, name_of_shape(shape, type, batch, shift));
      }
    }
  }
}

/// Returns the workspace for the patches of two images, so that larger batches need several tiles.
std::size_t two_images(const Convolution& shape, ElementType type) {
  return static_cast<std::size_t>(2 * shape.out.pixels() * patch_columns(shape, type)) * size_of(type);
}
void* workspace_for(Tensors& t, const Convolution& shape, ElementType type, std::int64_t batch) {
  const std::size_t bytes = patch_bytes(shape, type, batch, two_images(shape, type));
  return t.add("workspace", type, 1, static_cast<std::int64_t>(bytes / size_of(type))).tensor().data;
}

TEST(ConvolutionByProducts, ForwardMatchesFloat64) {
  for_each_convolution(
      [](const Convolution& shape, ElementType type, std::int64_t batch, std::size_t shift, const std::string& what) {
        const std::int64_t inputs = shape.in.elements(), outputs = shape.out.elements();
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor x = t.add_filled("x", type, batch, inputs).tensor();
              const Tensor w = t.add_filled("w", type, shape.patch(), shape.out.channels).tensor();
              convolution_by_gemm(
                  nullptr, shape, x, w, t.add("y", type, batch, outputs).tensor(), workspace_for(t, shape, type, batch),
                  [](const Tensor& a, const Tensor& b, const Tensor& out) {
                    if (out.count() > 0) plain_product(a, false, b, false, Accumulate::no, out);
                  },
                  two_images(shape, type));
            },
            [&](Tensors& t) {
              Doubles x = filled("x", type, batch, inputs), w = filled("w", type, shape.patch(), shape.out.channels);
              Doubles y = zeros(batch * outputs);
              ReferenceImages().convolution_forward(shape, doubles(x, batch, inputs),
                                                    doubles(w, shape.patch(), shape.out.channels), {}, Activation::none,
                                                    doubles(y, batch, outputs));
              expect_close(t["y"].values(), y, tolerance(type), what);
            },
            batch == 3 ? 3 : 1);
      });
}

TEST(ConvolutionByProducts, BackwardMatchesFloat64) {
  for_each_convolution(
      [](const Convolution& shape, ElementType type, std::int64_t batch, std::size_t shift, const std::string& what) {
        const std::int64_t inputs = shape.in.elements(), outputs = shape.out.elements(), filters = shape.out.channels;
        const Accumulate accumulate = batch % 2 == 0 ? Accumulate::no : Accumulate::yes;
        if (batch == 0) return;  // the caller clears
        in_every_order(
            shift,
            [&](Tensors& t) {
              const std::size_t most = two_images(shape, type);
              void* const workspace = workspace_for(t, shape, type, batch);
              const Tensor x = t.add_filled("x", type, batch, inputs).tensor();
              const Tensor w = t.add_filled("w", type, shape.patch(), filters).tensor();
              const Tensor d_y = t.add_filled("d_y", type, batch, outputs).tensor();
              const Tensor d_w = t.add_filled("d_w", ElementType::float32, shape.patch(), filters).tensor();
              filter_gradient_by_gemm(
                  nullptr, shape, x, d_y, accumulate, d_w, workspace,
                  [](const Tensor& a, const Tensor& b, Accumulate add, const Tensor& out) {
                    plain_product(a, true, b, false, add, out);
                  },
                  most);
              image_gradient_by_gemm(
                  nullptr, shape, w, d_y, t.add("d_x", type, batch, inputs).tensor(), workspace,
                  [](const Tensor& a, const Tensor& b, const Tensor& out) {
                    plain_product(a, false, b, true, Accumulate::no, out);
                  },
                  most);
            },
            [&](Tensors& t) {
              Doubles x = filled("x", type, batch, inputs), w = filled("w", type, shape.patch(), filters);
              Doubles d_y = filled("d_y", type, batch, outputs), d_x = zeros(batch * inputs);
              Doubles d_w = filled("d_w", ElementType::float32, shape.patch(), filters);
              ReferenceImages().convolution_backward(shape,
                                                     {.x = doubles(x, batch, inputs),
                                                      .w = doubles(w, shape.patch(), filters),
                                                      .d_y = doubles(d_y, batch, outputs),
                                                      .d_w = doubles(d_w, shape.patch(), filters),
                                                      .d_x = doubles(d_x, batch, inputs)},
                                                     Activation::none, accumulate);
              expect_close(t["d_w"].values(), d_w, 1e-5, "d_w of " + what);
              expect_close(t["d_x"].values(), d_x, tolerance(type), "d_x of " + what);
            },
            batch == 3 ? 3 : 1);
      });
}

TEST(ConvolutionByProducts, KeepsWithinItsWorkspace) {
  const Convolution shape = convolution({56, 56, 64}, same_padding({56, 56, 64}, 3, 1), 64);
  const std::size_t of_image = 56 * 56 * 9 * 64 * 2;
  EXPECT_EQ(images_of_tile(shape, ElementType::bfloat16, 256, kMaxPatchBytes),
            static_cast<std::int64_t>(kMaxPatchBytes / of_image));
  EXPECT_LE(patch_bytes(shape, ElementType::bfloat16, 256), kMaxPatchBytes);
  EXPECT_EQ(patch_bytes(shape, ElementType::bfloat16, 2), 2 * of_image);
  EXPECT_EQ(patch_bytes(shape, ElementType::bfloat16, 0), 0u);
  EXPECT_EQ(patch_bytes(shape, ElementType::bfloat16, 256, 1), of_image) << "one image at least";
  EXPECT_EQ(patch_bytes(convolution({56, 56, 64}, even_padding(1, 1, 0), 64), ElementType::float32, 8), 0u);
}

TEST(Transpose, WritesAndAdds) {
  for (const ElementType type : kTypes) {
    auto all = shapes();
    all.emplace_back(4200, 5);  // a block takes several tiles
    for (const auto& [rows, columns] : all) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        in_every_order(
            static_cast<std::size_t>(rows % 2),
            [&](Tensors& t) {
              const Tensor in = t.add_filled("in", type, rows, columns).tensor();
              const ElementType to = columns % 2 == 0 ? type : ElementType::float32;
              transpose(nullptr, in, accumulate, t.add_filled("out", to, columns, rows).tensor());
            },
            [&](Tensors& t) {
              const Doubles before = filled("out", t["out"].tensor().type, columns, rows);
              Doubles expected = zeros(rows * columns);
              for (std::size_t i = 0; i < expected.size(); ++i) {
                const auto row = i / static_cast<std::size_t>(rows), column = i % static_cast<std::size_t>(rows);
                expected[i] = t["in"].get(column * static_cast<std::size_t>(columns) + row) +
                              (accumulate == Accumulate::yes ? before[i] : 0);
              }
              expect_close(t["out"].values(), expected, accumulate == Accumulate::yes ? tolerance(type) : 0,
                           fmt::format("[{}, {}]", rows, columns));
            },
            rows * columns < 10000 ? 3 : 1);
      }
    }
  }
}

// ---- pools ----

std::vector<Pool> pools() {
  std::vector<Pool> all;
  const auto add = [&](const ImageShape& in, const Sliding& window) {
    all.push_back({in, slide(in, window, in.channels), window});
  };
  add({6, 6, 8}, even_padding(2, 2, 0));
  add({7, 5, 3}, same_padding({7, 5, 3}, 3, 2));
  add({9, 7, 16}, even_padding(3, 2, 1));
  add({8, 6, 8}, same_padding({8, 6, 8}, 3, 2));  // padding only below and on the right
  add({6, 5, 8}, even_padding(3, 1, 1));
  add({5, 6, 40}, even_padding(2, 3, 0));
  add({4, 4, 1}, even_padding(4, 1, 0));
  add({20, 17, 4}, even_padding(16, 1, 3));
  for (const Pool& shape : model::test::pools_of_any_windows()) all.push_back(shape);
  return all;
}

/// Few distinct values: ties.
void fill_coarsely(GuardedTensor& tensor, const std::string& name) {
  for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, std::round(4 * sample(name, i)) / 4);
}

TEST(MaxPool, MatchesFloat64) {
  for (const Pool& shape : pools()) {
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {3, 0}}) {
        const std::string what = fmt::format("window {} by {}, {} channels, {}, {} images", shape.window.height.size,
                                             shape.window.height.stride, shape.in.channels, name_of(type), batch);
        Doubles x;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& in = t.add("x", type, batch, shape.in.elements());
              fill_coarsely(in, "x");
              if (in.count() > 5) {
                in.set(5, kNan);
                in.set(2, -kInfinity);
                in.set(in.count() - 1, kInfinity);
              }
              x = in.values();
              const Tensor y = t.add("y", type, batch, shape.out.elements()).tensor();
              const Tensor chosen = t.add("chosen", ElementType::uint8, batch, shape.out.elements()).tensor();
              max_pool_forward(nullptr, shape, in.tensor(), y, chosen);
              const Tensor d_y = t.add_filled("d_y", type, batch, shape.out.elements()).tensor();
              max_pool_backward(nullptr, shape, chosen, d_y, t.add("d_x", type, batch, shape.in.elements()).tensor());
            },
            [&](Tensors& t) {
              Doubles y = zeros(batch * shape.out.elements()), d_x = zeros(batch * shape.in.elements());
              Doubles d_y = filled("d_y", type, batch, shape.out.elements());
              std::vector<std::uint8_t> chosen(y.size());
              ReferenceImages reference;
              reference.max_pool_forward(shape, doubles(x, batch, shape.in.elements()),
                                         doubles(y, batch, shape.out.elements()),
                                         model::test::view(chosen, batch, shape.out.elements()));
              for (std::size_t i = 0; i < y.size(); ++i) {
                ASSERT_EQ(t["chosen"].get(i), chosen[i]) << what << " at " << i;
                if (std::isnan(y[i])) {
                  ASSERT_TRUE(std::isnan(t["y"].get(i))) << what;
                } else {
                  ASSERT_EQ(t["y"].get(i), y[i]) << what << " at " << i;
                }
              }
              reference.max_pool_backward(shape, model::test::view(chosen, batch, shape.out.elements()),
                                          doubles(d_y, batch, shape.out.elements()),
                                          doubles(d_x, batch, shape.in.elements()));
              expect_close(t["d_x"].values(), d_x, tolerance(type), what);
            },
            shape.window.height.size == 16 ? 1 : 3);
      }
    }
  }
}

/// Requires equal bits, except of NaN.
void expect_same(const Doubles& got, const Doubles& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << what << " at " << i;
    } else {
      ASSERT_EQ(got[i], expected[i]) << what << " at " << i;
      ASSERT_EQ(std::signbit(got[i]), std::signbit(expected[i])) << what << " at " << i;
    }
  }
}

// Values have both signs of zero as maxima, other ties, two NaNs in one channel, and a channel of -infinity.
TEST(GlobalMax, TakesTheFirstOfEqualPixels) {
  for (const ImageShape& in : {ImageShape{1, 125, 64}, ImageShape{7, 7, 16}, ImageShape{3, 5, 3}, ImageShape{1, 1, 40},
                               ImageShape{8, 8, 65}, ImageShape{2, 3, 520}, ImageShape{40, 33, 1}}) {
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {3, 0}}) {
        const std::string what = fmt::format("{} x {} pixels, {} channels, {}, {} images", in.height, in.width,
                                             in.channels, name_of(type), batch);
        Doubles x;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& images = t.add("x", type, batch, in.elements());
              fill_coarsely(images, "x");
              const auto channels = static_cast<std::size_t>(in.channels);
              for (std::size_t i = 0; i < images.count(); ++i) {
                if (i % channels % 2 == 0) images.set(i, std::min(images.get(i), i % 3 == 0 ? 0.0 : -0.0));
                if (i % channels == channels - 1) images.set(i, -kInfinity);
              }
              if (images.count() > 4 * channels && channels > 2) {
                images.set(2 * channels + 1, kNan);
                images.set(4 * channels + 1, kNan);
              }
              x = images.values();
              const Tensor y = t.add("y", type, batch, in.channels).tensor();
              global_max_forward(nullptr, in, images.tensor(), y);
              const Tensor d_y = t.add_filled("d_y", type, batch, in.channels).tensor();
              global_max_backward(nullptr, in, images.tensor(), y, d_y,
                                  t.add("d_x", type, batch, in.elements()).tensor());
            },
            [&](Tensors& t) {
              Doubles y = zeros(batch * in.channels), d_x = zeros(batch * in.elements());
              Doubles d_y = filled("d_y", type, batch, in.channels);
              ReferenceImages reference;
              const Tensor images = doubles(x, batch, in.elements()), greatest = doubles(y, batch, in.channels);
              reference.global_max_forward(in, images, greatest);
              expect_same(t["y"].values(), y, "y of " + what);
              reference.global_max_backward(in, images, greatest, doubles(d_y, batch, in.channels),
                                            doubles(d_x, batch, in.elements()));
              expect_same(t["d_x"].values(), d_x, "d_x of " + what);
            });
      }
    }
  }
}

TEST(GlobalAverage, MatchesFloat64) {
  for (const ImageShape& in : {ImageShape{7, 7, 16}, ImageShape{3, 5, 3}, ImageShape{1, 1, 40}, ImageShape{8, 8, 65}}) {
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {5, 0}}) {
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor x = t.add_filled("x", type, batch, in.elements()).tensor();
              global_average_forward(nullptr, in, x, t.add("y", type, batch, in.channels).tensor());
              const Tensor d_y = t.add_filled("d_y", type, batch, in.channels).tensor();
              global_average_backward(nullptr, in, d_y, t.add("d_x", type, batch, in.elements()).tensor());
            },
            [&](Tensors& t) {
              Doubles x = filled("x", type, batch, in.elements()), y = zeros(batch * in.channels);
              Doubles d_y = filled("d_y", type, batch, in.channels), d_x = zeros(batch * in.elements());
              ReferenceImages reference;
              reference.global_average_forward(in, doubles(x, batch, in.elements()), doubles(y, batch, in.channels));
              reference.global_average_backward(in, doubles(d_y, batch, in.channels),
                                                doubles(d_x, batch, in.elements()));
              expect_close(t["y"].values(), y, tolerance(type), "y");
              expect_close(t["d_x"].values(), d_x, tolerance(type), "d_x");
            });
      }
    }
  }
}

TEST(Subsample, MatchesFloat64AndAddsBackward) {
  struct Subsampled {
    ImageShape in, out;
    std::int64_t stride;
  };
  for (const Subsampled& c : {Subsampled{{8, 6, 16}, {4, 3, 32}, 2}, Subsampled{{7, 5, 3}, {3, 2, 9}, 3},
                              Subsampled{{7, 5, 8}, {4, 3, 12}, 2}, Subsampled{{4, 4, 8}, {4, 4, 8}, 1}}) {
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {3, 0}}) {
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor x = t.add_filled("x", type, batch, c.in.elements()).tensor();
              subsample_forward(nullptr, c.in, c.out, c.stride, x, t.add("y", type, batch, c.out.elements()).tensor());
              const Tensor d_y = t.add_filled("d_y", type, batch, c.out.elements()).tensor();
              subsample_backward(nullptr, c.in, c.out, c.stride, d_y,
                                 t.add_filled("d_x", type, batch, c.in.elements()).tensor());
            },
            [&](Tensors& t) {
              Doubles x = filled("x", type, batch, c.in.elements()), y = zeros(batch * c.out.elements());
              Doubles d_y = filled("d_y", type, batch, c.out.elements());
              Doubles d_x = filled("d_x", type, batch, c.in.elements());
              ReferenceImages reference;
              reference.subsample_forward(c.in, c.out, c.stride, doubles(x, batch, c.in.elements()),
                                          doubles(y, batch, c.out.elements()));
              reference.subsample_backward(c.in, c.out, c.stride, doubles(d_y, batch, c.out.elements()),
                                           doubles(d_x, batch, c.in.elements()));
              EXPECT_EQ(t["y"].values(), y);
              expect_close(t["d_x"].values(), d_x, tolerance(type), "d_x");
            });
      }
    }
  }
}

// ---- response normalisation ----

TEST(ResponseNormalization, MatchesFloat64AlsoInPlace) {
  for (const auto& [channels, radius] : {std::pair{16, 4}, std::pair{3, 5}, std::pair{1, 0}, std::pair{300, 2}}) {
    const ResponseNormalization norm{
        .channels = channels, .radius = radius, .bias = 1.5f, .alpha = 0.3f, .beta = 0.75f};
    for (const ElementType type : kTypes) {
      for (const auto& [batch, shift] : {std::pair<std::int64_t, std::size_t>{0, 0}, {1, 1}, {3, 0}}) {
        for (const bool in_place : {false, true}) {
          const std::int64_t columns = 7 * channels;
          in_every_order(
              shift,
              [&](Tensors& t) {
                const Tensor x = t.add_filled("x", type, batch, columns, 2).tensor();
                const Tensor y = t.add("y", type, batch, columns).tensor();
                response_normalization_forward(nullptr, norm, x, y);
                const Tensor d_y = t.add_filled("d_y", type, batch, columns).tensor();
                response_normalization_backward(nullptr, norm, x, y, d_y,
                                                in_place ? d_y : t.add("d_x", type, batch, columns).tensor());
              },
              [&](Tensors& t) {
                Doubles x = filled("x", type, batch, columns, 2), y = zeros(batch * columns);
                Doubles d_y = filled("d_y", type, batch, columns), d_x = zeros(batch * columns);
                ReferenceImages reference;
                reference.response_normalization_forward(norm, doubles(x, batch, columns), doubles(y, batch, columns));
                expect_close(t["y"].values(), y, tolerance(type), "y");
                reference.response_normalization_backward(norm, doubles(x, batch, columns), doubles(y, batch, columns),
                                                          doubles(d_y, batch, columns), doubles(d_x, batch, columns));
                expect_close(t[in_place ? "d_y" : "d_x"].values(), d_x, tolerance(type), "d_x");
              });
        }
      }
    }
  }
}

TEST(ResponseNormalization, RefusesMoreChannelsThanABlockHolds) {
  GuardedTensor x(ElementType::float32, 1, 7000);
  EXPECT_THROW(
      response_normalization_backward(nullptr, {.channels = 7000}, x.tensor(), x.tensor(), x.tensor(), x.tensor()),
      std::invalid_argument);
}

// ---- augmentation ----

std::vector<Augmentation> augmentations() {
  const ImageShape in{9, 11, 3}, out{8, 7, 3};
  return {
      {.in = in, .out = in, .scale = {0.5f, 2, 3, 1}, .shift = {1, 0, -1, 0}},
      {.in = in, .out = out, .pad = 2, .flip = true},
      {.in = in, .out = out, .flip = true, .minimum_area = 0.1f, .scale = {0.1f, 0.2f, 0.3f, 0}},
      {.in = in,
       .out = out,
       .pad = 1,
       .flip = true,
       .brightness = 63,
       .contrast_low = 0.2f,
       .contrast_high = 1.8f,
       .per_image = true},
      {.in = in, .out = out, .brightness = 5, .contrast_low = 0.5f, .contrast_high = 1.5f},
      {.in = {40, 36, 6}, .out = {33, 35, 6}, .flip = true, .scale = {1, 1, 1, 0.25f}},
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
      {.in = {9, 10, 2}, .out = {8, 8, 2}, .flip_height = true, .turns = true, .minimum_area = 0.3f}};
}

TEST(Augment, MatchesFloat64) {
  int number = 0;
  for (const Augmentation& spec : augmentations()) {
    ++number;
    for (const ElementType in : {ElementType::uint8, ElementType::float32, ElementType::float64}) {
      for (const ElementType type : kTypes) {
        for (const bool training : {true, false}) {
          for (const std::int64_t batch : {0, 5}) {
            Doubles expected = zeros(batch * spec.out.elements());
            in_every_order(
                1,
                [&](Tensors& t) {
                  GuardedTensor& images = t.add("images", in, batch, spec.in.elements());
                  for (std::size_t i = 0; i < images.count(); ++i) {
                    images.set(i, std::floor(128 + 127 * sample("images", i)));
                  }
                  GuardedTensor& keys = t.add("keys", ElementType::uint64, batch, 1);
                  for (std::size_t i = 0; i < keys.count(); ++i) keys.set_key(i, 0x123456789abcdef1u * (i + 7));
                  const Tensor key = training ? keys.tensor() : Tensor{};
                  augment(nullptr, images.tensor(), key, spec, t.add("out", type, batch, spec.out.elements()).tensor());
                  ReferenceImages().augment(images.tensor(), key, spec, doubles(expected, batch, spec.out.elements()));
                },
                [&](Tensors& t) {
                  expect_close(t["out"].values(), expected, tolerance(type),
                               fmt::format("augmentation {} from {} to {}", number, name_of(in), name_of(type)));
                },
                in == ElementType::uint8 ? 3 : 1);
          }
        }
      }
    }
  }
}

TEST(Augment, RefusesWhatItsBlocksDoNotHold) {
  const Augmentation spec{.in = {1, 1, 300}, .out = {1, 1, 300}};
  GuardedTensor images(ElementType::uint8, 1, 300), out(ElementType::float32, 1, 300);
  EXPECT_THROW(augment(nullptr, images.tensor(), {}, spec, out.tensor()), std::invalid_argument);
}

// ---- batch normalisation ----

struct NormCase {
  std::int64_t batch, pixels, channels;
  std::size_t shift;
};
/// The last case has more parts than the adding threads process at once.
constexpr std::array kNormCases{NormCase{0, 4, 8, 0},     NormCase{1, 1, 3, 0},    NormCase{3, 7, 16, 1},
                                NormCase{5, 600, 8, 0},   NormCase{2, 9, 264, 0},  NormCase{4, 1300, 5, 1},
                                NormCase{3, 400, 264, 0}, NormCase{83, 400, 17, 0}};

/// Values far from zero, so that a variance from raw sums loses precision.
void fill_images(GuardedTensor& tensor, const std::string& name) {
  for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, 3 + sample(name, i));
}
Scratch norm_scratch(std::vector<double>& memory) {
  memory.assign(batch_norm_scratch_bytes() / sizeof(double), kNan);
  return {memory.data(), batch_norm_scratch_bytes()};
}
std::string name_of_case(const NormCase& c, ElementType type, bool relu, bool residual) {
  return fmt::format("[{}, {} x {}] {}{}{}", c.batch, c.pixels, c.channels, name_of(type), relu ? ", relu" : "",
                     residual ? ", residual" : "");
}

/// Calls the kernels with the interface of the reference.
struct NormKernels {
  std::vector<double> memory = {};

  void batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) {
    cuda::batch_norm_sums(nullptr, norm, x, sums, norm_scratch(memory));
  }
  void batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) {
    cuda::batch_norm_forward(nullptr, norm, operands);
  }
  void batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight, Accumulate accumulate,
                             const Tensor& d_mean, const Tensor& d_variance) {
    cuda::batch_norm_statistics(nullptr, norm, sums, weight, accumulate, d_mean, d_variance);
  }
  void batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) {
    cuda::batch_norm_inference(nullptr, norm, operands);
  }
  void batch_norm_inference_backward(const BatchNorm& norm, const BatchNormInferenceBackwardOperands& operands) {
    cuda::batch_norm_inference_backward(nullptr, norm, operands);
  }
  void batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                Accumulate accumulate) {
    cuda::batch_norm_backward_sums(nullptr, norm, operands, accumulate, norm_scratch(memory));
  }
  void batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) {
    cuda::batch_norm_backward(nullptr, norm, operands);
  }
};

struct NormResult {
  std::string name;
  double tolerance, floor = 1e-30;
};
/// Fills tensors, runs calls(operations, of), where of(name) is a tensor, with the kernels under several orders of
/// threads and with the reference, and compares the results. Then calls `more` with the kernels only.
template <class Fill, class Calls, class More>
void compare_norms(const NormCase& c, const std::string& what, const Fill& fill, const Calls& calls, const More& more,
                   const std::vector<NormResult>& results) {
  std::map<std::string, Doubles> before;
  in_every_order(
      c.shift,
      [&](Tensors& t) {
        fill(t);
        before = t.values();
        NormKernels kernels;
        calls(kernels, [&](const std::string& name) { return t[name].tensor(); });
        more(kernels, t);
      },
      [&](Tensors& t) {
        std::map<std::string, Doubles> expected = before;
        ReferenceImages reference;
        calls(reference, [&](const std::string& name) {
          const Tensor& like = t[name].tensor();
          return doubles(expected[name], like.rows, like.columns);
        });
        for (const auto& [name, tolerance, floor] : results) {
          if (tolerance == 0) {
            EXPECT_EQ(t[name].values(), expected[name]) << name << " of " << what;
          } else {
            expect_close(t[name].values(), expected[name], tolerance, name + " of " + what, floor);
          }
        }
      },
      c.pixels < 100 ? 3 : 1);
}

/// Fills a tensor with variances from 1 to 1.5.
void fill_variance(GuardedTensor& tensor) {
  for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, 1 + tensor.get(i) / 2);
}

TEST(BatchNorm, ForwardMatchesFloat64) {
  for (const NormCase& c : kNormCases) {
    for (const ElementType type : kTypes) {
      for (const auto& [relu, with_residual] :
           {std::pair{false, false}, std::pair{true, true}, std::pair{true, false}}) {
        const BatchNorm norm{.channels = c.channels, .epsilon = 1e-3f, .relu = relu};
        const std::int64_t columns = c.pixels * c.channels;
        const auto fill = [&](Tensors& t) {
          fill_images(t.add("x", type, c.batch, columns), "x");
          t.add("sums", ElementType::float64, 1, 2 * c.channels + 1);
          for (const char* name : {"scale", "shift"}) t.add_filled(name, type, 1, c.channels);
          t.add_filled("residual", type, c.batch, columns);
          for (const char* name : {"mean", "inverse"}) t.add(name, ElementType::float32, 1, c.channels);
          for (const char* name : {"d_mean", "d_variance", "d_mean added", "d_variance added"}) {
            t.add_filled(name, ElementType::float32, 1, c.channels);
          }
          fill_variance(t.add_filled("variance", type, 1, c.channels));
          for (const char* name : {"y", "inference"}) t.add(name, type, c.batch, columns);
        };
        const auto calls = [&, with_residual = with_residual](auto& operations, const auto& of) {
          const Tensor residual = with_residual ? of("residual") : Tensor{};
          operations.batch_norm_sums(norm, of("x"), of("sums"));
          operations.batch_norm_forward(norm, {.x = of("x"),
                                               .sums = of("sums"),
                                               .scale = of("scale"),
                                               .shift = of("shift"),
                                               .residual = residual,
                                               .mean = of("mean"),
                                               .inverse = of("inverse"),
                                               .y = of("y")});
          operations.batch_norm_statistics(norm, of("sums"), 0.25, Accumulate::no, of("d_mean"), of("d_variance"));
          operations.batch_norm_statistics(norm, of("sums"), 0.25, Accumulate::yes, of("d_mean added"),
                                           of("d_variance added"));
          operations.batch_norm_inference(norm, {.x = of("x"),
                                                 .mean = of("shift"),
                                                 .variance = of("variance"),
                                                 .scale = of("scale"),
                                                 .shift = of("shift"),
                                                 .residual = residual,
                                                 .y = of("inference")});
        };
        compare_norms(c, name_of_case(c, type, relu, with_residual), fill, calls, [](NormKernels&, Tensors&) {},
                      {{"sums", 1e-13},
                       {"mean", 1e-6},
                       {"inverse", 1e-6},
                       {"y", tolerance(type)},
                       {"inference", tolerance(type)},
                       {"d_mean", 1e-6},
                       {"d_variance", 1e-6},
                       {"d_mean added", 1e-6},
                       {"d_variance added", 1e-6}});
      }
    }
  }
}

TEST(BatchNorm, BackwardMatchesFloat64) {
  for (const NormCase& c : kNormCases) {
    for (const ElementType type : kTypes) {
      for (const bool relu : {false, true}) {
        const BatchNorm norm{.channels = c.channels, .relu = relu};
        const std::int64_t columns = c.pixels * c.channels;
        const Accumulate accumulate = relu ? Accumulate::yes : Accumulate::no;
        const std::string what = name_of_case(c, type, relu, false);
        const auto fill = [&](Tensors& t) {
          for (const char* name : {"x", "y", "d_y", "d_z", "d_y kept"}) t.add_filled(name, type, c.batch, columns);
          for (const char* name : {"d_x", "d_fixed", "d_x of x", "d_y again"}) t.add(name, type, c.batch, columns);
          for (const char* name : {"mean", "d_scale", "d_shift"}) {
            t.add_filled(name, ElementType::float32, 1, c.channels);
          }
          GuardedTensor& inverse = t.add("inverse", ElementType::float32, 1, c.channels);
          for (std::size_t i = 0; i < inverse.count(); ++i) inverse.set(i, 1.5 + sample("inverse", i) / 2);
          for (const char* name : {"scale", "shift"}) t.add_filled(name, type, 1, c.channels);
          fill_variance(t.add_filled("variance", type, 1, c.channels));
          for (const char* name : {"sums", "sums of x"}) t.add(name, ElementType::float64, 1, 2 * c.channels);
          t.add("forward_sums", ElementType::float64, 1, 2 * c.channels + 1)
              .set(static_cast<std::size_t>(2 * c.channels), static_cast<double>(c.batch * c.pixels));
        };
        // Without a residual, x determines the mask of the relu, and y is not needed.
        const auto backward = [&](auto& operations, const auto& of, const char* d_y, const char* sums, const char* d_x,
                                  bool by_y, bool with_parameters) {
          const Tensor shift = relu && !by_y ? of("shift") : Tensor{};
          operations.batch_norm_backward_sums(norm,
                                              {.x = of("x"),
                                               .y = relu && by_y ? of("y") : Tensor{},
                                               .d_y = of(d_y),
                                               .mean = of("mean"),
                                               .inverse = of("inverse"),
                                               .scale = by_y ? Tensor{} : of("scale"),
                                               .shift = shift,
                                               .d_scale = with_parameters ? of("d_scale") : Tensor{},
                                               .d_shift = with_parameters ? of("d_shift") : Tensor{},
                                               .sums = of(sums)},
                                              accumulate);
          operations.batch_norm_backward(norm, {.x = of("x"),
                                                .d_y = of(d_y),
                                                .mean = of("mean"),
                                                .inverse = of("inverse"),
                                                .scale = of("scale"),
                                                .shift = shift,
                                                .forward_sums = of("forward_sums"),
                                                .sums = of(sums),
                                                .d_x = of(d_x)});
        };
        const auto calls = [&](auto& operations, const auto& of) {
          operations.batch_norm_inference_backward(norm, {.y = relu ? of("y") : Tensor{},
                                                          .d_y = of("d_z"),
                                                          .variance = of("variance"),
                                                          .scale = of("scale"),
                                                          .d_x = of("d_fixed")});
          backward(operations, of, "d_y", "sums", "d_x", true, true);
          if (relu) backward(operations, of, "d_y kept", "sums of x", "d_x of x", false, false);
        };
        // In place, and without parameter gradients.
        const auto in_place = [&](NormKernels& kernels, Tensors& t) {
          std::ranges::copy(t["d_y"].bytes(), static_cast<std::byte*>(t["d_y again"].tensor().data));
          const auto of = [&](const std::string& name) { return t[name].tensor(); };
          backward(kernels, of, "d_y again", "sums", "d_y again", true, false);
          EXPECT_TRUE(std::ranges::equal(t["d_y again"].bytes(), t["d_x"].bytes())) << what;
        };
        std::vector<NormResult> results{
            {"d_z", tolerance(type)},      {"d_fixed", tolerance(type)}, {"d_y", 0},
            {"sums", 1e-6, 1e-5},          {"d_scale", 1e-6, 1e-5},      {"d_shift", 1e-6, 1e-5},
            {"d_x", tolerance(type), 1e-6}};
        if (relu) {
          results.insert(results.end(), {{"d_y kept", 0}, {"sums of x", 1e-6, 1e-5}, {"d_x of x", tolerance(type)}});
        }
        compare_norms(c, what, fill, calls, in_place, results);
      }
    }
  }
}

TEST(BatchNorm, LetsWhatIsNotFiniteThrough) {
  std::vector<double> memory;
  for (const ElementType type : kTypes) {
    for (const double bad : {kNan, kInfinity}) {
      const BatchNorm norm{.channels = 8, .relu = true};
      Tensors t(0);
      GuardedTensor& x = t.add_filled("x", type, 3, 80);
      x.set(83, bad);  // channel 3
      const Tensor sums = t.add("sums", ElementType::float64, 1, 17).tensor();
      batch_norm_sums(nullptr, norm, x.tensor(), sums, norm_scratch(memory));
      const Tensor scale = t.add_filled("scale", type, 1, 8).tensor();
      batch_norm_forward(nullptr, norm,
                         {.x = x.tensor(),
                          .sums = sums,
                          .scale = scale,
                          .shift = scale,
                          .mean = t.add("mean", ElementType::float32, 1, 8).tensor(),
                          .inverse = t.add("inverse", ElementType::float32, 1, 8).tensor(),
                          .y = t.add("y", type, 3, 80).tensor()});
      for (std::size_t i = 0; i < 240; ++i) ASSERT_EQ(std::isfinite(t["y"].get(i)), i % 8 != 3) << i;
    }
  }
}

TEST(BatchNorm, ChecksItsScratch) {
  GuardedTensor x(ElementType::float32, 3000, 8), sums(ElementType::float64, 1, 17);
  EXPECT_THROW(batch_norm_sums(nullptr, {.channels = 8}, x.tensor(), sums.tensor(), {}), std::invalid_argument);
  EXPECT_LE(batch_norm_scratch_bytes(), std::size_t{8} << 20);
}

TEST(ImageKernels, RefuseOtherTypes) {
  GuardedTensor x(ElementType::int32, 1, 8);
  EXPECT_THROW(global_average_forward(nullptr, {1, 1, 8}, x.tensor(), x.tensor()), std::invalid_argument);
  EXPECT_THROW(transpose(nullptr, x.tensor(), Accumulate::no, x.tensor()), std::invalid_argument);
  GuardedTensor y(ElementType::float32, 1, 8), z(ElementType::bfloat16, 8, 1);
  EXPECT_THROW(transpose(nullptr, y.tensor(), Accumulate::no, z.tensor()), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model::cuda
