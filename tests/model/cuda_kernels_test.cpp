// Compares every kernel of model/cuda/kernels/kernels.hpp on the host (support/cuda_on_cpu.hpp) with loops in float64:
// odd shapes, poisoned outputs, unaligned tensors, guards around each, three orders of threads with the same bits.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/kernels/packs.cuh"
#include "model/cuda/kernels/plain_matmul.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/formulas/gelu.hpp"
#include "model/kernel_harness.hpp"
#include "model/reference/reference_activations.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

constexpr std::array kActivations{Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid};
constexpr std::array<std::int64_t, 14> kCounts{0, 1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 129, 1000, 70001};

TEST(ConvertInput, MatchesTheFormula) {
  for (const ElementType in : {ElementType::uint8, ElementType::float32, ElementType::float64}) {
    for (const ElementType out : kTypes) {
      for (const std::int64_t count : kCounts) {
        for (const std::size_t shift : {0, 1}) {
          const std::string what = shape_name(name_of(in), out, 1, count, shift);
          std::vector<double> expected;
          in_every_order(
              shift,
              [&](Tensors& t) {
                GuardedTensor& x = t.add("x", in, 1, count);
                for (std::size_t i = 0; i < x.count(); ++i) {
                  x.set(i, in == ElementType::uint8 ? std::floor(128 + 127 * sample("x", i)) : 3 * sample("x", i));
                }
                convert_input(nullptr, x.tensor(), {.scale = 0.37f, .shift = -1.5f},
                              t.add("y", out, 1, count).tensor());
              },
              [&](Tensors& t) {
                for (const double v : t["x"].values()) expected.push_back(v * double{0.37f} - 1.5);
                expect_close(t["y"].values(), expected, tolerance(out), what);
              });
        }
      }
    }
  }
}

TEST(Cast, RoundsToNearestEvenAndCopies) {
  constexpr std::array kAll{ElementType::float32, ElementType::bfloat16, ElementType::uint8, ElementType::int32,
                            ElementType::float64};
  for (const ElementType in : kAll) {
    for (const ElementType out : kAll) {
      const bool rounds = in != out;
      if (rounds && (std::ranges::find(kTypes, in) == kTypes.end() || std::ranges::find(kTypes, out) == kTypes.end())) {
        GuardedTensor x(in, 1, 4), y(out, 1, 4);
        EXPECT_THROW(cast(nullptr, x.tensor(), y.tensor()), std::invalid_argument);
        continue;
      }
      for (const std::int64_t count : kCounts) {
        for (const std::size_t shift : {0, 1}) {
          in_every_order(
              shift,
              [&](Tensors& t) {
                const Tensor x = t.add_filled("x", in, 1, count, 100).tensor();
                cast(nullptr, x, t.add("y", out, 1, count).tensor());
              },
              [&](Tensors& t) {
                if (!rounds) {
                  EXPECT_TRUE(std::ranges::equal(t["x"].bytes(), t["y"].bytes()));
                }
                for (std::size_t i = 0; i < t["x"].count(); ++i) {
                  GuardedTensor one(out, 1, 1);
                  one.set(0, t["x"].get(i));
                  ASSERT_EQ(t["y"].get(i), one.get(0)) << i;
                }
              });
        }
      }
    }
  }
}

TEST(Add, AddsToWhatIsThere) {
  for (const ElementType type : kTypes) {
    for (const std::int64_t count : kCounts) {
      for (const std::size_t shift : {0, 1}) {
        std::vector<double> expected;
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor x = t.add_filled("x", type, 1, count).tensor();
              GuardedTensor& to = t.add_filled("to", type, 1, count, 3);
              if (count > 7) to.set(7, kNan);
              expected = to.values();
              add(nullptr, x, to.tensor());
            },
            [&](Tensors& t) {
              for (std::size_t i = 0; i < expected.size(); ++i) {
                if (i == 7) {
                  ASSERT_TRUE(std::isnan(t["to"].get(i)));
                  continue;
                }
                GuardedTensor sum(type, 1, 1);
                sum.set(0, static_cast<double>(static_cast<float>(expected[i] + t["x"].get(i))));
                ASSERT_EQ(t["to"].get(i), sum.get(0)) << name_of(type) << " " << i;
              }
            });
      }
    }
  }
}

