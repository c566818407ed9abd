// Every kernel of model/cuda/kernels.hpp on the host (support/cuda_on_cpu.hpp) against loops in float64: shapes with
// odd sizes, poisoned outputs, tensors that are not aligned, guards around each, three orders of threads with the same
// bits.
#include "model/cuda/kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/cuda/packs.cuh"
#include "model/cuda/plain_matmul.hpp"
#include "model/formulas/bfloat16.hpp"
#include "model/formulas/gate.hpp"
#include "model/sample_data.hpp"
#include "support/cuda_on_cpu.hpp"
#include "support/guarded_tensor.hpp"

namespace lockstep::model::cuda {
namespace {

using lockstep::test::GuardedTensor;
using lockstep::test::order_threads;
using model::test::sample;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array kActivations{Activation::none, Activation::relu, Activation::tanh, Activation::sigmoid};
constexpr std::array kTypes{ElementType::float32, ElementType::bfloat16};
constexpr std::array<std::int64_t, 14> kCounts{0, 1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 129, 1000, 70001};

double tolerance(ElementType type) { return type == ElementType::bfloat16 ? 1e-2 : 1e-5; }

/// Rows and columns on both sides of what kernels make a difference of: packs, warps, tiles, parts, blocks that share.
std::vector<std::pair<std::int64_t, std::int64_t>> shapes() {
  std::vector<std::pair<std::int64_t, std::int64_t>> all;
  for (const std::int64_t rows : {0, 1, 3, 33, 257}) {
    for (const std::int64_t columns : {1, 3, 8, 10, 32, 33, 128, 257}) all.emplace_back(rows, columns);
  }
  for (const auto& shape : std::initializer_list<std::pair<std::int64_t, std::int64_t>>{
           {5000, 1}, {5003, 10}, {1000, 16}, {700, 129}, {40, 1032}, {9, 4104}, {300, 520}}) {
    all.push_back(shape);
  }
  return all;
}

/// The tensors of one call by name, so that a failure can say which one is wrong.
class Tensors {
 public:
  explicit Tensors(std::size_t shift) : shift_(shift) {}
  GuardedTensor& add(const std::string& name, ElementType type, std::int64_t rows, std::int64_t columns) {
    return *tensors_.emplace(name, std::make_unique<GuardedTensor>(type, rows, columns, shift_)).first->second;
  }
  GuardedTensor& add_filled(const std::string& name, ElementType type, std::int64_t rows, std::int64_t columns,
                            double scale = 1) {
    GuardedTensor& tensor = add(name, type, rows, columns);
    for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, scale * sample(name, i));
    return tensor;
  }
  Scratch scratch(std::int64_t most_columns) {
    const auto bytes = scratch_bytes(most_columns);
    const GuardedTensor& memory =
        *tensors_
             .emplace("scratch", std::make_unique<GuardedTensor>(ElementType::float64, 1,
                                                                 static_cast<std::int64_t>(bytes / sizeof(double) + 1)))
             .first->second;
    return {memory.tensor().data, bytes};
  }
  GuardedTensor& operator[](const std::string& name) { return *tensors_.at(name); }
  void expect_guards() const {
    for (const auto& [name, tensor] : tensors_) EXPECT_TRUE(tensor->guards_are_intact()) << name;
  }
  std::string bits() const {
    std::string all;
    for (const auto& [name, tensor] : tensors_) {
      if (name == "scratch") continue;
      const auto bytes = tensor->bytes();
      all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }

 private:
  std::size_t shift_;
  std::map<std::string, std::unique_ptr<GuardedTensor>> tensors_;
};

/// Calls `run` on fresh tensors under several orders of threads: guards intact, the same bits from each. `check` sees
/// the tensors of one of them. `aligned_bits`: also the same for tensors that are shifted, because all sums keep their
/// order.
void in_every_order(std::size_t shift, const std::function<void(Tensors&)>& run,
                    const std::function<void(Tensors&)>& check, std::size_t orders = 3) {
  std::string first;
  constexpr std::array kOrders{0u, 1u, 7u};
  for (const std::uint32_t seed : std::span(kOrders).first(orders)) {
    Tensors tensors(shift);
    order_threads(seed);
    run(tensors);
    order_threads(0);
    tensors.expect_guards();
    if (seed == 0) {
      first = tensors.bits();
      check(tensors);
    } else {
      EXPECT_TRUE(tensors.bits() == first) << "order " << seed << " gives other bits";
    }
  }
}

/// |got - expected| <= tolerance * |expected| + floor, in the Euclidean norm.
void expect_close(const std::vector<double>& got, const std::vector<double>& expected, double tolerance,
                  const std::string& what, double floor = 1e-30) {
  ASSERT_EQ(got.size(), expected.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(norm) + floor) << what;
}

double activate(Activation activation, double v) {
  switch (activation) {
    case Activation::none:
      return v;
    case Activation::relu:
      return v < 0 ? 0 : v;
    case Activation::tanh:
      return std::tanh(v);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-v));
  }
  return kNan;
}

