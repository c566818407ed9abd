// Compares the kernels of model/cuda/kernels/sequence_kernels.hpp except attention's (cuda_attention_kernels_test.cpp)
// on the host with loops in float64: odd shapes, unaligned tensors, guards around each, three orders of threads with
// the same bits.
#include <algorithm>

#include "model/cuda/kernels/sequence_kernels.hpp"
#include "model/formulas/dropout.hpp"
#include "model/formulas/gru.hpp"
#include "model/formulas/lstm.hpp"
#include "model/kernel_harness.hpp"
#include "model/lstm_parts.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

/// Keys that use all of their bits.
GuardedTensor& add_keys(Tensors& t, std::int64_t samples) {
  GuardedTensor& keys = t.add("keys", ElementType::uint64, samples, 1);
  const auto all = keys.tensor().elements<std::uint64_t>();
  for (std::size_t s = 0; s < all.size(); ++s) all[s] = key_of(static_cast<std::int64_t>(s));
  return keys;
}

/// Returns the token of a row. Tokens cover the vocabulary, and every second row has the same token.
std::int32_t token_of(std::size_t row, std::int64_t vocabulary) {
  if (row % 2 == 0) return static_cast<std::int32_t>(vocabulary / 2);
  return static_cast<std::int32_t>((sample("token", row) + 1) / 2 * static_cast<double>(vocabulary));
}

GuardedTensor& add_tokens(Tensors& t, std::int64_t rows, std::int64_t vocabulary) {
  GuardedTensor& tokens = t.add("tokens", ElementType::int32, rows, 1);
  for (std::size_t r = 0; r < tokens.count(); ++r) tokens.set(r, token_of(r, vocabulary));
  return tokens;
}

std::vector<double> rounded(std::vector<double> values, ElementType type) {
  GuardedTensor one(type, 1, 1);
  for (double& v : values) {
    one.set(0, v);
    v = one.get(0);
  }
  return values;
}

void fill(GuardedTensor& tensor, const char* name, double scale = 1) {
  for (std::size_t i = 0; i < tensor.count(); ++i) tensor.set(i, scale * sample(name, i));
}

TEST(ToTokens, TakesWholeNumbersOfTheVocabulary) {
  for (const ElementType type : {ElementType::float32, ElementType::uint8, ElementType::float64}) {
    for (const std::int64_t samples : {0, 1, 300}) {
      in_every_order(
          0,
          [&](Tensors& t) {
            GuardedTensor& in = t.add("in", type, samples, 11);
            for (std::size_t i = 0; i < in.count(); ++i) in.set(i, static_cast<double>(i * 7 % 200));
            to_tokens(nullptr, in.tensor(), {.first = 4, .count = 6, .vocabulary = 150},
                      t.add("out", ElementType::int32, samples, 6).tensor());
          },
          [&](Tensors& t) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(samples) * 6; ++i) {
              const std::size_t at = i / 6 * 11 + 4 + i % 6;
              ASSERT_EQ(t["out"].get(i), std::min(static_cast<double>(at * 7 % 200), 149.0));
            }
          });
    }
  }
}

TEST(ToTimeMajor, Transposes) {
  for (const auto& [samples, positions] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 5}, {1, 7}, {20, 35}}) {
    in_every_order(
        0,
        [&](Tensors& t) {
          GuardedTensor& in = t.add("in", ElementType::int32, samples, positions);
          for (std::size_t i = 0; i < in.count(); ++i) in.set(i, static_cast<double>(i));
          to_time_major(nullptr, in.tensor(), t.add("out", ElementType::int32, samples * positions, 1).tensor());
        },
        [&](Tensors& t) {
          for (std::int64_t s = 0; s < samples; ++s) {
            for (std::int64_t p = 0; p < positions; ++p) {
              ASSERT_EQ(t["out"].get(static_cast<std::size_t>(p * samples + s)),
                        static_cast<double>(s * positions + p));
            }
          }
        });
  }
}

struct Embedding {
  std::int64_t rows, vocabulary, width;
};
const std::vector<Embedding> kEmbeddings{{0, 5, 8},     {1, 3, 1},      {35, 7, 24},
                                         {300, 11, 33}, {700, 257, 40}, {257, 3, 264}};