/// Returns f(x) and f'(x) in float64.
std::pair<double, double> exact_function(const Elementwise& f, double x) {
  const double a = static_cast<double>(f.parameter), share = 1 / (1 + std::exp(-x));
  switch (f.function) {
    case Function::relu:
      return {x < 0 ? 0 : x, x > 0 ? 1 : 0};
    case Function::leaky_relu:
      return {x < 0 ? a * x : x, x > 0 ? 1 : a};
    case Function::elu:
      return {x < 0 ? a * std::expm1(x) : x, x > 0 ? 1 : a * std::exp(x)};
    case Function::tanh:
      return {std::tanh(x), 1 - std::tanh(x) * std::tanh(x)};
    case Function::sigmoid:
      return {share, share * (1 - share)};
    case Function::silu:
      return {x * share, share + x * share * (1 - share)};
    case Function::gelu:
      return {formulas::gelu(x), formulas::gelu_derivative(x)};
    case Function::gelu_exact:
      return {x * std::erfc(-x / std::sqrt(2.0)) / 2,
              std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0))};
    case Function::softplus:
      return {std::log(1 + std::exp(x)), share};
    case Function::log1p:
      return {std::log1p(x), 1 / (1 + x)};
    case Function::hard_sigmoid:
      return {std::clamp(x / 6 + 0.5, 0.0, 1.0), std::abs(x) < 3 ? 1.0 / 6 : 0.0};
    case Function::hard_swish:
      return {x * std::clamp(x / 6 + 0.5, 0.0, 1.0), x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5};
    case Function::scale:
      return {a * x, a};
  }
  return {};
}

TEST(Elementwise, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    const double unit = type == ElementType::bfloat16 ? 0x1p-7 : 2e-6;
    for (const Function function : model::test::kFunctions) {
      const Elementwise f{.function = function, .parameter = 0.25f};
      for (const std::int64_t count : kCounts) {
        if (count > 1000 && function != Function::silu) continue;
        for (const std::size_t shift : {0, 1}) {
          std::vector<double> d_y;
          in_every_order(
              shift,
              [&](Tensors& t) {
                GuardedTensor& in = t.add_filled("x", type, 1, count, 4);
                for (std::size_t i = 0; i < in.count() && function == Function::log1p; ++i) {
                  in.set(i, std::abs(in.get(i)));
                }
                const Tensor x = in.tensor(), y = t.add("y", type, 1, count).tensor();
                GuardedTensor& d = t.add_filled("d", type, 1, count);
                d_y = d.values();
                apply(nullptr, f, x, y);
                const SlopeReads reads = slope_reads(function);
                apply_slope(nullptr, f,
                            reads == SlopeReads::nothing ? Tensor{}
                            : reads == SlopeReads::input ? x
                                                         : y,
                            d.tensor(), d.tensor());
              },
              [&](Tensors& t) {
                for (std::size_t i = 0; i < d_y.size(); ++i) {
                  const auto [value, slope] = exact_function(f, t["x"].get(i));
                  ASSERT_NEAR(t["y"].get(i), value, unit * (1 + std::abs(value))) << static_cast<int>(function);
                  // The slope is that of the rounded y.
                  ASSERT_NEAR(t["d"].get(i), d_y[i] * slope, 3 * unit) << static_cast<int>(function);
                }
              });
        }
      }
    }
  }
}

TEST(Bfloat16Conversion, IsTheToolkitsBitForBit) {
  // All exponents and signs with mantissas around the rounding boundary, and NaNs.
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const auto value = std::bit_cast<float>(upper << 16 | lower);
      ASSERT_EQ(formulas::bfloat16_bits(value), std::bit_cast<std::uint16_t>(__float2bfloat16_rn(value)))
          << fmt::format("{:08x}", upper << 16 | lower);
    }
    const auto bits = static_cast<std::uint16_t>(upper);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(formulas::from_bfloat16_bits(bits)),
              std::bit_cast<std::uint32_t>(__bfloat162float(std::bit_cast<Bfloat16>(bits))))
        << upper;
  }
}

