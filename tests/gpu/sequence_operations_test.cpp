// Compares every operation on sequences at every precision with the float64 reference, with fresh random inputs and
// poisoned outputs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/twins.hpp"
#include "model/lstm_parts.hpp"

namespace lockstep::model::test {
namespace {

class Sequences : public Twins {
 protected:
  Accumulate either() { return random_.coin() ? Accumulate::yes : Accumulate::no; }
  void expect_attention();
};

TEST_P(Sequences, ToTimeMajor) {
  for (const auto& [samples, positions] : {std::pair{1, 1}, {3, 7}, {20, 35}, {64, 1}, {33, 129}, {0, 5}}) {
    const Twin in = tokens(samples, positions, 50257), out = poison(Holds::tokens, samples * positions, 1);
    both([&](Backend& backend, const auto& of) { backend.sequences().to_time_major(of(in), of(out)); });
    expect_equal(out, fmt::format("{} samples of {} positions", samples, positions));
  }
}

TEST_P(Sequences, TokensAmongNumbers) {
  for (const std::int64_t samples : {0, 1, 33, 1000}) {
    std::vector<float> values(static_cast<std::size_t>(samples * 11));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 7 % 200);
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    const Twin in(*device_, ElementType::float32, samples, 11, bytes), out = poison(Holds::tokens, samples, 6);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().to_tokens(of(in), {.first = 4, .count = 6, .vocabulary = 150}, of(out));
    });
    expect_equal(out, fmt::format("{} samples", samples));
  }
}

TEST_P(Sequences, Embedding) {
  struct Case {
    std::int64_t rows, positions, vocabulary, width;
    bool placed;
  };
  for (const Case& at : std::vector<Case>{{128, 64, 65, 128, true},
                                          {15, 5, 7, 3, true},
                                          {700, 35, 2, 64, false},
                                          {400, 100, 5003, 48, true},
                                          {1, 1, 1, 1, false},
                                          {1040, 130, 11, 257, false},
                                          {0, 5, 6, 24, true},
                                          {3, 5, 6, 24, true},  // less than a sample
                                          {33, 5, 6, 24, true}}) {
    const Accumulate accumulate = either();
    SCOPED_TRACE(fmt::format("{} rows, {} positions, {} words of {}", at.rows, at.positions, at.vocabulary, at.width));
    const std::int64_t rows = at.rows;
    const Twin words = tokens(rows, 1, at.vocabulary), table = activations(at.vocabulary, at.width);
    const Twin places = at.placed ? activations(at.positions, at.width) : Twin();
    const Twin y = poison(Holds::activations, rows, at.width), d_y = activations(rows, at.width);
    const Twin d_table = gradient(accumulate, at.vocabulary, at.width);
    const Twin d_places = at.placed ? gradient(accumulate, at.positions, at.width) : Twin();
    both([&](Backend& backend, const auto& of) {
      backend.sequences().embedding_forward(of(words), of(table), of(places), of(y));
      backend.sequences().embedding_backward(of(words), of(d_y), accumulate, of(d_table), of(d_places));
    });
    expect_close(y, "y");
    expect_close(d_table, "d_table");
    if (at.placed) expect_close(d_places, "d_positions");
  }
}

TEST_P(Sequences, Project) {
  struct Case {
    std::int64_t rows, vocabulary, width;
  };
  for (const Case& at : {Case{64, 65, 128}, {7, 3, 5}, {33, 1001, 48}, {1, 1, 1}, {100, 10, 257}, {0, 19, 12}}) {
    const Accumulate accumulate = either();
    SCOPED_TRACE(fmt::format("{} rows, {} words of {}", at.rows, at.vocabulary, at.width));
    const double fan = std::sqrt(static_cast<double>(at.width));
    const Twin x = activations(at.rows, at.width), table = activations(at.vocabulary, at.width, 2 / fan);
    const Twin y = poison(Holds::activations, at.rows, at.vocabulary), d_y = activations(at.rows, at.vocabulary);
    const Twin d_table = gradient(accumulate, at.vocabulary, at.width);
    const Twin d_x = poison(Holds::activations, at.rows, at.width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().project_forward(of(x), of(table), of(y));
      backend.sequences().project_backward(of(x), of(table), of(d_y), accumulate, of(d_table), of(d_x));
    });
    expect_close(y, "y");
    expect_close(d_table, "d_table", 0.1 * std::sqrt(static_cast<double>(at.rows)));
    expect_close(d_x, "d_x", 0.1 * std::sqrt(static_cast<double>(at.vocabulary)) / fan);
  }
}

