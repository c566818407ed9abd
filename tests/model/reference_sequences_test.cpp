// Tests the reference operations on sequences: gradients by finite differences, values by another form of the formula.
// dropout_test.cpp tests dropout.
#include "model/reference/reference_sequences.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "finite_differences.hpp"
#include "lstm_parts.hpp"
#include "model/formulas/dropout.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::expect_gradient;
using test::labels;
using test::samples;
using test::view;
using test::weighted;
using test::zeros;

void expect_twice(const std::vector<double>& got, const std::vector<double>& once) {
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], 2 * once[i], 1e-12) << i;
}

TEST(ReferenceTokens, TurnToTimeMajor) {
  ReferenceSequences sequences;
  std::vector<std::int32_t> tokens{1, 2, 3, 4, 5, 6}, out(6), none;
  sequences.to_time_major(view(tokens, 2, 3), view(out, 6, 1));
  EXPECT_EQ(out, (std::vector<std::int32_t>{1, 4, 2, 5, 3, 6}));
  sequences.to_time_major(view(none, 0, 3), view(none, 0, 1));
}

TEST(ReferenceTokens, AreWholeNumbersOfTheVocabulary) {
  ReferenceSequences sequences;
  std::vector<double> row{9, 0, 3, 6, 7, -2, 9, 2, 1, 400, 5, 9};
  std::vector<std::int32_t> out(8);
  sequences.to_tokens(view(row, 2, 6), {.first = 1, .count = 4, .vocabulary = 7}, view(out, 2, 4));
  EXPECT_EQ(out, (std::vector<std::int32_t>{0, 3, 6, 6, 2, 1, 6, 5}));
}

TEST(ReferenceEmbedding, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const auto& [rows, vocabulary, width, positions] :
       {std::tuple{6, 4, 3, 3}, std::tuple{5, 7, 1, 0}, std::tuple{8, 2, 2, 4}, std::tuple{0, 3, 2, 2}}) {
    auto tokens = labels(rows, vocabulary);
    auto table = samples<double>("table", vocabulary * width), place = samples<double>("place", positions * width);
    auto y = zeros(rows * width);
    const auto weight = samples<double>("weight", rows * width);
    const Tensor places = positions > 0 ? view(place, positions, width) : Tensor{};
    const auto f = [&] {
      sequences.embedding_forward(view(tokens, rows, 1), view(table, vocabulary, width), places, view(y, rows, width));
      return weighted(weight, y);
    };
    f();
    if (rows > 0) {
      const auto last = static_cast<std::size_t>(rows * width - 1);
      const double placed =
          positions > 0 ? place[static_cast<std::size_t>(((rows - 1) % positions + 1) * width - 1)] : 0;
      EXPECT_EQ(y[last], table[static_cast<std::size_t>((tokens.back() + 1) * width - 1)] + placed);
    }
    auto d_y = weight;
    std::vector<double> d_table(table.size(), 9.0), d_place(place.size(), 9.0);
    const auto backward = [&](Accumulate accumulate) {
      sequences.embedding_backward(view(tokens, rows, 1), view(d_y, rows, width), accumulate,
                                   view(d_table, vocabulary, width),
                                   positions > 0 ? view(d_place, positions, width) : Tensor{});
    };
    backward(Accumulate::no);
    const auto d_table_once = d_table, d_place_once = d_place;
    backward(Accumulate::yes);
    expect_twice(d_table, d_table_once);
    expect_twice(d_place, d_place_once);
    expect_gradient(table, d_table_once, f, "table");
    expect_gradient(place, d_place_once, f, "positions");
  }
}

TEST(ReferenceProjection, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const auto& [rows, vocabulary, width] : {std::tuple{3, 5, 4}, std::tuple{1, 1, 2}, std::tuple{0, 3, 2}}) {
    auto x = samples<double>("x", rows * width), table = samples<double>("table", vocabulary * width);
    auto y = zeros(rows * vocabulary);
    const auto weight = samples<double>("weight", rows * vocabulary);
    const Tensor in = view(x, rows, width), rowed = view(table, vocabulary, width);
    const auto f = [&] {
      sequences.project_forward(in, rowed, view(y, rows, vocabulary));
      return weighted(weight, y);
    };
    f();
    auto d_y = weight;
    std::vector<double> d_table(table.size(), 9.0), d_x(x.size(), 9.0);
    const auto backward = [&](Accumulate accumulate) {
      sequences.project_backward(in, rowed, view(d_y, rows, vocabulary), accumulate, view(d_table, vocabulary, width),
                                 view(d_x, rows, width));
    };
    backward(Accumulate::no);
    const auto once = d_table;
    backward(Accumulate::yes);
    expect_twice(d_table, once);
    expect_gradient(x, d_x, f, "x");
    expect_gradient(table, once, f, "table");
  }
}