double gradient_before(Activation activation, double y, double d_y) {
  switch (activation) {
    case Activation::none:
      return d_y;
    case Activation::relu:
      return y > 0 ? d_y : 0;
    case Activation::tanh:
      return d_y * (1 - y * y);
    case Activation::sigmoid:
      return d_y * y * (1 - y);
  }
  return kNan;
}

std::string shape_name(const char* what, ElementType type, std::int64_t rows, std::int64_t columns, std::size_t shift) {
  return fmt::format("{} {} [{}, {}] shifted by {}", what, name_of(type), rows, columns, shift);
}

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

TEST(Bfloat16Conversion, IsTheToolkitsBitForBit) {
  // All exponents and signs with mantissas around the places that are cut off, and NaNs.
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
                  expected[i] = gradient_before(activation, y.get(i), expected[i]);
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
                    // Sums are fp32 of exact products in both types; what cancels in them is no error.
                    ASSERT_NEAR(t["d_bias"].get(o), sums[o], 1e-6 * (magnitudes[o] + 1)) << what << " column " << o;
                  }
                }
              });
        }
      }
    }
  }
}

struct Rows {
  std::int64_t rows, classes;
};

TEST(SoftmaxCrossEntropy, MatchesFloat64) {
  std::vector<Rows> all;
  for (const std::int64_t rows : {0, 1, 3, 33, 257}) {
    for (const std::int64_t classes : {1, 2, 10, 31, 32, 33, 128, 129}) all.push_back({rows, classes});
  }
  for (const Rows each : {Rows{5, 511}, Rows{5, 512}, Rows{5, 513}, Rows{9, 1000}, Rows{3, 5003}, Rows{2, 50257},
                          Rows{8200, 3}, Rows{1030, 514}}) {
    all.push_back(each);
  }
  for (const ElementType type : kTypes) {
    for (const auto [rows, classes] : all) {
      for (const bool want_gradient : {true, false}) {
        if (rows > 1024 && !want_gradient) continue;  // these are about grids that go round
        const std::size_t shift = static_cast<std::size_t>(rows) % 2;
        const std::string what = shape_name("softmax", type, rows, classes, shift);
        const double scale = 0.125;
        std::vector<double> z;
        const auto labels = model::test::labels(rows, classes);
        in_every_order(
            shift,
            [&, rows = rows, classes = classes](Tensors& t) {
              GuardedTensor& logits = t.add_filled("logits", type, rows, classes, 8);
              GuardedTensor& answers = t.add("labels", ElementType::int32, rows, 1);
              for (std::size_t b = 0; b < answers.count(); ++b) answers.set(b, labels[b]);
              // Every third row is right, every fourth has its greatest logit twice.
              for (std::size_t b = 0; b < answers.count(); ++b) {
                const std::size_t row = b * static_cast<std::size_t>(classes);
                const auto label = static_cast<std::size_t>(labels[b]);
                if (b % 3 == 0) logits.set(row + label, 9);
                if (b % 4 == 0) logits.set(row + static_cast<std::size_t>(classes) - 1, 9);
              }
              z = logits.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 2);
              sums.set(0, 3);
              sums.set(1, 5);
              softmax_cross_entropy(nullptr, logits.tensor(), answers.tensor(), scale, want_gradient, sums.tensor(),
                                    t.scratch(0));
            },
            [&, classes = classes](Tensors& t) {
              double loss = 3, metric = 5;
              std::vector<double> expected = z;
              for (std::size_t b = 0; b < labels.size(); ++b) {
                const auto row =
                    std::span(z).subspan(b * static_cast<std::size_t>(classes), static_cast<std::size_t>(classes));
                const auto label = static_cast<std::size_t>(labels[b]);
                const auto greatest = std::ranges::max_element(row);
                double total = 0;
                for (const double v : row) total += std::exp(v - *greatest);
                loss += std::log(total) + *greatest - row[label];
                metric += static_cast<std::size_t>(greatest - row.begin()) == label ? 1 : 0;
                for (std::size_t o = 0; o < row.size() && want_gradient; ++o) {
                  expected[b * row.size() + o] = (std::exp(row[o] - *greatest) / total - (o == label ? 1 : 0)) * scale;
                }
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-6 * std::abs(loss)) << what;
              EXPECT_EQ(t["sums"].get(1), metric) << what;
              if (!want_gradient) {
                ASSERT_EQ(t["logits"].values(), expected) << what;
              } else {
                // A probability of nearly 1 less 1 has no more digits than fp32 has for 1.
                const double floor = 1.2e-7 * scale * std::sqrt(static_cast<double>(labels.size()));
                expect_close(t["logits"].values(), expected, tolerance(type), what, floor);
              }
            },
            rows > 1024 ? 2 : 3);
      }
    }
  }
}