TEST(EmbeddingForward, LooksUpAndAddsPositions) {
  for (const ElementType type : kTypes) {
    for (const Embedding each : kEmbeddings) {
      for (const std::int64_t positions : {0, 7}) {
        const std::size_t shift = static_cast<std::size_t>(each.rows) % 2;
        const std::string what = shape_name("embedding", type, each.rows, each.width, shift);
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor tokens = add_tokens(t, each.rows, each.vocabulary).tensor();
              const Tensor table = t.add_filled("table", type, each.vocabulary, each.width).tensor();
              const Tensor places = t.add_filled("positions", type, 7, each.width).tensor();
              embedding_forward(nullptr, tokens, table, positions > 0 ? places : Tensor{},
                                t.add("y", type, each.rows, each.width).tensor());
            },
            [&](Tensors& t) {
              std::vector<double> expected;
              const auto width = static_cast<std::size_t>(each.width);
              for (std::size_t i = 0; i < t["y"].count(); ++i) {
                const auto token = static_cast<std::size_t>(token_of(i / width, each.vocabulary));
                expected.push_back(t["table"].get(token * width + i % width) +
                                   (positions > 0 ? t["positions"].get(i / width % 7 * width + i % width) : 0));
              }
              EXPECT_EQ(t["y"].values(), rounded(expected, type)) << what;
            });
      }
    }
  }
}

TEST(EmbeddingForward, MakesNaNOfATokenThatTheTableLacks) {
  GuardedTensor tokens(ElementType::int32, 3, 1), table(ElementType::float32, 4, 2), y(ElementType::float32, 3, 2);
  fill(table, "table");
  const std::vector<int> given{4, 3, -1};
  for (std::size_t r = 0; r < 3; ++r) tokens.set(r, given[r]);
  embedding_forward(nullptr, tokens.tensor(), table.tensor(), {}, y.tensor());
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(y.get(i)), i / 2 != 1) << i;
}

TEST(AddEmbeddingGradient, AddsTheRowsOfEachToken) {
  std::vector<Embedding> all = kEmbeddings;
  all.push_back({2500, 13, 24});              // three chunks to sort, long runs in each
  all.push_back({3000, 1500, 8});             // short ones
  all.push_back({kSortedRows + 100, 50, 2});  // two rounds of sorting
  for (const ElementType type : kTypes) {
    for (const Embedding each : all) {
      if (each.rows > kSortedRows && type != ElementType::bfloat16) continue;  // many comparisons
      const std::size_t shift = static_cast<std::size_t>(each.rows) % 2;
      const std::string what = shape_name("embedding", type, each.rows, each.width, shift);
      in_every_order(
          shift,
          [&](Tensors& t) {
            const Tensor tokens = add_tokens(t, each.rows, each.vocabulary).tensor();
            const Tensor d_y = t.add_filled("d_y", type, each.rows, each.width).tensor();
            const Tensor d_table = t.add_filled("d_table", ElementType::float32, each.vocabulary, each.width).tensor();
            add_embedding_gradient(nullptr, tokens, d_y, d_table, t.scratch(1 << 20));
          },
          [&](Tensors& t) {
            const auto width = static_cast<std::size_t>(each.width);
            std::vector<double> expected(t["d_table"].count());
            for (std::size_t i = 0; i < expected.size(); ++i) {
              expected[i] = static_cast<double>(static_cast<float>(sample("d_table", i)));
            }
            for (std::size_t i = 0; i < t["d_y"].count(); ++i) {
              const auto token = static_cast<std::size_t>(token_of(i / width, each.vocabulary));
              expected[token * width + i % width] += t["d_y"].get(i);
            }
            expect_close(t["d_table"].values(), expected, 1e-5, what);
          },
          each.rows > kSortedRows ? 1 : 3);
    }
  }
}