TEST_P(Sequences, BatchedProduct) {
  for (const std::int64_t count : {0, 3}) {
    for (const bool turned : {false, true}) {
      SCOPED_TRACE(fmt::format("{} pairs{}", count, turned ? ", transposed" : ""));
      const ::lockstep::model::BatchedProduct shape{
          .count = count, .rows = 5, .inner = 7, .columns = 6, .a_transposed = turned, .b_transposed = turned};
      const Twin a = turned ? activations(count * 7, 5) : activations(count * 5, 7);
      const Twin b = turned ? activations(count * 6, 7) : activations(count * 7, 6);
      const Twin c = poison(Holds::activations, count * 5, 6);
      both([&](Backend& backend, const auto& of) { backend.sequences().batched_product(shape, of(a), of(b), of(c)); });
      expect_close(c, "c");
    }
  }
}

TEST_P(Sequences, LayerNorm) {
  enum class Residual { none, apart, in_place };
  struct Case {
    std::int64_t rows, width;
    Residual residual;
  };
  for (const Case& at : std::vector<Case>{{64, 128, Residual::in_place},
                                          {3, 7, Residual::apart},
                                          {129, 768, Residual::in_place},
                                          {40, 384, Residual::none},
                                          {1, 33, Residual::none},
                                          {700, 64, Residual::apart},
                                          {5, 2049, Residual::in_place},
                                          {0, 40, Residual::apart}}) {
    const Accumulate accumulate = either();
    const bool past = random_.coin(), over = random_.coin();
    SCOPED_TRACE(fmt::format("[{}, {}], residual {}{}{}", at.rows, at.width, static_cast<int>(at.residual),
                             past ? ", gradient past it" : "", over ? ", in place" : ""));
    const bool adds = at.residual != Residual::none;
    const double terms = std::sqrt(static_cast<double>(at.rows));
    const Twin x = activations(at.rows, at.width, 2), residual = adds ? activations(at.rows, at.width) : Twin();
    const Twin scale = activations(1, at.width), shift = activations(1, at.width);
    const Twin sum = at.residual == Residual::in_place ? residual
                     : adds                            ? poison(Holds::activations, at.rows, at.width)
                                                       : Twin();
    const Twin mean = poison(Holds::statistics, at.rows, 1), inverse = poison(Holds::statistics, at.rows, 1);
    const Twin y = poison(Holds::activations, at.rows, at.width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().layer_norm_forward({.x = of(x),
                                              .residual = of(residual),
                                              .scale = of(scale),
                                              .shift = of(shift),
                                              .sum = of(sum),
                                              .mean = of(mean),
                                              .inverse = of(inverse),
                                              .y = of(y)});
    });
    if (adds) expect_close(sum, "sum");
    // The mean of numbers that were rounded after the addition has an error of their rounding over the square root of
    // their count.
    expect_close(mean, "mean", 0.5);
    expect_close(inverse, "1 / deviation");
    expect_close(y, "y");

    const Twin normalized = adds ? settled(sum) : x, given_mean = settled(mean), given_inverse = settled(inverse);
    const Twin d_y = activations(at.rows, at.width), d_residual = past ? activations(at.rows, at.width) : Twin();
    const Twin d_x = past && over ? d_residual : poison(Holds::activations, at.rows, at.width);
    const Twin d_scale = gradient(accumulate, 1, at.width), d_shift = gradient(accumulate, 1, at.width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().layer_norm_backward({.x = of(normalized),
                                               .scale = of(scale),
                                               .mean = of(given_mean),
                                               .inverse = of(given_inverse),
                                               .d_y = of(d_y),
                                               .d_residual = of(d_residual),
                                               .d_scale = of(d_scale),
                                               .d_shift = of(d_shift),
                                               .d_x = of(d_x)},
                                              accumulate);
    });
    expect_close(d_x, "d_x");
    expect_close(d_scale, "d_scale", 0.3 * terms);
    expect_close(d_shift, "d_shift", 0.3 * terms);
  }
}