TEST(AddBiasAndActivate, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const Activation activation : kActivations) {
      for (const auto& [rows, columns] : shapes()) {
        for (const bool with_bias : {true, false}) {
          const std::size_t shift = static_cast<std::size_t>(rows + columns) % 2;
          const std::string what = shape_name(with_bias ? "bias and" : "no bias", type, rows, columns, shift);
          std::vector<double> before, bias;
          in_every_order(
              shift,
              [&](Tensors& t) {
                GuardedTensor& y = t.add_filled("y", type, rows, columns, 3);
                GuardedTensor& b = t.add_filled("bias", type, 1, columns, 2);
                before = y.values();
                bias = b.values();
                add_bias_and_activate(nullptr, y.tensor(), with_bias ? b.tensor() : Tensor{}, activation);
              },
              [&](Tensors& t) {
                for (std::size_t i = 0; i < before.size(); ++i) {
                  before[i] =
                      activate(activation, before[i] + (with_bias ? bias[i % static_cast<std::size_t>(columns)] : 0));
                }
                expect_close(t["y"].values(), before, tolerance(type), what);
              });
        }
      }
    }
  }
}

TEST(ActivationGradient, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const Activation activation : kActivations) {
      for (const auto& [rows, columns] : shapes()) {
        for (const int variant : {0, 1, 2}) {  // no bias, =, +=
          const std::size_t shift = static_cast<std::size_t>(rows + columns + variant) % 2;
          const std::string what = shape_name("gradient", type, rows, columns, shift) + fmt::format(" {}", variant);
          const auto accumulate = variant == 2 ? Accumulate::yes : Accumulate::no;
          std::vector<double> expected, sums(static_cast<std::size_t>(columns)), magnitudes = sums;
          in_every_order(
              shift,
              [&](Tensors& t) {
                GuardedTensor& y = t.add_filled("y", type, rows, columns);
                GuardedTensor& d_y = t.add_filled("d_y", type, rows, columns);
                GuardedTensor& d_bias = t.add("d_bias", ElementType::float32, 1, columns);
                for (std::size_t o = 0; o < d_bias.count() && variant == 2; ++o) d_bias.set(o, sample("before", o));
                expected = d_y.values();
                for (std::size_t i = 0; i < expected.size(); ++i) {
                  expected[i] = model::activation_gradient(activation, y.get(i), expected[i]);
                }
                activation_gradient(nullptr, activation, activation == Activation::none ? Tensor{} : y.tensor(),
                                    d_y.tensor(), accumulate, variant == 0 ? Tensor{} : d_bias.tensor(),
                                    t.scratch(columns));
              },
              [&](Tensors& t) {
                expect_close(t["d_y"].values(), expected, tolerance(type), what);
                for (std::size_t o = 0; o < sums.size(); ++o) {
                  if (variant == 2) sums[o] = static_cast<double>(static_cast<float>(sample("before", o)));
                }
                for (std::size_t i = 0; i < expected.size(); ++i) {
                  sums[i % sums.size()] += expected[i];
                  magnitudes[i % sums.size()] += std::abs(expected[i]);
                }
                for (std::size_t o = 0; o < sums.size(); ++o) {
                  if (variant == 0) {
                    ASSERT_TRUE(std::isnan(t["d_bias"].get(o))) << what;
                  } else {
                    // Sums are fp32 of exact products in both types; cancellation is no error.
                    ASSERT_NEAR(t["d_bias"].get(o), sums[o], 1e-6 * (magnitudes[o] + 1)) << what << " column " << o;
                  }
                }
              });
        }
      }
    }
  }
}