TEST(AddEmbeddingGradient, LeavesOutTokensThatTheTableLacks) {
  GuardedTensor tokens(ElementType::int32, 3, 1), d_y(ElementType::float32, 3, 2), d_table(ElementType::float32, 4, 2);
  GuardedTensor scratch(ElementType::uint64, kSortBytes / sizeof(std::uint64_t), 1);
  const std::vector<int> given{4, 3, -1};
  for (std::size_t r = 0; r < 3; ++r) tokens.set(r, given[r]);
  fill(d_y, "d_y");
  for (std::size_t i = 0; i < 8; ++i) d_table.set(i, 0);
  add_embedding_gradient(nullptr, tokens.tensor(), d_y.tensor(), d_table.tensor(), {scratch.tensor().data, kSortBytes});
  EXPECT_TRUE(d_table.guards_are_intact());
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(d_table.get(i), i < 6 ? 0 : d_y.get(i - 4)) << i;
  EXPECT_THROW(add_embedding_gradient(nullptr, tokens.tensor(), d_y.tensor(), d_table.tensor(), {}),
               std::invalid_argument);
}

/// Mean and inverse deviation of a row.
struct Norm {
  double mean = 0, inverse = 0;
};
Norm norm_of(const std::vector<double>& x, std::size_t row, std::size_t width) {
  Norm norm;
  double variance = 0;
  for (std::size_t c = 0; c < width; ++c) norm.mean += x[row * width + c] / static_cast<double>(width);
  for (std::size_t c = 0; c < width; ++c) {
    variance += std::pow(x[row * width + c] - norm.mean, 2) / static_cast<double>(width);
  }
  norm.inverse = 1 / std::sqrt(variance + 1e-5);
  return norm;
}

/// Fewer rows than shapes(), because each row needs many shuffles in a warp.
std::vector<std::pair<std::int64_t, std::int64_t>> norm_shapes() {
  return {{0, 8},    {1, 1},    {3, 3},    {33, 10},  {257, 8},  {5, 33},   {40, 128}, {3, 257},   {9, 1032},
          {600, 24}, {19, 384}, {18, 384}, {11, 768}, {12, 768}, {9, 1016}, {12, 512}, {2100, 16}, {2060, 264}};
}

TEST(LayerNormForward, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, columns] : norm_shapes()) {
      for (const int variant : {0, 1, 2}) {  // no residual; separate sum; sum in the residual's memory
        const std::size_t shift = static_cast<std::size_t>(rows + columns + variant) % 2;
        const std::string what = shape_name("layer norm", type, rows, columns, shift) + fmt::format(" {}", variant);
        std::vector<double> residual;
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor x = t.add_filled("x", type, rows, columns, 2).tensor();
              const Tensor more = t.add_filled("residual", type, rows, columns).tensor();
              residual = t["residual"].values();
              const Tensor sum = t.add("sum", type, rows, columns).tensor();
              const Tensor scale = t.add_filled("scale", type, 1, columns).tensor();
              const Tensor offset = t.add_filled("shift", type, 1, columns).tensor();
              layer_norm_forward(nullptr, {.x = x,
                                           .residual = variant == 0 ? Tensor{} : more,
                                           .scale = scale,
                                           .shift = offset,
                                           .sum = variant == 0   ? Tensor{}
                                                  : variant == 1 ? sum
                                                                 : more,
                                           .mean = t.add("mean", ElementType::float32, rows, 1).tensor(),
                                           .inverse = t.add("inverse", ElementType::float32, rows, 1).tensor(),
                                           .y = t.add("y", type, rows, columns).tensor()});
            },
            [&](Tensors& t) {
              std::vector<double> sum = t["x"].values(), expected, means, inverses;
              for (std::size_t i = 0; i < sum.size() && variant > 0; ++i) sum[i] += residual[i];
              sum = rounded(sum, type);
              const auto width = static_cast<std::size_t>(columns);
              Norm norm;
              for (std::size_t i = 0; i < sum.size(); ++i) {
                if (i % width == 0) {
                  norm = norm_of(sum, i / width, width);
                  means.push_back(norm.mean);
                  inverses.push_back(norm.inverse);
                }
                expected.push_back(t["scale"].get(i % width) * (sum[i] - norm.mean) * norm.inverse +
                                   t["shift"].get(i % width));
              }
              if (variant > 0) {
                EXPECT_EQ(t[variant == 1 ? "sum" : "residual"].values(), sum) << what;
              }
              expect_close(t["y"].values(), expected, tolerance(type), what);
              expect_close(t["mean"].values(), means, 1e-5, what, 1e-5);
              expect_close(t["inverse"].values(), inverses, 1e-5, what);
            },
            variant == 1 ? 3 : 1);
      }
    }
  }
}