TEST(ReferenceLayerNorm, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const auto& [rows, width, with_residual] :
       {std::tuple{3, 5, false}, std::tuple{2, 4, true}, std::tuple{4, 2, true}, std::tuple{0, 3, true}}) {
    auto x = samples<double>("x", rows * width, 2), residual = samples<double>("residual", rows * width);
    auto scale = samples<double>("scale", width), shift = samples<double>("shift", width);
    auto sum = zeros(rows * width), y = zeros(rows * width), mean = zeros(rows), inverse = zeros(rows);
    const auto weight = samples<double>("weight", rows * width), past = samples<double>("past", rows * width);
    const auto matrix = [&](std::vector<double>& of) { return view(of, rows, width); };
    const auto vector = [&](std::vector<double>& of) { return view(of, 1, width); };
    const auto column = [&](std::vector<double>& of) { return view(of, rows, 1); };
    // The sum also has other readers, with separate weights.
    const auto f = [&] {
      sequences.layer_norm_forward({.x = matrix(x),
                                    .residual = with_residual ? matrix(residual) : Tensor{},
                                    .scale = vector(scale),
                                    .shift = vector(shift),
                                    .sum = with_residual ? matrix(sum) : Tensor{},
                                    .mean = column(mean),
                                    .inverse = column(inverse),
                                    .y = matrix(y)});
      return weighted(weight, y) + (with_residual ? weighted(past, sum) : 0);
    };
    f();
    auto d_y = weight, d_past = past;
    std::vector<double> d_scale(scale.size(), 9.0), d_shift(scale.size(), 9.0), d_x(x.size(), 9.0);
    const auto backward = [&](Accumulate accumulate, const Tensor& d_residual, const Tensor& to) {
      sequences.layer_norm_backward({.x = matrix(with_residual ? sum : x),
                                     .scale = vector(scale),
                                     .mean = column(mean),
                                     .inverse = column(inverse),
                                     .d_y = matrix(d_y),
                                     .d_residual = d_residual,
                                     .d_scale = vector(d_scale),
                                     .d_shift = vector(d_shift),
                                     .d_x = to},
                                    accumulate);
    };
    backward(Accumulate::no, with_residual ? matrix(d_past) : Tensor{}, matrix(d_x));
    const auto d_scale_once = d_scale, d_shift_once = d_shift;
    backward(Accumulate::yes, with_residual ? matrix(d_past) : Tensor{}, matrix(d_x));
    expect_twice(d_scale, d_scale_once);
    expect_twice(d_shift, d_shift_once);
    expect_gradient(x, d_x, f, "x");
    if (with_residual) expect_gradient(residual, d_x, f, "residual");
    expect_gradient(scale, d_scale_once, f, "scale");
    expect_gradient(shift, d_shift_once, f, "shift");
    if (!with_residual) continue;
    f();
    backward(Accumulate::no, matrix(d_past), matrix(d_past));
    EXPECT_EQ(d_past, d_x) << "in place of d_residual";
    // The sum may use the memory of x or the residual.
    const auto y_apart = y, sum_apart = sum;
    for (const bool on_x : {true, false}) {
      auto x_copy = x, residual_copy = residual;
      const Tensor on = matrix(on_x ? x_copy : residual_copy);
      sequences.layer_norm_forward({.x = matrix(x_copy),
                                    .residual = matrix(residual_copy),
                                    .scale = vector(scale),
                                    .shift = vector(shift),
                                    .sum = on,
                                    .mean = column(mean),
                                    .inverse = column(inverse),
                                    .y = matrix(y)});
      EXPECT_EQ(y, y_apart);
      EXPECT_EQ(on_x ? x_copy : residual_copy, sum_apart);
    }
  }
}

TEST(ReferenceLayerNorm, RowsHaveTheScalesDeviation) {
  ReferenceSequences sequences;
  const std::int64_t width = 50;
  auto x = samples<double>("x", width, 5), y = zeros(width), mean = zeros(1), inverse = zeros(1);
  std::vector<double> scale(50, 2.0), shift(50, 3.0);
  sequences.layer_norm_forward({.x = view(x, 1, width),
                                .scale = view(scale, 1, width),
                                .shift = view(shift, 1, width),
                                .mean = view(mean, 1, 1),
                                .inverse = view(inverse, 1, 1),
                                .y = view(y, 1, width)});
  double average = 0, variance = 0;
  for (const double v : y) average += v / 50;
  for (const double v : y) variance += (v - average) * (v - average) / 50;
  EXPECT_NEAR(average, 3, 1e-12);
  EXPECT_NEAR(variance, 4, 1e-4);
}