TEST(SumOfSquares, IsAddedWhereAskedFor) {
  for (const std::int64_t count : {5, 300000}) {  // one block, several
    Tensors t(0);
    GuardedTensor& x = t.add_filled("x", ElementType::float32, 1, count);
    GuardedTensor& out = t.add("out", ElementType::float64, 1, 1);
    sum_of_squares(nullptr, x.tensor(), out.tensor(), Accumulate::no, t.scratch(0));
    const double once = out.get(0);
    sum_of_squares(nullptr, x.tensor(), out.tensor(), Accumulate::yes, t.scratch(0));
    EXPECT_EQ(out.get(0), 2 * once) << count;
    EXPECT_GT(once, 0);
  }
}

TEST(SumOfSquares, IsDoubleAndOfTheSameBitsWhereverTheTensorLies) {
  for (const ElementType type : kTypes) {
    for (const std::int64_t count : {0, 1, 2, 3, 31, 33, 127, 129, 1000, 16384, 16400, 70001, 4200000}) {
      std::vector<double> results;
      for (const std::size_t shift : {0, 1, 3}) {
        double expected = 0;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& x = t.add_filled("x", type, 1, count, count == 1000 ? 1e30 : 1);
              expected = 0;
              for (const double v : x.values()) expected += v * v;
              sum_of_squares(nullptr, x.tensor(), t.add("out", ElementType::float64, 1, 1).tensor(), Accumulate::no,
                             t.scratch(0));
            },
            [&](Tensors& t) {
              results.push_back(t["out"].get(0));
              EXPECT_NEAR(results.back(), expected, 1e-12 * expected) << name_of(type) << " " << count;
            });
        if (count > 100000) break;  // once is enough
      }
      for (const double each : results) EXPECT_EQ(each, results[0]) << name_of(type) << " " << count;
    }
    for (const double bad : {kNan, kInfinity}) {
      for (const std::size_t at : {0, 500, 20003}) {
        Tensors t(0);
        GuardedTensor& x = t.add_filled("x", type, 1, 20004);
        x.set(at, bad);
        sum_of_squares(nullptr, x.tensor(), t.add("out", ElementType::float64, 1, 1).tensor(), Accumulate::no,
                       t.scratch(0));
        EXPECT_FALSE(std::isfinite(t["out"].get(0)));
      }
    }
  }
}

TEST(ColumnSums, HaveTheSameBitsWhereverTheTensorLies) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, columns] : {std::pair{700, 96}, std::pair{3000, 8}, std::pair{513, 33}}) {
      std::vector<double> first;
      for (const std::size_t shift : {0, 1, 2}) {
        Tensors t(shift);
        GuardedTensor& d_bias = t.add("d_bias", ElementType::float32, 1, columns);
        activation_gradient(nullptr, Activation::none, {}, t.add_filled("d_y", type, rows, columns).tensor(),
                            Accumulate::no, d_bias.tensor(), t.scratch(columns));
        if (shift == 0) first = d_bias.values();
        EXPECT_EQ(d_bias.values(), first) << name_of(type) << " " << shift;
      }
    }
  }
}

TEST(Scratch, IsCheckedAndLargeEnough) {
  GuardedTensor d_y(ElementType::float32, 3000, 8), d_bias(ElementType::float32, 1, 8),
      x(ElementType::float32, 1, 100000);
  GuardedTensor out(ElementType::float64, 1, 3);
  EXPECT_THROW(activation_gradient(nullptr, Activation::none, {}, d_y.tensor(), Accumulate::no, d_bias.tensor(), {}),
               std::invalid_argument);
  EXPECT_THROW(sum_of_squares(nullptr, x.tensor(), out.tensor(), Accumulate::no, {}), std::invalid_argument);
  EXPECT_THROW(mean_error(nullptr, d_y.tensor(), d_y.tensor(), {}, out.tensor(), {}), std::invalid_argument);
  EXPECT_LE(scratch_bytes(std::int64_t{1} << 40), std::size_t{2} << 20);
  EXPECT_GE(scratch_bytes(0), std::size_t{1});
}