TEST(LayerNormBackward, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, columns] : norm_shapes()) {
      for (const int variant : {0, 1, 2}) {  // no residual and =; separate residual and +=; residual in d_x's memory
        const std::size_t shift = static_cast<std::size_t>(rows + columns + variant) % 2;
        const std::string what = shape_name("layer norm", type, rows, columns, shift) + fmt::format(" {}", variant);
        const auto accumulate = variant == 1 ? Accumulate::yes : Accumulate::no;
        const auto width = static_cast<std::size_t>(columns);
        std::vector<double> residual;
        in_every_order(
            shift,
            [&](Tensors& t) {
              GuardedTensor& x = t.add_filled("x", type, rows, columns, 2);
              const Tensor scale = t.add_filled("scale", type, 1, columns).tensor();
              GuardedTensor& mean = t.add("mean", ElementType::float32, rows, 1);
              GuardedTensor& inverse = t.add("inverse", ElementType::float32, rows, 1);
              const std::vector<double> values = x.values();
              for (std::size_t row = 0; row < mean.count(); ++row) {
                const Norm norm = norm_of(values, row, width);
                mean.set(row, norm.mean);
                inverse.set(row, norm.inverse);
              }
              const Tensor d_y = t.add_filled("d_y", type, rows, columns).tensor();
              const Tensor more = t.add_filled("d_residual", type, rows, columns).tensor();
              residual = t["d_residual"].values();
              GuardedTensor& d_scale = t.add("d_scale", ElementType::float32, 1, columns);
              GuardedTensor& d_shift = t.add("d_shift", ElementType::float32, 1, columns);
              if (variant == 1) {
                fill(d_scale, "before");
                fill(d_shift, "before");
              }
              const Tensor d_x = t.add("d_x", type, rows, columns).tensor();
              layer_norm_backward(nullptr,
                                  {.x = x.tensor(),
                                   .scale = scale,
                                   .mean = mean.tensor(),
                                   .inverse = inverse.tensor(),
                                   .d_y = d_y,
                                   .d_residual = variant == 0 ? Tensor{} : more,
                                   .d_scale = d_scale.tensor(),
                                   .d_shift = d_shift.tensor(),
                                   .d_x = variant == 2 ? more : d_x},
                                  accumulate, t.scratch(columns));
            },
            [&](Tensors& t) {
              const std::vector<double> x = t["x"].values(), d_y = t["d_y"].values();
              std::vector<double> d_x(x.size()), d_scale(width), d_shift(width), magnitudes(width);
              for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
                const Norm norm = norm_of(x, row, width);
                double total = 0, along = 0;
                for (std::size_t c = 0; c < width; ++c) {
                  const double n = (x[row * width + c] - norm.mean) * norm.inverse, d = d_y[row * width + c];
                  total += d * t["scale"].get(c) / static_cast<double>(columns);
                  along += d * t["scale"].get(c) * n / static_cast<double>(columns);
                  d_scale[c] += d * n;
                  d_shift[c] += d;
                  magnitudes[c] += std::abs(d) * (1 + std::abs(n));
                }
                for (std::size_t c = 0; c < width; ++c) {
                  const std::size_t i = row * width + c;
                  const double n = (x[i] - norm.mean) * norm.inverse;
                  d_x[i] =
                      norm.inverse * (d_y[i] * t["scale"].get(c) - total - n * along) + (variant > 0 ? residual[i] : 0);
                }
              }
              // In rows of one number, the gradient is only rounding.
              expect_close(t[variant == 2 ? "d_residual" : "d_x"].values(), d_x, tolerance(type), what, 1e-3);
              for (std::size_t c = 0; c < width; ++c) {
                const double before = variant == 1 ? static_cast<double>(static_cast<float>(sample("before", c))) : 0;
                ASSERT_NEAR(t["d_scale"].get(c), before + d_scale[c], 1e-6 * (magnitudes[c] + 1)) << what;
                ASSERT_NEAR(t["d_shift"].get(c), before + d_shift[c], 1e-6 * (magnitudes[c] + 1)) << what;
              }
            },
            variant == 1 ? 3 : 1);
      }
    }
  }
}