TEST_P(Sequences, Gelu) {
  for (const auto& [rows, width] : {std::pair{64, 512}, {3, 7}, {1, 1}, {257, 33}, {40, 3072}, {0, 40}}) {
    for (const bool biased : {false, true}) {
      const Accumulate accumulate = either();
      SCOPED_TRACE(fmt::format("[{}, {}]{}", rows, width, biased ? ", bias" : ""));
      const Twin x = activations(rows, width, 4), bias = biased ? activations(1, width) : Twin();
      const Twin y = poison(Holds::activations, rows, width);
      both([&](Backend& backend, const auto& of) { backend.sequences().gelu_forward(of(x), of(bias), of(y)); });
      expect_close(x, "x + bias");
      // A single negative one is small by cancellation, 1 minus the error function.
      expect_close(y, "y", rows * width == 1 ? 1 : 0.05);
      const Twin before = settled(x), d_y = activations(rows, width);
      const Twin d_bias = biased ? gradient(accumulate, 1, width) : Twin();
      both([&](Backend& backend, const auto& of) {
        backend.sequences().gelu_backward(of(before), of(d_y), accumulate, of(d_bias));
      });
      expect_close(d_y, "gradient before the gelu");
      if (biased) expect_close(d_bias, "d_bias", 0.2 * std::sqrt(static_cast<double>(rows)));
    }
  }
}

/// A device runs this in one kernel, or (rows of no whole 16 bytes) in several.
TEST_P(Sequences, LinearMapsAroundAGelu) {
  struct Case {
    std::int64_t rows, width, hidden;
  };
  for (const Case& at : {Case{64, 48, 192}, {3, 7, 28}, {130, 64, 256}, {1, 16, 64}}) {
    const Accumulate accumulate = either();
    SCOPED_TRACE(fmt::format("[{}, {}] -> {}", at.rows, at.width, at.hidden));
    const double scale = 1 / std::sqrt(static_cast<double>(at.width));
    const Twin x = activations(at.rows, at.width), w = activations(at.width, at.hidden, scale);
    const Twin bias = activations(1, at.hidden);
    const Twin z = poison(Holds::activations, at.rows, at.hidden), y = poison(Holds::activations, at.rows, at.hidden);
    both([&](Backend& backend, const auto& of) { backend.linear_gelu_forward(of(x), of(w), of(bias), of(z), of(y)); });
    expect_close(z, "x w + bias");
    expect_close(y, "its gelu");
    const Twin before = settled(z), after = settled(y);
    const Twin back = activations(at.hidden, at.width, scale), d_out = activations(at.rows, at.width);
    const Twin d_w = gradient(accumulate, at.hidden, at.width), d_bias = gradient(accumulate, 1, at.width);
    const Twin d_z = poison(Holds::activations, at.rows, at.hidden), d_sums = gradient(accumulate, 1, at.hidden);
    both([&](Backend& backend, const auto& of) {
      backend.linear_backward_through_gelu(
          {.x = of(after), .w = of(back), .d_y = of(d_out), .d_w = of(d_w), .d_bias = of(d_bias), .d_x = of(d_z)},
          of(before), accumulate, of(d_sums));
    });
    const double terms = std::sqrt(static_cast<double>(at.rows));
    expect_close(d_z, "d_z");
    expect_close(d_w, "d_w", 0.3 * terms);
    expect_close(d_bias, "d_bias", 0.3 * terms);
    expect_close(d_sums, "column sums of d_z", 0.2 * terms);
  }
}

/// A device runs this in one kernel, or (rows of no whole 16 bytes) in two.
TEST_P(Sequences, LinearMapsAddedToAStream) {
  struct Case {
    std::int64_t rows, width, outputs;
  };
  for (const Case& at : {Case{64, 48, 192}, {3, 7, 28}, {130, 256, 64}, {1, 16, 64}, {33, 64, 30}}) {
    SCOPED_TRACE(fmt::format("[{}, {}] -> {}", at.rows, at.width, at.outputs));
    const Twin x = activations(at.rows, at.width), bias = activations(1, at.outputs);
    const Twin w = activations(at.width, at.outputs, 1 / std::sqrt(static_cast<double>(at.width)));
    const Twin stream = activations(at.rows, at.outputs), y = poison(Holds::activations, at.rows, at.outputs);
    both([&](Backend& backend, const auto& of) {
      backend.linear_add_forward(of(x), of(w), of(bias), of(stream), of(y));
    });
    expect_close(y, "the stream + x w + bias");
  }
}