TEST(ReportLoss, CopiesAndCountsWhatIsNotFinite) {
  for (const double loss : {1.5, kNan, kInfinity, -kInfinity}) {
    in_every_order(
        0,
        [&](Tensors& t) {
          GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 3);
          GuardedTensor& status = t.add_filled("status", ElementType::float64, 1, kStepStatusSize);
          sums.set(0, loss);
          sums.set(1, 7);
          for (std::size_t i = 2; i < kStepStatusSize; ++i) status.set(i, i == 2 ? 3 : 8 + static_cast<double>(i));
          report_loss(nullptr, sums.tensor(), status.tensor());
        },
        [&](Tensors& t) {
          if (std::isnan(loss)) {
            EXPECT_TRUE(std::isnan(t["status"].get(0)));
          } else {
            EXPECT_EQ(t["status"].get(0), loss);
          }
          EXPECT_EQ(t["status"].get(1), 7);
          EXPECT_EQ(t["status"].get(2), std::isfinite(loss) ? 3 : 4);
          for (std::size_t i = 3; i < kStepStatusSize; ++i) EXPECT_EQ(t["status"].get(i), 8 + static_cast<double>(i));
        });
  }
}

TEST(ReportLoss, CopiesTheSumsOfSeveralLosses) {
  GuardedTensor sums(ElementType::float64, 1, 5), status(ElementType::float64, 1, kStepStatusSize);
  for (std::size_t i = 0; i < 5; ++i) sums.set(i, static_cast<double>(i + 1));
  for (std::size_t i = 0; i < kStepStatusSize; ++i) status.set(i, 0);
  report_loss(nullptr, sums.tensor(), status.tensor());
  const Tensor losses = status.tensor().slice({offsetof(StepStatus, losses) / sizeof(double), kMaxLosses});
  EXPECT_EQ(losses.elements<double>()[0], 4);
  EXPECT_EQ(losses.elements<double>()[1], 5);
  EXPECT_EQ(losses.elements<double>()[2], 0);
}

TEST(Activations, LetNanAndInfinityThrough) {
  for (const ElementType type : kTypes) {
    for (const Activation activation : kActivations) {
      for (const std::size_t at : {0, 5, 16}) {
        Tensors t(0);
        GuardedTensor& y = t.add_filled("y", type, 1, 17);
        y.set(at, kNan);
        add_bias_and_activate(nullptr, y.tensor(), {}, activation);
        GuardedTensor& biased = t.add_filled("biased", type, 3, 17);
        GuardedTensor& bias = t.add_filled("bias", type, 1, 17);
        bias.set(at, kNan);
        add_bias_and_activate(nullptr, biased.tensor(), bias.tensor(), activation);
        GuardedTensor& d_y = t.add_filled("d_y", type, 3, 17);
        d_y.set(17 + at, kNan);
        GuardedTensor& value = t.add("value", type, 3, 17);
        for (std::size_t i = 0; i < value.count(); ++i) value.set(i, 0.5);
        GuardedTensor& d_bias = t.add("d_bias", ElementType::float32, 1, 17);
        activation_gradient(nullptr, activation, value.tensor(), d_y.tensor(), Accumulate::no, d_bias.tensor(),
                            t.scratch(17));
        for (std::size_t i = 0; i < 17; ++i) {
          EXPECT_EQ(std::isnan(y.get(i)), i == at) << i;
          EXPECT_EQ(std::isnan(biased.get(17 + i)), i == at) << i;
          EXPECT_EQ(std::isnan(d_y.get(17 + i)), i == at) << i;
          EXPECT_EQ(std::isnan(d_bias.get(i)), i == at) << i;
        }
      }
      GuardedTensor far(type, 1, 2);
      far.set(0, kInfinity);
      far.set(1, -kInfinity);
      add_bias_and_activate(nullptr, far.tensor(), {}, activation);
      EXPECT_EQ(far.get(0), activate(activation, kInfinity));
      EXPECT_EQ(far.get(1), activate(activation, -kInfinity));
    }
  }
}