TEST(LayerNorm, LetsWhatIsNotANumberThrough) {
  GuardedTensor x(ElementType::float32, 2, 40), scale(ElementType::float32, 1, 40), y(ElementType::float32, 2, 40);
  GuardedTensor mean(ElementType::float32, 2, 1), inverse(ElementType::float32, 2, 1);
  fill(x, "x");
  fill(scale, "scale");
  x.set(7, kInfinity);
  layer_norm_forward(nullptr, {.x = x.tensor(),
                               .scale = scale.tensor(),
                               .shift = scale.tensor(),
                               .mean = mean.tensor(),
                               .inverse = inverse.tensor(),
                               .y = y.tensor()});
  for (std::size_t i = 0; i < 80; ++i) EXPECT_EQ(std::isnan(y.get(i)), i < 40) << i;
}

double gelu_of(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST(Gelu, MatchesFloat64) {
  for (const ElementType type : kTypes) {
    for (const auto& [rows, columns] : shapes()) {
      for (const int variant : {0, 1, 2}) {  // no bias; = ; +=
        const std::size_t shift = static_cast<std::size_t>(rows + columns + variant) % 2;
        const std::string what = shape_name("gelu", type, rows, columns, shift) + fmt::format(" {}", variant);
        const auto width = static_cast<std::size_t>(columns);
        std::vector<double> x, before;
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor in = t.add_filled("x", type, rows, columns, 4).tensor();
              const Tensor bias = t.add_filled("bias", type, 1, columns).tensor();
              x = t["x"].values();
              gelu_forward(nullptr, in, variant == 0 ? Tensor{} : bias, t.add("y", type, rows, columns).tensor());
              const Tensor d_y = t.add_filled("d_y", type, rows, columns).tensor();
              before = t["d_y"].values();
              GuardedTensor& d_bias = t.add("d_bias", ElementType::float32, 1, columns);
              if (variant == 2) fill(d_bias, "before");
              gelu_backward(nullptr, in, d_y, variant == 2 ? Accumulate::yes : Accumulate::no,
                            variant == 0 ? Tensor{} : d_bias.tensor(), t.scratch(columns));
            },
            [&](Tensors& t) {
              std::vector<double> y, d_x, sums(width), magnitudes(width);
              for (std::size_t i = 0; i < x.size() && variant > 0; ++i) x[i] += t["bias"].get(i % width);
              x = rounded(x, type);
              EXPECT_EQ(t["x"].values(), x) << what;
              for (std::size_t i = 0; i < x.size(); ++i) {
                y.push_back(gelu_of(x[i]));
                d_x.push_back(before[i] * gelu_slope(x[i]));
                sums[i % width] += d_x.back();
                magnitudes[i % width] += std::abs(d_x.back());
              }
              expect_close(t["y"].values(), y, tolerance(type), what);
              expect_close(t["d_y"].values(), d_x, tolerance(type), what);
              for (std::size_t c = 0; c < width && variant > 0; ++c) {
                const double was = variant == 2 ? static_cast<double>(static_cast<float>(sample("before", c))) : 0;
                ASSERT_NEAR(t["d_bias"].get(c), was + sums[c], 1e-6 * (magnitudes[c] + 1)) << what;
              }
            },
            variant == 1 ? 3 : 1);
      }
    }
  }
}

TEST(DropoutKernel, DropsWhatTheFormulaSays) {
  struct Shape {
    std::int64_t samples, positions, columns;
  };
  for (const ElementType type : kTypes) {
    for (const Shape each : {Shape{0, 3, 4}, {1, 1, 1}, {3, 5, 7}, {5, 9, 16}, {2, 300, 33}, {2, 70, 64}}) {
      for (const RowOrder order : {RowOrder::sample_major, RowOrder::time_major}) {
        for (const bool in_place : {true, false}) {
          const std::size_t shift = static_cast<std::size_t>(each.columns / 16) % 2;
          const Dropout rule{.rate = 0.3f, .stream = 17, .order = order, .first_position = each.samples % 3};
          const std::int64_t rows = each.samples * each.positions;
          std::vector<double> x;
          std::size_t kept = 0;
          in_every_order(
              shift,
              [&](Tensors& t) {
                const Tensor keys = add_keys(t, each.samples).tensor();
                const Tensor in = t.add_filled("x", type, rows, each.columns).tensor();
                x = t["x"].values();
                dropout(nullptr, in, keys, rule, in_place ? in : t.add("y", type, rows, each.columns).tensor());
              },
              [&](Tensors& t) {
                const auto numbers = formulas::dropout_numbers(rule);
                for (std::size_t i = 0; i < x.size(); ++i) {
                  const auto row = static_cast<std::int64_t>(i) / each.columns;
                  const auto indices = formulas::indices_of(order, each.samples, each.positions, row);
                  const auto number = (rule.first_position + indices.position) * each.columns +
                                      static_cast<std::int64_t>(i) % each.columns;
                  const float factor =
                      formulas::dropout_element(numbers, key_of(indices.sample), static_cast<std::uint64_t>(number));
                  kept += factor > 0;
                  x[i] *= static_cast<double>(factor);
                }
                expect_close(t[in_place ? "x" : "y"].values(), x, tolerance(type), "dropout");
                if (x.size() > 1000) {
                  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(x.size()), 0.7, 0.03);
                }
              });
        }
      }
    }
  }
}