TEST_P(Sequences, Dropout) {
  struct Case {
    std::int64_t samples, positions, columns;
    float rate;
  };
  for (const Case& at : {Case{12, 64, 128, 0.2f},
                         {3, 5, 7, 0.5f},
                         {20, 35, 33, 0.1f},
                         {2, 1, 1001, 0.9f},
                         {4, 3, 8, 0.0f},
                         {0, 5, 6, 0.4f}}) {
    for (const RowOrder order : {RowOrder::sample_major, RowOrder::time_major}) {
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(fmt::format("{} samples of {} positions, {} columns, rate {}{}{}", at.samples, at.positions,
                                 at.columns, at.rate, order == RowOrder::time_major ? ", time-major" : "",
                                 in_place ? ", in place" : ""));
        const ::lockstep::model::Dropout rule{.rate = at.rate,
                                              .stream = kFirstDropoutStream + static_cast<std::uint32_t>(at.samples),
                                              .order = order,
                                              .first_position = at.samples % 4};
        const Twin x = activations(at.samples * at.positions, at.columns);
        const Twin sample_keys = at.rate > 0 ? keys(at.samples) : Twin();
        const Twin y = in_place ? x : poison(Holds::activations, at.samples * at.positions, at.columns);
        both([&](Backend& backend, const auto& of) {
          backend.sequences().dropout(of(x), of(sample_keys), rule, of(y));
        });
        const std::vector<double> got = y.fetch(), exact = y.exact_values();
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_EQ(got[i] == 0, exact[i] == 0) << "element " << i << " is kept by one of them";
        }
        expect_close(y, "y");
      }
    }
  }
}

void Sequences::expect_attention() {
  struct Case {
    std::int64_t samples, context, heads, head_size;
    float dropout;
  };
  std::vector<Case> cases{{2, 64, 4, 32, 0},     {1, 1, 1, 64, 0},      {3, 17, 2, 64, 0.2f}, {1, 129, 2, 128, 0},
                          {2, 100, 3, 16, 0.1f}, {1, 200, 1, 64, 0.5f}, {2, 33, 1, 40, 0},    {0, 8, 2, 64, 0},
                          {3, 128, 2, 64, 0},    {1, 256, 1, 128, 0},   {2, 128, 3, 40, 0}};
  if (!subject().quick) {
    cases.push_back({1, 1024, 2, 64, 0});
    cases.push_back({1, 513, 2, 128, 0.1f});
    cases.push_back({4, 256, 6, 64, 0.2f});
  }
  const bool causal_first = random_.coin();
  for (std::size_t i = 0; i < cases.size() * (subject().quick ? 1 : 2); ++i) {
    const Case& at = cases[i % cases.size()];
    const bool causal = (i < cases.size()) == causal_first;
    SCOPED_TRACE(fmt::format("{} samples, context {}, {} heads of {}, dropout {}{}", at.samples, at.context, at.heads,
                             at.head_size, at.dropout, causal ? ", causal" : ""));
    const ::lockstep::model::Attention shape{.context = at.context,
                                             .heads = at.heads,
                                             .head_size = at.head_size,
                                             .dropout = {.rate = at.dropout, .stream = kFirstDropoutStream + 1},
                                             .causal = causal};
    const std::int64_t rows = at.samples * at.context, width = shape.width();
    const Twin joint = activations(rows, 3 * width, 2);  // scores are about 1.3 apart
    const Twin sample_keys = at.dropout > 0 ? keys(at.samples) : Twin();
    const Twin y = poison(Holds::activations, rows, width);
    const Twin log_sums = poison(Holds::statistics, at.samples * at.heads, at.context);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().attention_forward(
          shape, {.joint = of(joint), .dropout_keys = of(sample_keys), .y = of(y), .log_sums = of(log_sums)});
    });
    expect_close(y, "y", 0.1);
    expect_close(log_sums, "log sums", 1);
    const Twin given_y = settled(y), given_sums = settled(log_sums), d_y = activations(rows, width);
    const Twin d_joint = poison(Holds::activations, rows, 3 * width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().attention_backward(shape, {.joint = of(joint),
                                                     .dropout_keys = of(sample_keys),
                                                     .y = of(given_y),
                                                     .log_sums = of(given_sums),
                                                     .d_y = of(d_y),
                                                     .d_joint = of(d_joint)});
    });
    expect_close(d_joint, "d_joint", 0.1, 2);  // scores' gradients are differences of rounded numbers
  }
}