/// Logits of one row -> {loss, correct answers} and the gradient; the rows around it are ordinary.
struct Judged {
  double loss, correct;
  std::vector<double> gradient;
};
Judged judge(ElementType type, const std::vector<double>& row, std::int32_t label) {
  GuardedTensor logits(type, 1, static_cast<std::int64_t>(row.size())), labels(ElementType::int32, 1, 1);
  GuardedTensor sums(ElementType::float64, 1, 2), memory(ElementType::float64, 1, 4096);
  for (std::size_t o = 0; o < row.size(); ++o) logits.set(o, row[o]);
  labels.set(0, label);
  sums.set(0, 0);
  sums.set(1, 0);
  softmax_cross_entropy(nullptr, logits.tensor(), labels.tensor(), 1, true, sums.tensor(),
                        {memory.tensor().data, memory.bytes().size()});
  return {sums.get(0), sums.get(1), logits.values()};
}

TEST(SoftmaxCrossEntropy, SpecialValues) {
  for (const ElementType type : kTypes) {
    for (const std::size_t classes : {3, 40, 600, 4099}) {
      const std::size_t last = classes - 1;
      for (const std::size_t at : {std::size_t{0}, classes / 2, last}) {
        std::vector<double> row(classes, 1.0);
        row[1] = 2;
        row[at] = kNan;
        Judged judged = judge(type, row, 1);
        EXPECT_TRUE(std::isnan(judged.loss)) << classes << " " << at;
        EXPECT_EQ(judged.correct, 0);
        for (const double v : judged.gradient) ASSERT_TRUE(std::isnan(v));

        row[at] = kInfinity;
        judged = judge(type, row, 1);
        EXPECT_TRUE(std::isnan(judged.loss));
        EXPECT_EQ(judged.correct, 0);

        // A class that cannot be: probability 0, and infinite loss if it is the right one.
        row.assign(classes, -kInfinity);
        row[at] = 5;
        const auto label = static_cast<std::int32_t>(at);
        judged = judge(type, row, label);
        EXPECT_EQ(judged.loss, 0);
        EXPECT_EQ(judged.correct, 1);
        for (const double v : judged.gradient) ASSERT_EQ(v, 0);
        judged = judge(type, row, at == 0 ? 1 : 0);
        EXPECT_EQ(judged.loss, kInfinity);
        EXPECT_EQ(judged.correct, 0);
        EXPECT_EQ(judged.gradient[at], 1);
      }
      const std::vector<double> equal(classes, -3), hopeless(classes, -kInfinity);
      EXPECT_EQ(judge(type, equal, 0).correct, 1) << "the first of equal ones is the answer";
      EXPECT_EQ(judge(type, equal, static_cast<std::int32_t>(last)).correct, 0);
      EXPECT_NEAR(judge(type, equal, 0).loss, std::log(static_cast<double>(classes)), 1e-5);
      EXPECT_TRUE(std::isnan(judge(type, hopeless, 0).loss));
      // Far from 0 on both sides.
      EXPECT_NEAR(judge(type, std::vector<double>(classes, 3e38), 0).loss, std::log(static_cast<double>(classes)),
                  1e-5);
      for (const std::int32_t label : {-1, static_cast<std::int32_t>(classes), 1 << 30}) {
        EXPECT_TRUE(std::isnan(judge(type, equal, label).loss)) << label;
      }
    }
  }
}