TEST(LstmSteps, MatchTheFormulas) {
  struct Shape {
    std::int64_t sequences, units;
  };
  for (const ElementType type : kTypes) {
    for (const Shape each : {Shape{0, 4}, {1, 1}, {3, 7}, {20, 36}, {5, 130}, {4, 34}}) {
      for (const LastStep last : {LastStep::yes, LastStep::no}) {
        const std::size_t shift = static_cast<std::size_t>(each.sequences) % 2;
        const bool in_parts = last == LastStep::no && each.units != 36;
        const std::string what = shape_name("lstm", type, each.sequences, each.units, shift);
        std::vector<double> z, d_cell;
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor gates = t.add_filled("gates", type, each.sequences, 4 * each.units, 3).tensor();
              z = t["gates"].values();
              const Tensor before = t.add_filled("before", type, each.sequences, each.units).tensor();
              const Tensor cells = t.add("cells", type, each.sequences, each.units).tensor();
              lstm_step_forward(nullptr, gates, before, cells,
                                t.add("hidden", type, each.sequences, each.units).tensor());
              GuardedTensor& back = t.add("back", type, each.sequences, 4 * each.units);
              for (std::size_t i = 0; i < back.count(); ++i) back.set(i, t["gates"].get(i));
              GuardedTensor& d = t.add("d_cell", type, each.sequences, each.units);
              if (last == LastStep::no) fill(d, "d_cell");
              d_cell = d.values();
              const Tensor d_hidden = t.add_filled("d_hidden", type, each.sequences, each.units).tensor();
              const Tensor parts =
                  t.add_filled("parts", ElementType::float32, kLstmParts * each.sequences, each.units).tensor();
              lstm_step_backward(nullptr, back.tensor(), before, cells, d_hidden, in_parts ? parts : Tensor{}, last,
                                 d.tensor());
            },
            [&](Tensors& t) {
              const auto units = static_cast<std::size_t>(each.units);
              std::vector<double> gates(z.size()), sums(z.size()), cells, hidden, d_before;
              for (std::size_t i = 0; i < t["before"].count(); ++i) {
                const std::size_t at = i / units * 4 * units + i % units;
                const auto active =
                    formulas::lstm_activate<double>({z[at], z[at + units], z[at + 2 * units], z[at + 3 * units]});
                const auto state = formulas::lstm_step(active, t["before"].get(i));
                cells.push_back(state.cell);
                hidden.push_back(state.hidden);
                gates[at] = active.input;
                gates[at + units] = active.forget;
                gates[at + 2 * units] = active.cell;
                gates[at + 3 * units] = active.output;
                double reaches = t["d_hidden"].get(i);
                for (std::size_t p = 0; in_parts && p < kLstmParts; ++p) {
                  reaches += t["parts"].get(p * t["before"].count() + i);
                }
                const auto back = formulas::lstm_step_back<double>(
                    {t["gates"].get(at), t["gates"].get(at + units), t["gates"].get(at + 2 * units),
                     t["gates"].get(at + 3 * units)},
                    t["before"].get(i), t["cells"].get(i), reaches, last == LastStep::yes ? 0 : d_cell[i]);
                sums[at] = back.sums.input;
                sums[at + units] = back.sums.forget;
                sums[at + 2 * units] = back.sums.cell;
                sums[at + 3 * units] = back.sums.output;
                d_before.push_back(back.cell_before);
              }
              expect_close(t["gates"].values(), gates, tolerance(type), what);
              expect_close(t["cells"].values(), cells, tolerance(type), what);
              expect_close(t["hidden"].values(), hidden, tolerance(type), what);
              expect_close(t["back"].values(), sums, tolerance(type), what);
              expect_close(t["d_cell"].values(), d_before, tolerance(type), what);
            });
      }
    }
  }
}