TEST(PlainMatmul, MatchesFloat64) {
  struct Sizes {
    std::int64_t rows, terms, columns;
  };
  for (const ElementType type : kTypes) {
    for (const ElementType out_type : {ElementType::float32, type}) {
      for (const auto [rows, terms, columns] : {Sizes{1, 1, 1}, Sizes{3, 5, 2}, Sizes{16, 16, 16}, Sizes{17, 33, 15},
                                                Sizes{2, 0, 3}, Sizes{40, 7, 50}, Sizes{1, 129, 10}}) {
        for (const int variant : {0, 1, 2, 3, 4, 5}) {
          const bool a_transposed = variant % 2 == 1, b_transposed = variant / 2 == 1, adds = variant > 3;
          const std::string what = fmt::format("{} {} {} {} {}", name_of(type), rows, terms, columns, variant);
          in_every_order(
              static_cast<std::size_t>(variant) % 2,
              [&, rows = rows, terms = terms, columns = columns](Tensors& t) {
                const Tensor a =
                    t.add_filled("a", type, a_transposed ? terms : rows, a_transposed ? rows : terms).tensor();
                const Tensor b =
                    t.add_filled("b", type, b_transposed ? columns : terms, b_transposed ? terms : columns).tensor();
                GuardedTensor& out = t.add("out", out_type, rows, columns);
                for (std::size_t i = 0; i < out.count() && adds; ++i) out.set(i, sample("out", i));
                plain_matmul(nullptr, a, a_transposed, b, b_transposed, adds ? Accumulate::yes : Accumulate::no,
                             out.tensor());
              },
              [&, rows = rows, terms = terms, columns = columns](Tensors& t) {
                std::vector<double> expected;
                for (std::int64_t r = 0; r < rows; ++r) {
                  for (std::int64_t c = 0; c < columns; ++c) {
                    GuardedTensor before(out_type, 1, 1);
                    before.set(0, sample("out", expected.size()));
                    double sum = adds ? before.get(0) : 0;
                    for (std::int64_t k = 0; k < terms; ++k) {
                      sum += t["a"].get(static_cast<std::size_t>(a_transposed ? k * rows + r : r * terms + k)) *
                             t["b"].get(static_cast<std::size_t>(b_transposed ? c * terms + k : k * columns + c));
                    }
                    expected.push_back(sum);
                  }
                }
                expect_close(t["out"].values(), expected, tolerance(out_type), what, 1e-6);
              });
        }
      }
    }
  }
}

TEST(Kernels, RefuseTypesThatTheyDoNotKnow) {
  GuardedTensor d(ElementType::float64, 2, 2), f(ElementType::float32, 2, 2), i(ElementType::int32, 2, 2);
  const Scratch scratch{d.tensor().data, 1 << 20};
  EXPECT_THROW(convert_input(nullptr, f.tensor(), {}, d.tensor()), std::invalid_argument);
  EXPECT_THROW(convert_input(nullptr, i.tensor(), {}, f.tensor()), std::invalid_argument);
  EXPECT_THROW(add_bias_and_activate(nullptr, d.tensor(), {}, Activation::relu), std::invalid_argument);
  EXPECT_THROW(activation_gradient(nullptr, Activation::relu, d.tensor(), d.tensor(), Accumulate::no, {}, scratch),
               std::invalid_argument);
  EXPECT_THROW(softmax_cross_entropy(nullptr, d.tensor(), i.tensor(), {}, d.tensor(), scratch), std::invalid_argument);
  EXPECT_THROW(mean_error(nullptr, d.tensor(), f.tensor(), {}, d.tensor(), scratch), std::invalid_argument);
  EXPECT_THROW(add(nullptr, d.tensor(), d.tensor()), std::invalid_argument);
  EXPECT_THROW(apply(nullptr, {}, d.tensor(), d.tensor()), std::invalid_argument);
  EXPECT_THROW(apply_slope(nullptr, {}, d.tensor(), d.tensor(), d.tensor()), std::invalid_argument);
  EXPECT_THROW(sum_of_squares(nullptr, i.tensor(), d.tensor(), Accumulate::no, scratch), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model::cuda