TEST(MeanSquaredError, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, outputs] : shapes()) {
      for (const bool want_gradient : {true, false}) {
        const std::size_t shift = static_cast<std::size_t>(rows + outputs) % 2;
        const std::string what = shape_name("squared error", type, rows, outputs, shift);
        std::vector<double> p, target;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& predictions = t.add_filled("predictions", type, rows, outputs);
              GuardedTensor& targets = t.add_filled("targets", ElementType::float32, rows, outputs);
              p = predictions.values();
              target = targets.values();
              GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 2);
              sums.set(0, 3);
              sums.set(1, 5);
              mean_squared_error(nullptr, predictions.tensor(), targets.tensor(), 0.25, want_gradient, sums.tensor(),
                                 t.scratch(0));
            },
            [&](Tensors& t) {
              const auto count = static_cast<double>(outputs);
              double loss = 3, metric = 5;
              std::vector<double> expected = p;
              for (std::size_t i = 0; i < p.size(); ++i) {
                const double error = p[i] - target[i];
                loss += error * error / count;
                metric += std::abs(error) / count;
                if (want_gradient) expected[i] = 2 * error / count * 0.25;
              }
              EXPECT_NEAR(t["sums"].get(0), loss, 1e-12 * loss) << what;
              EXPECT_NEAR(t["sums"].get(1), metric, 1e-12 * metric) << what;
              expect_close(t["predictions"].values(), expected, want_gradient ? tolerance(type) : 0, what);
            });
      }
    }
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
              sum_of_squares(nullptr, x.tensor(), t.add("out", ElementType::float64, 1, 1).tensor(), t.scratch(0));
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
        sum_of_squares(nullptr, x.tensor(), t.add("out", ElementType::float64, 1, 1).tensor(), t.scratch(0));
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
  GuardedTensor out(ElementType::float64, 1, 2);
  EXPECT_THROW(activation_gradient(nullptr, Activation::none, {}, d_y.tensor(), Accumulate::no, d_bias.tensor(), {}),
               std::invalid_argument);
  EXPECT_THROW(sum_of_squares(nullptr, x.tensor(), out.tensor(), {}), std::invalid_argument);
  EXPECT_THROW(mean_squared_error(nullptr, d_y.tensor(), d_y.tensor(), 1, true, out.tensor(), {}),
               std::invalid_argument);
  EXPECT_LE(scratch_bytes(std::int64_t{1} << 40), std::size_t{2} << 20);
  EXPECT_GE(scratch_bytes(0), std::size_t{1});
}