TEST(GruSteps, MatchTheFormulas) {
  struct Shape {
    std::int64_t sequences, units;
  };
  for (const ElementType type : kTypes) {
    for (const Shape each : {Shape{0, 4}, {1, 1}, {3, 7}, {20, 36}, {5, 130}, {4, 34}}) {
      for (const bool first : {false, true}) {
        const std::size_t shift = static_cast<std::size_t>(each.sequences) % 2;
        const std::string what = shape_name("gru", type, each.sequences, each.units, shift);
        std::vector<double> a, p, d_earlier;
        in_every_order(
            shift,
            [&](Tensors& t) {
              const Tensor gates = t.add_filled("gates", type, each.sequences, 3 * each.units, 3).tensor();
              const Tensor products = t.add_filled("products", type, each.sequences, 3 * each.units).tensor();
              a = t["gates"].values();
              p = t["products"].values();
              const Tensor bias = t.add_filled("bias", type, 1, 3 * each.units).tensor();
              const Tensor before = t.add_filled("before", type, each.sequences, each.units).tensor();
              gru_step_forward(nullptr, gates, products, bias, before,
                               t.add("hidden", type, each.sequences, each.units).tensor());
              GuardedTensor& back = t.add("back", type, each.sequences, 3 * each.units);
              GuardedTensor& back_products = t.add("back products", type, each.sequences, 3 * each.units);
              for (std::size_t i = 0; i < back.count(); ++i) {
                back.set(i, t["gates"].get(i));
                back_products.set(i, t["products"].get(i));
              }
              const Tensor d_hidden = t.add_filled("d_hidden", type, each.sequences, each.units).tensor();
              const Tensor d_before = t.add_filled("d_before", type, each.sequences, each.units).tensor();
              d_earlier = t["d_before"].values();
              gru_step_backward(nullptr, back.tensor(), back_products.tensor(), before, d_hidden,
                                first ? Tensor{} : d_before);
            },
            [&](Tensors& t) {
              const auto units = static_cast<std::size_t>(each.units);
              std::vector<double> gates(a.size()), products(p), sums(a.size()), back(p.size()), hidden;
              for (std::size_t i = 0; i < t["before"].count(); ++i) {
                const std::size_t at = i / units * 3 * units + i % units;
                const auto c = [&](std::size_t g) { return p[at + g * units] + t["bias"].get(i % units + g * units); };
                const auto active =
                    formulas::gru_activate<double>({a[at], a[at + units], a[at + 2 * units]}, {c(0), c(1), c(2)});
                hidden.push_back(formulas::gru_step(active, t["before"].get(i)));
                gates[at] = active.reset;
                gates[at + units] = active.update;
                gates[at + 2 * units] = active.candidate;
                products[at + 2 * units] = c(2);
                const auto gradients = formulas::gru_step_back<double>(
                    {t["gates"].get(at), t["gates"].get(at + units), t["gates"].get(at + 2 * units)},
                    t["products"].get(at + 2 * units), t["before"].get(i), t["d_hidden"].get(i));
                sums[at] = gradients.inputs.reset;
                sums[at + units] = gradients.inputs.update;
                sums[at + 2 * units] = gradients.inputs.candidate;
                back[at] = gradients.products.reset;
                back[at + units] = gradients.products.update;
                back[at + 2 * units] = gradients.products.candidate;
                if (!first) d_earlier[i] += gradients.before;
              }
              expect_close(t["gates"].values(), gates, tolerance(type), what);
              expect_close(t["products"].values(), products, tolerance(type), what);
              expect_close(t["hidden"].values(), hidden, tolerance(type), what);
              expect_close(t["back"].values(), sums, tolerance(type), what);
              expect_close(t["back products"].values(), back, tolerance(type), what);
              expect_close(t["d_before"].values(), d_earlier, tolerance(type), what);
            });
      }
    }
  }
}