TEST_P(Sequences, Attention) { expect_attention(); }

/// With our own kernels instead of a library.
TEST_P(Sequences, AttentionWithoutALibrary) {
  device_ = make_subject(precision_, {.attention_library = false});
  expect_attention();
}

/// A library may process some samples at a time: together they equal the single samples. The reference would take
/// minutes.
TEST_P(Sequences, AttentionOfManySamples) {
  if (precision_ != Precision::bf16) GTEST_SKIP() << "libraries are for bf16";
  const std::int64_t samples = subject().quick ? 3 : 13, context = subject().quick ? 128 : 1024;
  const ::lockstep::model::Attention shape{.context = context, .heads = 12, .head_size = 64, .dropout = {}};
  const std::int64_t rows = samples * context, width = shape.width();
  const Twin joint = activations(rows, 3 * width, 2), d_y = activations(rows, width);
  const auto run = [&](std::int64_t at_once) {
    const Twin y = poison(Holds::activations, rows, width), d_joint = poison(Holds::activations, rows, 3 * width);
    const Twin log_sums = poison(Holds::statistics, samples * shape.heads, context);
    for (std::int64_t first = 0; first < samples; first += at_once) {
      const auto part = [&](const Twin& twin, std::int64_t rows_of_sample) {
        return twin.on_device().row_range(first * rows_of_sample, at_once * rows_of_sample);
      };
      const Tensor sums = part(log_sums, shape.heads);
      device_->sequences().attention_forward(shape,
                                             {.joint = part(joint, context), .y = part(y, context), .log_sums = sums});
      device_->sequences().attention_backward(shape, {.joint = part(joint, context),
                                                      .y = part(y, context),
                                                      .log_sums = sums,
                                                      .d_y = part(d_y, context),
                                                      .d_joint = part(d_joint, context)});
    }
    std::vector<double> all = y.fetch();
    for (const Twin* const each : {&log_sums, &d_joint}) std::ranges::copy(each->fetch(), std::back_inserter(all));
    return all;
  };
  const std::vector<double> together = run(samples), alone = run(1);
  EXPECT_TRUE(is_within(relative_error(together, alone, 0), limit_of(precision_)));
}

TEST_P(Sequences, AttentionWithMasks) {
  for (const std::int64_t head_size : {20, 64}) {  // 64: tensor cores without a mask
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(fmt::format("heads of {}{}", head_size, causal ? ", documents" : ", lengths"));
      const ::lockstep::model::Attention shape{
          .context = 45, .heads = 2, .head_size = head_size, .dropout = {}, .causal = causal};
      const std::int64_t rows = 3 * shape.context, width = shape.width();
      std::vector<std::int32_t> place_of(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < place_of.size(); ++i) place_of[i] = static_cast<std::int32_t>(i % 45 % 34);
      const Twin places = causal ? indices(rows, 1, place_of) : Twin();
      const Twin lengths = causal ? Twin() : indices(3, 1, {0, 33, 90});
      const Twin joint = activations(rows, 3 * width), y = poison(Holds::activations, rows, width);
      const Twin log_sums = poison(Holds::statistics, 6, shape.context);
      both([&](Backend& backend, const auto& of) {
        backend.sequences().attention_forward(shape, {.joint = of(joint),
                                                      .mask = {.places = of(places), .lengths = of(lengths)},
                                                      .y = of(y),
                                                      .log_sums = of(log_sums)});
      });
      expect_close(y, "y");
      const Twin given_y = settled(y), d_y = activations(rows, width);
      const Twin d_joint = poison(Holds::activations, rows, 3 * width);
      both([&](Backend& backend, const auto& of) {
        backend.sequences().attention_backward(shape, {.joint = of(joint),
                                                       .mask = {.places = of(places), .lengths = of(lengths)},
                                                       .y = of(given_y),
                                                       .log_sums = of(log_sums),
                                                       .d_y = of(d_y),
                                                       .d_joint = of(d_joint)});
      });
      expect_close(d_joint, "d_joint", 0.05, 2);
    }
  }
}