TEST(Tally, CopiesAndCountsWhatIsNotFinite) {
  for (const double loss : {1.5, kNan, kInfinity, -kInfinity}) {
    in_every_order(
        0,
        [&](Tensors& t) {
          GuardedTensor& sums = t.add("sums", ElementType::float64, 1, 2);
          GuardedTensor& ballot = t.add_filled("ballot", ElementType::float64, 1, 4);
          sums.set(0, loss);
          sums.set(1, 7);
          ballot.set(2, 3);
          ballot.set(3, 11);
          tally(nullptr, sums.tensor(), ballot.tensor());
        },
        [&](Tensors& t) {
          if (std::isnan(loss)) {
            EXPECT_TRUE(std::isnan(t["ballot"].get(0)));
          } else {
            EXPECT_EQ(t["ballot"].get(0), loss);
          }
          EXPECT_EQ(t["ballot"].get(1), 7);
          EXPECT_EQ(t["ballot"].get(2), std::isfinite(loss) ? 3 : 4);
          EXPECT_EQ(t["ballot"].get(3), 11);
        });
  }
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

// ---- updates ----

struct UpdateCase {
  OptimizerKind kind = OptimizerKind::sgd;
  bool averaging = false, shadow = false;
  UpdateRule rule;
  double obstacles = 0, squares = 4;
};

constexpr std::int64_t kArena = 13000;
/// Slices with gaps between them, the last one at an odd element; chunks as a backend would cut them.
std::vector<UpdateChunk> chunks_of_arena() {
  std::vector<UpdateChunk> chunks;
  for (const UpdateSlice slice : {UpdateSlice{0, 1, true}, UpdateSlice{64, 9001, true}, UpdateSlice{9088, 3, false},
                                  UpdateSlice{9152, 1030, false}, UpdateSlice{10243, 2050, true}}) {
    for (std::size_t at = 0; at < slice.count; at += kUpdateChunk) {
      chunks.push_back({slice.offset + at,
                        static_cast<std::uint32_t>(std::min<std::size_t>(kUpdateChunk, slice.count - at)),
                        slice.decayed});
    }
  }
  return chunks;
}

void run_update(Tensors& t, const UpdateCase& c, const std::vector<UpdateChunk>& chunks) {
  const auto arena = [&](const char* name) { return t.add_filled(name, ElementType::float32, 1, kArena).tensor(); };
  UpdateArenas arenas{arena("parameters"), arena("gradients"), arena("state1"), {}, {}, {}};
  GuardedTensor& state2 = t.add("state2", ElementType::float32, 1, kArena);
  for (std::size_t i = 0; i < state2.count(); ++i) state2.set(i, std::abs(sample("state2", i)));
  arenas.state2 = state2.tensor();
  arenas.average = arena("average");
  GuardedTensor& shadow = t.add("shadow", ElementType::bfloat16, 1, kArena);
  if (c.shadow) arenas.shadow = shadow.tensor();
  // What a rule does not have is not there.
  if (c.kind == OptimizerKind::sgd) arenas.state1 = {};
  if (c.kind != OptimizerKind::adam && c.kind != OptimizerKind::adamw) arenas.state2 = {};
  if (!c.averaging) arenas.average = {};
  UpdateRule rule = c.rule;
  double obstacles = c.obstacles, squares = c.squares;
  update(nullptr, arenas, c.kind, c.averaging, {&rule, ElementType::uint8, 1, sizeof rule},
         {chunks.data(), static_cast<std::uint32_t>(chunks.size())},
         {{&obstacles, ElementType::float64, 1, 1}, {&squares, ElementType::float64, 1, 1}});
}

/// Before the update, in float64: what run_update() fills the arenas with.
double before(const char* name, std::size_t i) {
  const auto value = static_cast<double>(static_cast<float>(sample(name, i)));
  return std::string_view(name) == "state2" ? std::abs(value) : value;
}

void check_update(Tensors& t, const UpdateCase& c, const std::vector<UpdateChunk>& chunks, const std::string& what) {
  const UpdateRule& r = c.rule;
  std::vector<double> w(kArena), s1(kArena), s2(kArena), average(kArena);
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = before("parameters", i);
    s1[i] = before("state1", i);
    s2[i] = before("state2", i);
    average[i] = before("average", i);
  }
  std::vector<bool> covered(w.size());
  const double norm = std::sqrt(c.squares);
  const double factor = r.clip_norm > 0 && norm > r.clip_norm ? r.clip_norm / norm : 1;
  const double rate = r.learning_rate, mu = r.momentum, beta1 = r.beta1, beta2 = r.beta2;
  for (const UpdateChunk& chunk : chunks) {
    for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count; ++i) {
      covered[i] = true;
      double g = before("gradients", i) * factor;
      if (r.clip_value > 0) g = std::clamp(g, -double{r.clip_value}, double{r.clip_value});
      if (chunk.decayed != 0) w[i] -= rate * double{r.weight_decay} * w[i];
      switch (c.kind) {
        case OptimizerKind::sgd:
          w[i] -= rate * g;
          break;
        case OptimizerKind::momentum:
        case OptimizerKind::nesterov:
          s1[i] = mu * s1[i] + g;
          w[i] -= rate * (c.kind == OptimizerKind::nesterov ? g + mu * s1[i] : s1[i]);
          break;
        case OptimizerKind::adam:
        case OptimizerKind::adamw:
          s1[i] = beta1 * s1[i] + (1 - beta1) * g;
          s2[i] = beta2 * s2[i] + (1 - beta2) * g * g;
          w[i] -= rate * (s1[i] / double{r.bias_correction1}) /
                  (std::sqrt(s2[i] / double{r.bias_correction2}) + double{r.epsilon});
          break;
      }
      if (c.averaging) average[i] = double{r.average_decay} * average[i] + (1 - double{r.average_decay}) * w[i];
    }
  }
  expect_close(t["parameters"].values(), w, 1e-6, what + " parameters");
  expect_close(t["state1"].values(), s1, 1e-6, what + " state1");
  expect_close(t["state2"].values(), s2, 1e-6, what + " state2");
  expect_close(t["average"].values(), average, 1e-6, what + " average");
  for (std::size_t i = 0; i < w.size(); ++i) {
    ASSERT_EQ(t["gradients"].get(i), before("gradients", i)) << what << i;
    if (covered[i] && c.shadow) {
      ASSERT_EQ(t["shadow"].get(i), static_cast<double>(formulas::from_bfloat16_bits(
                                        formulas::bfloat16_bits(static_cast<float>(t["parameters"].get(i))))))
          << what << i;
    } else {
      ASSERT_TRUE(std::isnan(t["shadow"].get(i))) << what << i;
    }
    if (!covered[i]) {
      ASSERT_EQ(t["parameters"].get(i), before("parameters", i)) << what << i;
      ASSERT_EQ(t["average"].get(i), before("average", i)) << what << i;
    }
  }
}