TEST(ReferenceGelu, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const auto& [rows, width, with_bias] :
       {std::tuple{4, 5, true}, std::tuple{3, 1, false}, std::tuple{0, 3, true}}) {
    auto start = samples<double>("x", rows * width, 4), bias = samples<double>("bias", width), x = start, y = start;
    const auto weight = samples<double>("weight", rows * width);
    const auto f = [&] {
      x = start;
      sequences.gelu_forward(view(x, rows, width), with_bias ? view(bias, 1, width) : Tensor{}, view(y, rows, width));
      return weighted(weight, y);
    };
    f();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(x[i], start[i] + (with_bias ? bias[i % static_cast<std::size_t>(width)] : 0));
    }
    auto d_y = weight;
    std::vector<double> d_bias(bias.size(), 9.0);
    sequences.gelu_backward(view(x, rows, width), view(d_y, rows, width), Accumulate::no,
                            with_bias ? view(d_bias, 1, width) : Tensor{});
    expect_gradient(start, d_y, f, "x");
    if (!with_bias) continue;
    expect_gradient(bias, d_bias, f, "bias");
    const auto once = d_bias;
    f();
    d_y = weight;
    sequences.gelu_backward(view(x, rows, width), view(d_y, rows, width), Accumulate::yes, view(d_bias, 1, width));
    expect_twice(d_bias, once);
  }
}

/// The exact form is 0.5 x (1 + erf(x / sqrt 2)). The form with tanh differs by at most 5e-4.
TEST(ReferenceGelu, IsCloseToTheExactForm) {
  ReferenceSequences sequences;
  for (double v = -6; v <= 6; v += 0.25) {
    std::vector<double> x{v}, y(1);
    sequences.gelu_forward(view(x, 1, 1), {}, view(y, 1, 1));
    EXPECT_NEAR(y[0], 0.5 * v * (1 + std::erf(v / std::numbers::sqrt2)), 5e-4);
  }
}

struct AttentionRun {
  Attention shape;
  std::int64_t samples_ = 2;
  std::int64_t rows = samples_ * shape.context;
  std::vector<double> joint = samples<double>("joint", rows * 3 * shape.width(), 2);
  std::vector<double> y = zeros(rows * shape.width()), log_sums = zeros(rows * shape.heads);
  std::vector<std::uint64_t> keys = test::sample_keys(samples_);

  Tensor joints(std::vector<double>& of) const { return view(of, rows, 3 * shape.width()); }
  Tensor outs(std::vector<double>& of) const { return view(of, rows, shape.width()); }
  Tensor sums() { return view(log_sums, samples_ * shape.heads, shape.context); }
  void forward(ReferenceSequences& sequences) {
    sequences.attention_forward(
        shape, {.joint = joints(joint), .dropout_keys = view(keys, samples_, 1), .y = outs(y), .log_sums = sums()});
  }
};

const std::vector<Attention>& attentions() {
  static const std::vector<Attention> shapes{
      {.context = 4, .heads = 2, .head_size = 3, .dropout = {}},
      {.context = 1, .heads = 3, .head_size = 2, .dropout = {}},
      {.context = 5, .heads = 1, .head_size = 4, .dropout = {.rate = 0.4f, .stream = 17}},
      {.context = 4, .heads = 2, .head_size = 3, .dropout = {}, .causal = false},
      {.context = 3, .heads = 1, .head_size = 2, .dropout = {.rate = 0.4f, .stream = 17}, .causal = false},
  };
  return shapes;
}