TEST_P(Sequences, DocumentsAreKeptApart) {
  for (const RowOrder order : {RowOrder::sample_major, RowOrder::time_major}) {
    const Twin words = tokens(3, 45, 40), places = poison(Holds::tokens, 3, 45);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().places_in_documents(of(words), {.separator = 8, .order = order}, of(places));
    });
    expect_equal(places, "places");
    if (order == RowOrder::time_major) continue;
    const Twin table = activations(80, 24), positions = activations(45, 24), y = poison(Holds::activations, 135, 24);
    const Twin d_y = activations(135, 24), d_positions = gradient(Accumulate::no, 45, 24);
    both([&](Backend& backend, const auto& of) {
      const Tensor place_of = of(places).reshaped(135, 1);
      backend.sequences().embedding_forward(of(words).reshaped(135, 1), of(table), of(positions), of(y), place_of);
      backend.sequences().embedding_backward(place_of, of(d_y), Accumulate::no, of(d_positions), {});
    });
    expect_close(y, "y");
    expect_close(d_positions, "d_positions");
  }
}

TEST_P(Sequences, PaddedSeries) {
  for (const auto pool : {PaddedSeries::Pool::mean, PaddedSeries::Pool::max, PaddedSeries::Pool::last}) {
    SCOPED_TRACE(static_cast<int>(pool));
    const ::lockstep::model::PaddedSeries series{.steps = 6, .pool = pool};
    const Twin lengths = indices(4, 1, {0, 1, 4, 9});
    const Twin x = activations(24, 35), y = poison(Holds::activations, 4, 35), d_y = activations(4, 35);
    const Twin d_x = poison(Holds::activations, 24, 35), carried = activations(24, 35);
    const Twin inside = poison(Holds::tokens, 24, 1), behind = poison(Holds::tokens, 24, 1);
    both([&](Backend& backend, const auto& of) {
      SequenceOperations& operations = backend.sequences();
      operations.pool_series_forward(series, of(x), of(lengths), of(y));
      operations.pool_series_backward(series, of(x), of(lengths), of(d_y), of(d_x));
      operations.padded_rows(of(lengths), PaddedRows::inside, of(inside));
      operations.padded_rows(of(lengths), PaddedRows::behind_the_last, of(behind));
      operations.carry_rows(of(x), of(inside), Accumulate::yes, of(carried));
      operations.carry_rows(of(carried), of(behind), Accumulate::no, of(carried));
    });
    expect_close(y, "y");
    expect_close(d_x, "d_x");
    expect_close(carried, "carried");
    expect_equal(inside, "rows inside");
    expect_equal(behind, "rows behind the last");
  }
}

/// The same bits twice.
TEST_P(Sequences, AttentionRepeats) {
  for (const bool by_library : {true, false}) {
    device_ = make_subject(precision_, {.attention_library = by_library});
    const ::lockstep::model::Attention shape{.context = 256, .heads = 4, .head_size = 64, .dropout = {}};
    const std::int64_t samples = subject().quick ? 1 : 8, rows = samples * shape.context, width = shape.width();
    const Twin joint = activations(rows, 3 * width, 2), d_y = activations(rows, width);
    std::vector<double> first;
    for (int run = 0; run < (subject().quick ? 2 : 10); ++run) {
      const Twin y = poison(Holds::activations, rows, width), d_joint = poison(Holds::activations, rows, 3 * width);
      const Twin log_sums = poison(Holds::statistics, samples * shape.heads, shape.context);
      device_->sequences().attention_forward(
          shape, {.joint = joint.on_device(), .y = y.on_device(), .log_sums = log_sums.on_device()});
      device_->sequences().attention_backward(shape, {.joint = joint.on_device(),
                                                      .y = y.on_device(),
                                                      .log_sums = log_sums.on_device(),
                                                      .d_y = d_y.on_device(),
                                                      .d_joint = d_joint.on_device()});
      std::vector<double> all = y.fetch();
      for (const Twin* const each : {&log_sums, &d_joint}) std::ranges::copy(each->fetch(), std::back_inserter(all));
      if (run == 0) first = all;
      EXPECT_EQ(all, first) << "run " << run << (by_library ? ", by a library" : ", by our own kernels");
    }
  }
}