/// A whole layer runs in every order of its block's threads; gpu/sequence_operations_test.cpp judges what it computes.
TEST(RecurrentLayers, MakeTheSameBitsInEveryOrder) {
  struct LayerSize {
    std::int64_t steps, sequences, units;
  };
  for (const LayerSize& at : {LayerSize{3, 9, 20}, {4, 3, 34}, {3, 8, 128}}) {
    const std::int64_t rows = at.steps * at.sequences, states = rows + at.sequences;
    const ElementType type = ElementType::bfloat16;
    in_every_order(
        0,
        [&](Tensors& t) {
          const auto filled = [&](const char* name, std::int64_t of_rows, std::int64_t columns) {
            return t.add_filled(name, type, of_rows, columns).tensor();
          };
          const Tensor d_hidden = filled("d_hidden", rows, at.units);
          {
            const Gru shape{.steps = at.steps, .sequences = at.sequences, .hidden = at.units};
            const Tensor gates = filled("gru gates", rows, 3 * at.units), hidden = filled("gru", states, at.units);
            const Tensor recurrent = filled("gru recurrent", at.units, 3 * at.units);
            const Tensor products = filled("products", rows, 3 * at.units), bias = filled("bias", 1, 3 * at.units);
            ASSERT_TRUE(takes_whole_layer(hidden));
            gru_layer_forward(
                nullptr, shape,
                {.gates = gates, .recurrent = recurrent, .bias = bias, .products = products, .hidden = hidden});
            gru_layer_backward(
                nullptr, shape,
                {.gates = gates, .recurrent = recurrent, .products = products, .hidden = hidden, .d_hidden = d_hidden});
          }
          const Lstm shape{.steps = at.steps, .sequences = at.sequences, .hidden = at.units};
          const Tensor gates = filled("gates", rows, 4 * at.units), hidden = filled("hidden", states, at.units);
          const Tensor recurrent = filled("recurrent", at.units, 4 * at.units),
                       cells = filled("cells", states, at.units);
          const Tensor d_cell = filled("d_cell", at.sequences, at.units);
          lstm_layer_forward(nullptr, shape,
                             {.gates = gates, .recurrent = recurrent, .cells = cells, .hidden = hidden});
          lstm_layer_backward(
              nullptr, shape,
              {.gates = gates, .recurrent = recurrent, .cells = cells, .d_hidden = d_hidden, .d_cell = d_cell});
        },
        [&](Tensors& t) {
          for (const char* const name : {"gru gates", "products", "gru", "gates", "cells", "hidden"}) {
            for (const double value : t[name].values()) ASSERT_TRUE(std::isfinite(value)) << name;
          }
        });
  }
}

/// Calls for ranges of steps give the bits of one call for all steps.
TEST(RecurrentLayers, LstmInPartsMakesTheSameBits) {
  const Lstm shape{.steps = 7, .sequences = 5, .hidden = 40};
  const std::int64_t rows = shape.steps * shape.sequences, states = rows + shape.sequences;
  Tensors t(0);
  const auto backward = [&](const std::string& name, std::int64_t steps_of_part) {
    const auto filled = [&](const char* part, std::int64_t of_rows, std::int64_t columns) {
      GuardedTensor& tensor = t.add(name + part, ElementType::bfloat16, of_rows, columns);
      fill(tensor, part);
      return tensor.tensor();
    };
    const LstmBackwardOperands whole{.gates = filled("gates", rows, 4 * shape.hidden),
                                     .recurrent = filled("recurrent", shape.hidden, 4 * shape.hidden),
                                     .cells = filled("cells", states, shape.hidden),
                                     .d_hidden = filled("d_hidden", rows, shape.hidden),
                                     .d_cell = filled("d_cell", shape.sequences, shape.hidden)};
    struct Layer {
      void lstm_backward(const Lstm& of, const LstmBackwardOperands& operands) {
        lstm_layer_backward(nullptr, of, operands);
      }
    } layer;
    model::test::lstm_backward_in_parts(layer, shape, whole, steps_of_part);
    return t[name + "gates"].values();
  };
  const std::vector<double> at_once = backward("at once ", shape.steps);
  EXPECT_EQ(backward("by three ", 3), at_once);
  EXPECT_EQ(backward("one by one ", 1), at_once);
}

}  // namespace
}  // namespace lockstep::model::cuda