/// Computes the whole matrix of scores of one head, masks it, and applies softmax, dropout and product one after the
/// other.
TEST(ReferenceAttention, MatchesTheMatrixForm) {
  ReferenceSequences sequences;
  for (const Attention& shape : attentions()) {
    AttentionRun run{shape};
    run.forward(sequences);
    const std::int64_t context = shape.context, size = shape.head_size;
    for (std::int64_t s = 0; s < run.samples_; ++s) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        const auto element = [&](std::int64_t part, std::int64_t position, std::int64_t c) {
          const std::int64_t column = part * shape.width() + h * size + c;
          return run.joint[static_cast<std::size_t>((s * context + position) * 3 * shape.width() + column)];
        };
        for (std::int64_t i = 0; i < context; ++i) {
          std::vector<double> p(static_cast<std::size_t>(context));
          double total = 0;
          for (std::int64_t j = 0; j < context; ++j) {
            double score = 0;
            for (std::int64_t c = 0; c < size; ++c) score += element(0, i, c) * element(1, j, c);
            p[static_cast<std::size_t>(j)] =
                j > i && shape.causal ? 0 : std::exp(score / std::sqrt(static_cast<double>(size)));
            total += p[static_cast<std::size_t>(j)];
          }
          EXPECT_NEAR(run.log_sums[static_cast<std::size_t>((s * shape.heads + h) * context + i)], std::log(total),
                      1e-12);
          for (std::int64_t c = 0; c < size; ++c) {
            double expected = 0;
            for (std::int64_t j = 0; j < context; ++j) {
              const auto number = static_cast<std::uint32_t>((h * context + i) * context + j);
              const auto key = run.keys[static_cast<std::size_t>(s)];
              const PhiloxCounter words =
                  philox4x32({number / 4, 0, shape.dropout.stream, 0},
                             {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)});
              const double rate = shape.dropout.rate;
              const bool kept = words[number % 4] >= rate * 0x1p32;
              expected += kept ? p[static_cast<std::size_t>(j)] / total / (1 - rate) * element(2, j, c) : 0;
            }
            EXPECT_NEAR(run.y[static_cast<std::size_t>((s * context + i) * shape.width() + h * size + c)], expected,
                        1e-6 * std::abs(expected) + 1e-12);
          }
        }
      }
    }
  }
}

TEST(ReferenceAttention, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const Attention& shape : attentions()) {
    AttentionRun run{shape};
    const auto weight = samples<double>("weight", static_cast<std::int64_t>(run.y.size()));
    const auto f = [&] {
      run.forward(sequences);
      return weighted(weight, run.y);
    };
    f();
    auto d_y = weight;
    std::vector<double> d_joint(run.joint.size(), 9.0);
    sequences.attention_backward(shape, {.joint = run.joints(run.joint),
                                         .dropout_keys = view(run.keys, run.samples_, 1),
                                         .y = run.outs(run.y),
                                         .log_sums = run.sums(),
                                         .d_y = run.outs(d_y),
                                         .d_joint = run.joints(d_joint)});
    expect_gradient(run.joint, d_joint, f, "joint");
  }
}

TEST(ReferenceAttention, LooksOnlyBackAndTakesAnEmptyBatch) {
  ReferenceSequences sequences;
  AttentionRun run{attentions()[0]};
  run.forward(sequences);
  const auto before = run.y;
  for (double& v : run.joint) v = &v >= &run.joint[static_cast<std::size_t>(2 * 3 * run.shape.width())] ? -v : v;
  run.forward(sequences);  // positions from 2 on of the first sample now differ
  const auto seen = static_cast<std::ptrdiff_t>(2 * run.shape.width());
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + seen, run.y.begin()));
  EXPECT_NE(before[static_cast<std::size_t>(seen)], run.y[static_cast<std::size_t>(seen)]);

  AttentionRun none{attentions()[2], 0};
  none.forward(sequences);
  sequences.attention_backward(none.shape, {.joint = none.joints(none.joint),
                                            .y = none.outs(none.y),
                                            .log_sums = none.sums(),
                                            .d_y = none.outs(none.y),
                                            .d_joint = none.joints(none.joint)});
}

struct LstmRun {
  Lstm shape;
  std::int64_t rows = shape.steps * shape.sequences, units = shape.hidden;
  std::vector<double> sums = samples<double>("gates", rows * 4 * units, 2), gates = sums;
  std::vector<double> recurrent = samples<double>("recurrent", units * 4 * units);
  std::vector<double> cells = samples<double>("cells", (rows + shape.sequences) * units);
  std::vector<double> hidden = samples<double>("hidden", (rows + shape.sequences) * units);

  Tensor gate_rows() { return view(gates, rows, 4 * units); }
  Tensor weights() { return view(recurrent, units, 4 * units); }
  Tensor states(std::vector<double>& of) const { return view(of, rows + shape.sequences, units); }
  /// Returns h(1) ... h(steps).
  std::vector<double> outputs() const { return {hidden.begin() + shape.sequences * units, hidden.end()}; }
  void forward(ReferenceSequences& sequences) {
    gates = sums;
    sequences.lstm_forward(
        shape, {.gates = gate_rows(), .recurrent = weights(), .cells = states(cells), .hidden = states(hidden)});
  }
};