TEST_P(Sequences, Lstm) {
  struct Case {
    std::int64_t steps, sequences, hidden;
    bool documents = false;
  };
  std::vector<Case> cases{{5, 20, 64}, {1, 1, 1},   {3, 7, 33},  {12, 4, 100}, {2, 129, 16},     {35, 2, 40},
                          {3, 0, 4},   {6, 8, 128}, {2, 3, 130}, {6, 9, 34},   {5, 7, 20, true}, {5, 7, 130, true}};
  if (!subject().quick) cases.push_back({4, 70, 520});
  for (const Case& at : cases) {
    const std::int64_t steps_of_part = at.documents ? at.steps : random_.pick<std::int64_t>({at.steps, 4, 1});
    SCOPED_TRACE(fmt::format("{} steps of {} sequences, {} hidden, {} steps of a call back{}", at.steps, at.sequences,
                             at.hidden, steps_of_part, at.documents ? ", documents" : ""));
    const ::lockstep::model::Lstm shape{.steps = at.steps, .sequences = at.sequences, .hidden = at.hidden};
    const std::int64_t rows = at.steps * at.sequences;
    const double fan = std::sqrt(static_cast<double>(at.hidden));
    // The state before the first step, the others poisoned.
    const auto state = [&] {
      const std::vector<float> first = random_.numbers(at.sequences * at.hidden, precision_);
      std::vector<float> all(static_cast<std::size_t>((at.steps + 1) * at.sequences * at.hidden),
                             std::numeric_limits<float>::quiet_NaN());
      std::ranges::copy(first, all.begin());
      return given(Holds::activations, (at.steps + 1) * at.sequences, at.hidden, all);
    };
    const Twin gates = activations(rows, 4 * at.hidden, 2), cells = state(), hidden = state();
    const Twin recurrent = activations(at.hidden, 4 * at.hidden, 1 / fan);
    const Twin places = at.documents ? tokens(rows, 1, 3) : Twin();
    both([&](Backend& backend, const auto& of) {
      backend.sequences().lstm_forward(shape, {.gates = of(gates),
                                               .recurrent = of(recurrent),
                                               .cells = of(cells),
                                               .hidden = of(hidden),
                                               .places = of(places)});
    });
    const double slack = 2;  // each step reads rounded results of the preceding one
    expect_close(gates, "gates", 0.05, slack);
    expect_close(cells, "cells", 0.05, slack);
    expect_close(hidden, "hidden", 0.05, slack);

    const Twin given_gates = settled(gates), given_cells = settled(cells);
    const Twin d_hidden = activations(rows, at.hidden), d_cell = poison(Holds::activations, at.sequences, at.hidden);
    both([&](Backend& backend, const auto& of) {
      lstm_backward_in_parts(backend.sequences(), shape,
                             {.gates = of(given_gates),
                              .recurrent = of(recurrent),
                              .cells = of(given_cells),
                              .d_hidden = of(d_hidden),
                              .d_cell = of(d_cell),
                              .places = of(places)},
                             steps_of_part);
    });
    expect_close(given_gates, "gradients before the gates", 0.01, slack);
    expect_close(d_cell, "d_cell", 0.01, slack);
  }
}

TEST_P(Sequences, Gru) {
  struct Case {
    std::int64_t steps, sequences, hidden;
    bool documents = false;
  };
  std::vector<Case> cases{{5, 20, 64}, {1, 1, 1},   {3, 7, 33},  {12, 4, 100}, {2, 129, 16},     {35, 2, 40},
                          {3, 0, 4},   {4, 9, 128}, {2, 3, 130}, {6, 9, 34},   {5, 7, 20, true}, {5, 7, 130, true}};
  if (!subject().quick) cases.push_back({4, 70, 520});
  for (const Case& at : cases) {
    SCOPED_TRACE(fmt::format("{} steps of {} sequences, {} hidden{}", at.steps, at.sequences, at.hidden,
                             at.documents ? ", documents" : ""));
    const ::lockstep::model::Gru shape{.steps = at.steps, .sequences = at.sequences, .hidden = at.hidden};
    const std::int64_t rows = at.steps * at.sequences;
    const double fan = std::sqrt(static_cast<double>(at.hidden));
    std::vector<float> states(static_cast<std::size_t>((at.steps + 1) * at.sequences * at.hidden),
                              std::numeric_limits<float>::quiet_NaN());
    std::ranges::copy(random_.numbers(at.sequences * at.hidden, precision_), states.begin());
    const Twin gates = activations(rows, 3 * at.hidden, 2), products = poison(Holds::activations, rows, 3 * at.hidden);
    const Twin hidden = given(Holds::activations, (at.steps + 1) * at.sequences, at.hidden, states);
    const Twin recurrent = activations(at.hidden, 3 * at.hidden, 1 / fan), bias = activations(1, 3 * at.hidden);
    const Twin places = at.documents ? tokens(rows, 1, 3) : Twin();
    both([&](Backend& backend, const auto& of) {
      backend.sequences().gru_forward(shape, {.gates = of(gates),
                                              .recurrent = of(recurrent),
                                              .bias = of(bias),
                                              .products = of(products),
                                              .hidden = of(hidden),
                                              .places = of(places)});
    });
    const double slack = 2;  // each step reads rounded results of the preceding one
    expect_close(gates, "gates", 0.05, slack);
    expect_close(hidden, "hidden", 0.05, slack);

    const Twin given_gates = settled(gates), given_hidden = settled(hidden);
    const Twin back = activations(rows, 3 * at.hidden), d_hidden = activations(rows, at.hidden);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().gru_backward(shape, {.gates = of(given_gates),
                                               .recurrent = of(recurrent),
                                               .products = of(back),
                                               .hidden = of(given_hidden),
                                               .d_hidden = of(d_hidden),
                                               .places = of(places)});
    });
    expect_close(given_gates, "gradients before the gates", 0.01, slack);
    expect_close(back, "gradients of the products", 0.01, slack);
  }
}