TEST(Update, MatchesFloat64) {
  const auto chunks = chunks_of_arena();
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::nesterov,
                                   OptimizerKind::adam, OptimizerKind::adamw}) {
    for (const bool averaging : {false, true}) {
      for (const bool shadow : {false, true}) {
        for (const int clip : {0, 1, 2, 3}) {
          for (const std::size_t shift : {0, 1}) {
            UpdateCase c{.kind = kind, .averaging = averaging, .shadow = shadow, .rule = {}};
            c.rule.learning_rate = 0.05f;
            c.rule.weight_decay = clip % 2 == 0 ? 0.1f : 0;
            c.rule.bias_correction1 = 0.19f;
            c.rule.bias_correction2 = 0.002f;
            c.rule.average_decay = averaging ? 0.75f : 0;
            if (clip == 1) c.rule.clip_norm = 0.5;
            if (clip == 2) c.rule.clip_value = 0.2f;
            if (clip == 3) c.rule.clip_norm = 2.0;  // the norm itself: not clipped
            const std::string what = fmt::format("kind {} average {} shadow {} clip {} shift {}",
                                                 static_cast<int>(kind), averaging, shadow, clip, shift);
            in_every_order(
                shift, [&](Tensors& t) { run_update(t, c, chunks); },
                [&](Tensors& t) { check_update(t, c, chunks, what); });
          }
        }
      }
    }
  }
}