TEST(ReferenceLstm, MatchesTheScalarFormula) {
  ReferenceSequences sequences;
  LstmRun run{{.steps = 4, .sequences = 2, .hidden = 1}};
  const auto sigmoid = [](double v) { return 0.5 * (1 + std::tanh(v / 2)); };
  for (std::size_t sequence = 0; sequence < 2; ++sequence) {
    double c = run.cells[sequence], h = run.hidden[sequence];
    run.forward(sequences);
    for (std::size_t t = 0; t < 4; ++t) {
      const double* z = &run.sums[(t * 2 + sequence) * 4];
      const double i = sigmoid(z[0] + h * run.recurrent[0]), f = sigmoid(z[1] + h * run.recurrent[1]);
      const double g = std::tanh(z[2] + h * run.recurrent[2]), o = sigmoid(z[3] + h * run.recurrent[3]);
      c = f * c + i * g;
      h = o * std::tanh(c);
      EXPECT_NEAR(run.cells[(t + 1) * 2 + sequence], c, 1e-14) << t;
      EXPECT_NEAR(run.hidden[(t + 1) * 2 + sequence], h, 1e-14) << t;
      EXPECT_NEAR(run.gates[(t * 2 + sequence) * 4 + 3], o, 1e-14) << t;
    }
  }
}

TEST(ReferenceLstm, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const Lstm& shape :
       {Lstm{.steps = 3, .sequences = 2, .hidden = 3}, Lstm{.steps = 1, .sequences = 1, .hidden = 2},
        Lstm{.steps = 5, .sequences = 1, .hidden = 1}, Lstm{.steps = 2, .sequences = 0, .hidden = 2}}) {
    LstmRun run{shape};
    const auto weight = samples<double>("weight", run.rows * run.units);
    const auto f = [&] {
      run.forward(sequences);
      return weighted(weight, run.outputs());
    };
    std::vector<double> d_cell(static_cast<std::size_t>(shape.sequences * run.units), 9.0), d_hidden;
    const auto backward = [&](std::int64_t steps_of_part) {
      f();
      d_hidden = weight;
      test::lstm_backward_in_parts(sequences, shape,
                                   {.gates = run.gate_rows(),
                                    .recurrent = run.weights(),
                                    .cells = run.states(run.cells),
                                    .d_hidden = view(d_hidden, run.rows, run.units),
                                    .d_cell = view(d_cell, shape.sequences, run.units)},
                                   steps_of_part);
      return run.gates;
    };
    const auto d_sums = backward(shape.steps);
    EXPECT_EQ(backward(2), d_sums) << "in several calls the bits of one";
    // The state before each step is the input of the product with `recurrent`.
    std::vector<double> d_recurrent(run.recurrent.size());
    for (std::int64_t row = 0; row < run.rows; ++row) {
      for (std::int64_t h = 0; h < run.units; ++h) {
        for (std::int64_t g = 0; g < 4 * run.units; ++g) {
          d_recurrent[static_cast<std::size_t>(h * 4 * run.units + g)] +=
              run.hidden[static_cast<std::size_t>(row * run.units + h)] *
              d_sums[static_cast<std::size_t>(row * 4 * run.units + g)];
        }
      }
    }
    expect_gradient(run.sums, d_sums, f, "sums of the gates");
    expect_gradient(run.recurrent, d_recurrent, f, "recurrent");
  }
}

struct GruRun {
  Gru shape;
  std::int64_t rows = shape.steps * shape.sequences, units = shape.hidden;
  std::vector<double> sums = samples<double>("gates", rows * 3 * units, 2), gates = sums;
  std::vector<double> recurrent = samples<double>("recurrent", units * 3 * units);
  std::vector<double> bias = samples<double>("bias", 3 * units), products = zeros(rows * 3 * units);
  std::vector<double> hidden = samples<double>("hidden", (rows + shape.sequences) * units);

  Tensor sums_of(std::vector<double>& of) const { return view(of, rows, 3 * units); }
  Tensor states() { return view(hidden, rows + shape.sequences, units); }
  std::vector<double> outputs() const { return {hidden.begin() + shape.sequences * units, hidden.end()}; }
  void forward(ReferenceSequences& sequences) {
    gates = sums;
    sequences.gru_forward(shape, {.gates = sums_of(gates),
                                  .recurrent = view(recurrent, units, 3 * units),
                                  .bias = view(bias, 1, 3 * units),
                                  .products = sums_of(products),
                                  .hidden = states()});
  }
};