/// A NaN in one row of the input reaches that row of the output, and no independent row.
TEST_P(Sequences, NotFiniteComesThrough) {
  const std::int64_t rows = 6, width = 64;
  const auto poisoned = [&](std::int64_t columns) {
    std::vector<float> values = random_.numbers(rows * columns, precision_);
    values[static_cast<std::size_t>(2 * columns + 5)] = std::numeric_limits<float>::quiet_NaN();
    return given(Holds::activations, rows, columns, values);
  };
  const auto expect = [&](const Twin& y, const char* what, const std::vector<bool>& where) {
    const std::vector<double> got = y.fetch(), exact = y.exact_values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(std::isnan(got[i]) ? 0 : got[i], std::isnan(got[i]) ? 0 : exact[i], 0.1) << what;
    }
    for (std::size_t row = 0; row < where.size(); ++row) {
      bool any = false;
      for (std::size_t i = 0; i < got.size() / where.size(); ++i)
        any |= std::isnan(got[row * got.size() / where.size() + i]);
      EXPECT_EQ(any, where[row]) << what << ", row " << row;
    }
  };
  const std::vector<bool> own{false, false, true, false, false, false};
  const Twin scale = activations(1, width), shift = activations(1, width), sample_keys = keys(rows);
  const Twin mean = poison(Holds::statistics, rows, 1), inverse = poison(Holds::statistics, rows, 1);
  {
    const Twin x = poisoned(width), y = poison(Holds::activations, rows, width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().layer_norm_forward(
          {.x = of(x), .scale = of(scale), .shift = of(shift), .mean = of(mean), .inverse = of(inverse), .y = of(y)});
    });
    expect(y, "layer norm", own);
  }
  {
    const Twin x = poisoned(width), y = poison(Holds::activations, rows, width);
    both([&](Backend& backend, const auto& of) { backend.sequences().gelu_forward(of(x), {}, of(y)); });
    expect(y, "gelu", own);
  }
  for (std::uint32_t stream = 16; stream < 24; ++stream) {  // keeps or drops the element
    const Twin x = poisoned(width), y = poison(Holds::activations, rows, width);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().dropout(of(x), of(sample_keys), {.rate = 0.5f, .stream = stream}, of(y));
    });
    expect(y, "dropout", own);
  }
  {
    // Two samples of three positions, one head: a key affects its own position and later ones.
    const ::lockstep::model::Attention shape{.context = 3, .heads = 1, .head_size = width, .dropout = {}};
    std::vector<float> values = random_.numbers(rows * 3 * width, precision_);
    values[static_cast<std::size_t>((1 * 3 + 1) * width + 7)] = std::numeric_limits<float>::quiet_NaN();  // a key
    const Twin joint = given(Holds::activations, rows, 3 * width, values), y = poison(Holds::activations, rows, width);
    const Twin log_sums = poison(Holds::statistics, 2, 3);
    both([&](Backend& backend, const auto& of) {
      backend.sequences().attention_forward(shape, {.joint = of(joint), .y = of(y), .log_sums = of(log_sums)});
    });
    expect(y, "attention", {false, true, true, false, false, false});
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Sequences, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