TEST(Update, WritesNothingWhereTheGateIsClosed) {
  const auto chunks = chunks_of_arena();
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::nesterov, OptimizerKind::adam}) {
    for (const auto& [obstacles, squares] : {std::pair{1.0, 4.0}, std::pair{kNan, 4.0}, std::pair{0.0, kNan},
                                             std::pair{0.0, kInfinity}, std::pair{3.0, kNan}}) {
      UpdateCase closed{
          .kind = kind, .averaging = true, .shadow = true, .rule = {}, .obstacles = obstacles, .squares = squares};
      closed.rule.learning_rate = 0.1f;
      closed.rule.average_decay = 0.5f;
      std::string untouched;
      {
        Tensors t(0);
        run_update(t, closed, {});
        untouched = t.bits();
      }
      in_every_order(
          0, [&](Tensors& t) { run_update(t, closed, chunks); },
          [&](Tensors& t) { EXPECT_TRUE(t.bits() == untouched); });
      closed.obstacles = 0;
      closed.squares = 4;
      Tensors t(0);
      run_update(t, closed, chunks);
      EXPECT_FALSE(t.bits() == untouched) << "an open gate lets it through";
    }
  }
}

TEST(Update, KeepsANanGradientVisible) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam}) {
    const std::vector<UpdateChunk> chunks{{0, 40, 1}};
    GuardedTensor w(ElementType::float32, 1, 40), g(ElementType::float32, 1, 40), s1(ElementType::float32, 1, 40),
        s2(ElementType::float32, 1, 40);
    for (std::size_t i = 0; i < 40; ++i) {
      w.set(i, 1);
      g.set(i, i == 17 ? kNan : 0.1);
      s1.set(i, 0);
      s2.set(i, 0);
    }
    UpdateRule rule{.learning_rate = 0.1f, .clip_value = 1};
    double obstacles = 0, squares = 1;
    update(nullptr, {w.tensor(), g.tensor(), s1.tensor(), s2.tensor(), {}, {}}, kind, false,
           {&rule, ElementType::uint8, 1, sizeof rule}, {chunks.data(), 1},
           {{&obstacles, ElementType::float64, 1, 1}, {&squares, ElementType::float64, 1, 1}});
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(w.get(i)), i == 17) << i;
  }
}

TEST(AddL2Gradient, TouchesDecayedChunksAlone) {
  const auto chunks = chunks_of_arena();
  for (const std::size_t shift : {0, 1}) {
    in_every_order(
        shift,
        [&](Tensors& t) {
          const Tensor w = t.add_filled("parameters", ElementType::float32, 1, kArena).tensor();
          const Tensor g = t.add_filled("gradients", ElementType::float32, 1, kArena).tensor();
          add_l2_gradient(nullptr, w, g, 0.25f, {chunks.data(), static_cast<std::uint32_t>(chunks.size())});
          add_l2_gradient(nullptr, w, g, 0.25f, {});
        },
        [&](Tensors& t) {
          std::vector<double> expected(kArena);
          for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = before("gradients", i);
          for (const UpdateChunk& chunk : chunks) {
            for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count && chunk.decayed != 0; ++i) {
              expected[i] += 0.25 * before("parameters", i);
            }
          }
          expect_close(t["gradients"].values(), expected, 1e-6, "l2");
          for (std::size_t i = 0; i < expected.size(); ++i) {
            ASSERT_NEAR(t["gradients"].get(i), expected[i], 1e-6) << i;
            ASSERT_EQ(t["parameters"].get(i), before("parameters", i));
          }
        });
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
  EXPECT_THROW(softmax_cross_entropy(nullptr, d.tensor(), i.tensor(), 1, true, d.tensor(), scratch),
               std::invalid_argument);
  EXPECT_THROW(mean_squared_error(nullptr, d.tensor(), f.tensor(), 1, true, d.tensor(), scratch),
               std::invalid_argument);
  EXPECT_THROW(sum_of_squares(nullptr, i.tensor(), d.tensor(), scratch), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::model::cuda