TEST(ReferenceGru, MatchesTheScalarFormula) {
  ReferenceSequences sequences;
  GruRun run{{.steps = 4, .sequences = 2, .hidden = 1}};
  const auto sigmoid = [](double v) { return 0.5 * (1 + std::tanh(v / 2)); };
  for (std::size_t sequence = 0; sequence < 2; ++sequence) {
    double h = run.hidden[sequence];
    run.forward(sequences);
    for (std::size_t t = 0; t < 4; ++t) {
      const double* a = &run.sums[(t * 2 + sequence) * 3];
      const auto p = [&](std::size_t g) { return h * run.recurrent[g] + run.bias[g]; };
      const double r = sigmoid(a[0] + p(0)), z = sigmoid(a[1] + p(1)), n = std::tanh(a[2] + r * p(2));
      h = (1 - z) * n + z * h;
      EXPECT_NEAR(run.hidden[(t + 1) * 2 + sequence], h, 1e-14) << t;
    }
  }
}

TEST(ReferenceGru, GradientsMatchFiniteDifferences) {
  ReferenceSequences sequences;
  for (const Gru& shape :
       {Gru{.steps = 3, .sequences = 2, .hidden = 3}, Gru{.steps = 1, .sequences = 1, .hidden = 2},
        Gru{.steps = 5, .sequences = 1, .hidden = 1}, Gru{.steps = 2, .sequences = 0, .hidden = 2}}) {
    GruRun run{shape};
    const auto weight = samples<double>("weight", run.rows * run.units);
    const auto f = [&] {
      run.forward(sequences);
      return weighted(weight, run.outputs());
    };
    f();
    auto d_hidden = weight;
    sequences.gru_backward(shape, {.gates = run.sums_of(run.gates),
                                   .recurrent = view(run.recurrent, run.units, 3 * run.units),
                                   .products = run.sums_of(run.products),
                                   .hidden = run.states(),
                                   .d_hidden = view(d_hidden, run.rows, run.units)});
    const auto d_sums = run.gates, d_products = run.products;
    // The state before each step is the input of the product with `recurrent`.
    std::vector<double> d_recurrent(run.recurrent.size()), d_bias(run.bias.size());
    const std::int64_t columns = 3 * run.units;
    for (std::int64_t row = 0; row < run.rows; ++row) {
      for (std::int64_t g = 0; g < columns; ++g) {
        const double gradient = d_products[static_cast<std::size_t>(row * columns + g)];
        d_bias[static_cast<std::size_t>(g)] += gradient;
        for (std::int64_t h = 0; h < run.units; ++h) {
          d_recurrent[static_cast<std::size_t>(h * columns + g)] +=
              run.hidden[static_cast<std::size_t>(row * run.units + h)] * gradient;
        }
      }
    }
    expect_gradient(run.sums, d_sums, f, "sums of the gates");
    expect_gradient(run.recurrent, d_recurrent, f, "recurrent");
    expect_gradient(run.bias, d_bias, f, "bias");
  }
}

TEST(ReferenceLstm, TwoWindowsWithTheStateBetweenThemAreOne) {
  ReferenceSequences sequences;
  LstmRun whole{{.steps = 6, .sequences = 2, .hidden = 3}};
  whole.forward(sequences);
  LstmRun half{{.steps = 3, .sequences = 2, .hidden = 3}};
  for (const std::ptrdiff_t window : {0, 1}) {
    const auto sums = static_cast<std::ptrdiff_t>(half.sums.size());
    half.sums.assign(whole.sums.begin() + window * sums, whole.sums.begin() + (window + 1) * sums);
    if (window == 1) {
      std::copy(half.cells.end() - 6, half.cells.end(), half.cells.begin());
      std::copy(half.hidden.end() - 6, half.hidden.end(), half.hidden.begin());
    } else {
      std::copy_n(whole.cells.begin(), 6, half.cells.begin());
      std::copy_n(whole.hidden.begin(), 6, half.hidden.begin());
    }
    half.forward(sequences);
  }
  EXPECT_TRUE(std::equal(half.hidden.end() - 6, half.hidden.end(), whole.hidden.end() - 6));
  EXPECT_TRUE(std::equal(half.cells.end() - 6, half.cells.end(), whole.cells.end() - 6));
}

}  // namespace
}  // namespace lockstep::model
