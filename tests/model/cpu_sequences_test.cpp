// Compares the CPU's sequence operations with the float64 reference, with one, two and three threads, which must give
// the same bits. Tolerances are multiples of the fp32 rounding unit 2^-24.
#include "model/cpu/cpu_sequences.hpp"

#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu_against_reference.hpp"
#include "lstm_parts.hpp"
#include "model/cpu/blocked_gemm.hpp"
#include "model/cpu/loops/sequence_loops.hpp"
#include "model/reference/reference_sequences.hpp"

namespace lockstep::model {
namespace {

using test::difference;
using test::element;
using test::kNan;
using test::make;
using test::Memory;
using test::Operand;

class CpuSequencesTest : public test::CpuAgainstReference<SequenceOperations, cpu::CpuSequences, ReferenceSequences> {
 protected:
  /// A BLAS may add some columns in another order.
  bool same_bits() const override { return cpu::blocked_gemm_instruction_set() != nullptr; }
};

TEST(CpuSequencesHarness, SeesWhatIsWrong) {
  const Operand operand{.name = "x", .rows = 1, .columns = 3, .tolerance = 4, .nan_at = 1};
  const Memory single = make(operand, ElementType::float32), twice = make(operand, ElementType::float64);
  EXPECT_EQ(difference(operand, single.tensor, twice.tensor), "");
  single.tensor.elements<float>()[2] += 6e-7f;
  EXPECT_NE(difference(operand, single.tensor, twice.tensor), "");
  single.tensor.elements<float>()[2] -= 6e-7f;
  single.tensor.elements<float>()[1] = 0;
  EXPECT_NE(difference(operand, single.tensor, twice.tensor), "");
}

// ---- tokens and embeddings ----

TEST_F(CpuSequencesTest, TokensTurnTimeMajor) {
  for (const std::int64_t samples : {0, 1, 7}) {
    compare(
        {{.name = "tokens", .rows = samples, .columns = 5, .holds = Operand::tokens, .scale = 1000},
         {.name = "out", .rows = samples * 5, .columns = 1, .holds = Operand::tokens, .scale = 1}},
        [](SequenceOperations& s, const std::vector<Tensor>& t) { s.to_time_major(t[0], t[1]); }, "to_time_major");
  }
}

TEST_F(CpuSequencesTest, TokensAmongNumbers) {
  for (const std::int64_t samples : {0, 1, 7}) {
    for (const auto holds : {Operand::values, Operand::bytes, Operand::sums}) {  // float32, uint8, float64
      compare(
          {{.name = "samples", .rows = samples, .columns = 11, .holds = holds, .scale = 40, .shift = 20},
           {.name = "out", .rows = samples, .columns = 6, .holds = Operand::tokens, .scale = 1}},
          [](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.to_tokens(t[0], {.first = 4, .count = 6, .vocabulary = 30}, t[1]);
          },
          "to_tokens");
    }
  }
}

TEST_F(CpuSequencesTest, Embeddings) {
  struct Case {
    std::int64_t rows, vocabulary, width, positions;
    Accumulate accumulate;
  };
  for (const auto& [rows, vocabulary, width, positions, accumulate] :
       {Case{0, 5, 3, 2, Accumulate::no}, Case{12, 3, 1, 4, Accumulate::yes}, Case{60, 7, 33, 0, Accumulate::no},
        Case{300, 900, 130, 20, Accumulate::no}, Case{1000, 50, 200, 0, Accumulate::yes}}) {
    const auto place = positions > 0 ? Operand::values : Operand::nothing;
    compare(
        {{.name = "tokens", .rows = rows, .columns = 1, .holds = Operand::tokens, .scale = double(vocabulary)},
         {.name = "table", .rows = vocabulary, .columns = width},
         {.name = "positions", .rows = positions, .columns = width, .holds = place},
         {.name = "y", .rows = rows, .columns = width, .tolerance = 2},
         {.name = "d_y", .rows = rows, .columns = width, .nan_at = rows > 1 ? width : -1},
         {.name = "d_table", .rows = vocabulary, .columns = width, .tolerance = 64},
         {.name = "d_positions", .rows = positions, .columns = width, .tolerance = 64, .holds = place},
         {.name = "places", .rows = rows, .columns = 1, .holds = Operand::tokens, .scale = double(positions)},
         {.name = "y of places", .rows = rows, .columns = width, .tolerance = 2}},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.embedding_forward(t[0], t[1], t[2], t[3]);
          if (positions > 0) s.embedding_forward(t[0], t[1], t[2], t[8], t[7]);
          s.embedding_backward(t[0], t[4], accumulate, t[5], t[6]);
        },
        fmt::format("embedding of {} rows", rows));
  }
}

TEST_F(CpuSequencesTest, ProjectionsOntoTheTable) {
  for (const std::int64_t rows : {0, 1, 70}) {
    for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
      compare(
          {{.name = "x", .rows = rows, .columns = 40},
           {.name = "table", .rows = 65, .columns = 40},
           {.name = "y", .rows = rows, .columns = 65, .tolerance = 40},
           {.name = "d_y", .rows = rows, .columns = 65},
           {.name = "d_table", .rows = 65, .columns = 40, .tolerance = 60},
           {.name = "d_x", .rows = rows, .columns = 40, .tolerance = 60}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.project_forward(t[0], t[1], t[2]);
            s.project_backward(t[0], t[1], t[3], accumulate, t[4], t[5]);
          },
          fmt::format("projection of {} rows", rows));
    }
  }
}

// ---- rows ----

TEST_F(CpuSequencesTest, LayerNorms) {
  struct Case {
    std::int64_t rows, width;
    bool residual;
    double shift;
    std::int64_t nan_at;
  };
  for (const auto& [rows, width, residual, shift, nan_at] :
       {Case{0, 4, false, 0, -1}, Case{1, 1, false, 0, -1}, Case{3, 5, true, 10, -1}, Case{70, 33, true, 0, 40},
        Case{515, 256, false, -3, -1}, Case{2100, 47, true, 1, -1}}) {
    for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
      const auto other = residual ? Operand::values : Operand::nothing;
      const double sums = 40 + 40 * std::sqrt(static_cast<double>(rows));
      const auto call = [&](SequenceOperations& s, const std::vector<Tensor>& t) {
        s.layer_norm_forward({.x = t[0],
                              .residual = t[1],
                              .scale = t[2],
                              .shift = t[3],
                              .sum = t[4],
                              .mean = t[5],
                              .inverse = t[6],
                              .y = t[7]});
        const Tensor& normalised = residual ? t[4] : t[0];
        s.layer_norm_backward({.x = normalised,
                               .scale = t[2],
                               .mean = t[5],
                               .inverse = t[6],
                               .d_y = t[8],
                               .d_residual = t[9],
                               .d_scale = t[10],
                               .d_shift = t[11],
                               .d_x = t[12]},
                              accumulate);
        // In place: the sum in the memory of the residual, d_x in the memory of d_residual.
        if (!residual) return;
        s.layer_norm_forward({.x = t[0],
                              .residual = t[1],
                              .scale = t[2],
                              .shift = t[3],
                              .sum = t[1],
                              .mean = t[5],
                              .inverse = t[6],
                              .y = t[7]});
        s.layer_norm_backward({.x = normalised,
                               .scale = t[2],
                               .mean = t[5],
                               .inverse = t[6],
                               .d_y = t[8],
                               .d_residual = t[9],
                               .d_scale = t[10],
                               .d_shift = t[11],
                               .d_x = t[9]},
                              accumulate);
      };
      compare({{.name = "x", .rows = rows, .columns = width, .nan_at = nan_at, .shift = shift},
               {.name = "residual", .rows = rows, .columns = width, .tolerance = 4, .holds = other},
               {.name = "scale", .rows = 1, .columns = width},
               {.name = "shift", .rows = 1, .columns = width},
               {.name = "sum", .rows = rows, .columns = width, .tolerance = 4, .holds = other},
               {.name = "mean", .rows = rows, .columns = 1, .tolerance = 16},
               {.name = "inverse", .rows = rows, .columns = 1, .tolerance = 400},
               {.name = "y", .rows = rows, .columns = width, .tolerance = 400, .image = true},
               {.name = "d_y", .rows = rows, .columns = width, .image = true},
               {.name = "d_residual", .rows = rows, .columns = width, .tolerance = 400, .holds = other},
               {.name = "d_scale", .rows = 1, .columns = width, .tolerance = sums},
               {.name = "d_shift", .rows = 1, .columns = width, .tolerance = sums},
               {.name = "d_x", .rows = rows, .columns = width, .tolerance = 400}},
              call, fmt::format("layer norm of {} x {}", rows, width));
    }
  }
}

TEST_F(CpuSequencesTest, Gelus) {
  struct Case {
    std::int64_t rows, width;
    bool bias;
    std::int64_t nan_at;
  };
  for (const auto& [rows, width, bias, nan_at] : {Case{0, 3, true, -1}, Case{1, 1, false, -1}, Case{5, 37, true, 7},
                                                  Case{600, 130, true, -1}, Case{40, 1000, false, 5}}) {
    for (const auto accumulate : {Accumulate::no, Accumulate::yes}) {
      const auto there = bias ? Operand::values : Operand::nothing;
      compare(
          {{.name = "x", .rows = rows, .columns = width, .tolerance = 4, .nan_at = nan_at, .scale = 6},
           {.name = "bias", .rows = 1, .columns = width, .holds = there},
           {.name = "y", .rows = rows, .columns = width, .tolerance = 40},
           {.name = "d_y", .rows = rows, .columns = width, .tolerance = 100},
           {.name = "d_bias",
            .rows = 1,
            .columns = width,
            .tolerance = 100 + 40 * std::sqrt(static_cast<double>(rows)),
            .holds = there}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.gelu_forward(t[0], t[1], t[2]);
            s.gelu_backward(t[0], t[3], accumulate, t[4]);
          },
          fmt::format("gelu of {} x {}", rows, width));
    }
  }
}

TEST_F(CpuSequencesTest, BatchedProducts) {
  struct Case {
    std::int64_t count, rows, inner, columns;
  };
  for (const auto& [count, rows, inner, columns] :
       {Case{0, 3, 4, 5}, Case{1, 1, 1, 1}, Case{7, 3, 40, 5}, Case{3, 70, 33, 130}, Case{64, 16, 16, 16}}) {
    for (const int turned : {0, 1, 2, 3}) {
      const BatchedProduct shape{.count = count,
                                 .rows = rows,
                                 .inner = inner,
                                 .columns = columns,
                                 .a_transposed = (turned & 1) != 0,
                                 .b_transposed = (turned & 2) != 0};
      const auto [a_rows, a_columns] = shape.a_transposed ? std::pair(inner, rows) : std::pair(rows, inner);
      const auto [b_rows, b_columns] = shape.b_transposed ? std::pair(columns, inner) : std::pair(inner, columns);
      compare(
          {{.name = "a", .rows = count * a_rows, .columns = a_columns},
           {.name = "b", .rows = count * b_rows, .columns = b_columns},
           {.name = "c", .rows = count * rows, .columns = columns, .tolerance = 40 * std::sqrt(inner + 1.0)}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) { s.batched_product(shape, t[0], t[1], t[2]); },
          fmt::format("{} products of {} x {} x {}, {}", count, rows, inner, columns, turned));
    }
  }
}

TEST_F(CpuSequencesTest, DropoutsOfEveryOrderAndWidth) {
  for (const auto order : {RowOrder::sample_major, RowOrder::time_major}) {
    for (const std::int64_t samples : {0, 1, 3}) {
      for (const std::int64_t width : {1, 6, 64, 650}) {
        for (const float rate : {0.0f, 0.1f, 0.5f}) {
          const Dropout rule{.rate = rate, .stream = 18, .order = order, .first_position = samples * width % 5};
          const std::int64_t rows = samples * 35;
          compare(
              {{.name = "x", .rows = rows, .columns = width, .nan_at = rows / 2, .image = true},
               {.name = "keys", .rows = samples, .columns = 1, .holds = Operand::keys},
               {.name = "y", .rows = rows, .columns = width, .tolerance = 4, .image = true},
               {.name = "z", .rows = rows, .columns = width, .tolerance = 4, .image = true}},
              [&](SequenceOperations& s, const std::vector<Tensor>& t) {
                s.dropout(t[0], t[1], rule, t[2]);
                s.dropout(t[3], t[1], rule, t[3]);
              },
              fmt::format("dropout of {} x {} at {}", rows, width, rate));
        }
      }
    }
  }
}

TEST(CpuDropout, FactorsFromAnyElementOn) {
  const auto numbers = formulas::dropout_numbers({.rate = 0.3f, .stream = 21});
  const std::uint64_t key = 0x0123456789ABCDEF;
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{651}, (std::uint64_t{1} << 34) - 7}) {
    for (const std::size_t count : {0, 1, 5, 511, 512, 513, 1300}) {
      std::vector<float> out(count);
      cpu::dropout_factors(numbers, key, first, out);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[i], formulas::dropout_element(numbers, key, first + i)) << first << " + " << i << " of " << count;
      }
    }
  }
}

// ---- attention ----

TEST_F(CpuSequencesTest, Attentions) {
  struct Case {
    std::int64_t samples, context, heads, head_size;
    float rate;
    bool causal = true;
  };
  for (const auto& [samples, context, heads, head_size, rate, causal] :
       {Case{0, 4, 2, 3, 0}, Case{2, 1, 1, 1, 0}, Case{1, 1, 2, 8, 0.5f}, Case{3, 5, 2, 4, 0}, Case{2, 31, 3, 16, 0.2f},
        Case{1, 32, 1, 64, 0}, Case{2, 33, 2, 7, 0.4f}, Case{1, 128, 4, 64, 0}, Case{1, 97, 2, 40, 0.1f},
        Case{1, 200, 1, 5, 0}, Case{3, 5, 2, 4, 0, false}, Case{2, 33, 2, 7, 0.4f, false}, Case{1, 97, 2, 40, 0, false},
        Case{0, 4, 2, 3, 0, false}}) {
    const std::int64_t width = heads * head_size, rows = samples * context;
    const Attention shape{
        .context = context, .heads = heads, .head_size = head_size, .dropout = {rate, 17}, .causal = causal};
    const auto with_keys = rate > 0 ? Operand::keys : Operand::nothing;
    compare(
        {{.name = "joint", .rows = rows, .columns = 3 * width, .scale = 2, .image = true},
         {.name = "keys", .rows = samples, .columns = 1, .holds = with_keys},
         {.name = "y", .rows = rows, .columns = width, .tolerance = 100, .image = true},
         {.name = "log_sums", .rows = samples * heads, .columns = context, .tolerance = 60},
         {.name = "d_y", .rows = rows, .columns = width, .image = true},
         {.name = "d_joint", .rows = rows, .columns = 3 * width, .tolerance = 600, .image = true}},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.attention_forward(shape, {.joint = t[0], .dropout_keys = t[1], .y = t[2], .log_sums = t[3]});
          s.attention_backward(
              shape, {.joint = t[0], .dropout_keys = t[1], .y = t[2], .log_sums = t[3], .d_y = t[4], .d_joint = t[5]});
        },
        fmt::format("attention of {} x {} in {} heads of {}", samples, context, heads, head_size), test::kBf16Unit);
  }
}

TEST_F(CpuSequencesTest, AttentionSeesNothingOfTheFuture) {
  const Attention shape{.context = 70, .heads = 1, .head_size = 8, .dropout = {}};
  auto joint = test::samples<float>("joint", 70 * 24);
  std::vector<float> before(70 * 8), after(70 * 8), logs(70);
  const auto run = [&](std::vector<float>& y) {
    cpu_[0].of_threads[0]->attention_forward(
        shape, {.joint = test::view(joint, 70, 24), .y = test::view(y, 70, 8), .log_sums = test::view(logs, 1, 70)});
  };
  run(before);
  for (std::size_t i = 40 * 24; i < joint.size(); ++i) joint[i] = 1e15f;
  run(after);
  for (std::size_t i = 0; i < 40 * 8; ++i) EXPECT_EQ(after[i], before[i]) << i;
  for (std::size_t i = 40 * 8; i < after.size(); ++i) EXPECT_NE(after[i], before[i]) << i;
}

// A NaN reaches every result that it reaches in the reference, and no query of an earlier tile.
TEST_F(CpuSequencesTest, AttentionLetsNanThrough) {
  const std::int64_t context = 70, width = 16, joint = 3 * width;
  const Attention shape{.context = context, .heads = 2, .head_size = 8, .dropout = {}};
  for (const std::int64_t column :
       {0l, 9l, width, width + 15, 2 * width + 3}) {  // queries, keys and values of both heads
    const auto x = [&] {
      auto values = test::samples<double>("joint", context * joint);
      values[static_cast<std::size_t>(40 * joint + column)] = static_cast<double>(kNan);
      return values;
    }();
    const auto run = [&]<class T>(SequenceOperations& sequences, T) {
      std::vector<T> in(x.begin(), x.end()), y(context * width), logs(2 * context), d_in(in.size());
      auto d_y = test::samples<T>("d_y", context * width);
      const auto rows = [&](std::vector<T>& values) {
        return test::view(values, context, static_cast<std::int64_t>(values.size()) / context);
      };
      sequences.attention_forward(shape, {.joint = rows(in), .y = rows(y), .log_sums = test::view(logs, 2, context)});
      sequences.attention_backward(shape, {.joint = rows(in),
                                           .y = rows(y),
                                           .log_sums = test::view(logs, 2, context),
                                           .d_y = rows(d_y),
                                           .d_joint = rows(d_in)});
      std::vector<bool> bad;
      for (const T v : y) bad.push_back(std::isnan(v));
      for (const T v : d_in) bad.push_back(std::isnan(v));
      return bad;
    };
    const auto got = run(*cpu_[0].of_threads[0], 0.0f), expected = run(reference_, 0.0);
    int reached = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      reached += expected[i] ? 1 : 0;
      EXPECT_GE(got[i], expected[i]) << column << ": element " << i << " of y and d_joint lost its NaN";
    }
    EXPECT_GT(reached, 30);
    for (std::size_t i = 0; i < 32 * width; ++i) EXPECT_FALSE(got[i]) << column << ": element " << i;
  }
}

TEST_F(CpuSequencesTest, PlacesInDocuments) {
  for (const RowOrder order : {RowOrder::sample_major, RowOrder::time_major}) {
    for (const std::int64_t rows : {0, 1, 9}) {
      compare(
          {{.name = "tokens", .rows = rows, .columns = 13, .holds = Operand::tokens, .scale = 4},
           {.name = "places", .rows = rows, .columns = 13, .holds = Operand::tokens, .scale = 1},
           {.name = "some", .rows = 1, .columns = 7, .holds = Operand::tokens, .scale = 2},
           {.name = "places after 5", .rows = 1, .columns = 12, .holds = Operand::tokens, .scale = 9}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.places_in_documents(t[0], {.separator = 2, .order = order}, t[1]);
            s.places_in_documents(t[2], {.separator = 0, .first = 5}, t[3]);
          },
          "places");
    }
  }
}

TEST_F(CpuSequencesTest, AttentionsWithMasks) {
  struct Case {
    std::int64_t samples, context, heads, head_size;
    float rate;
    bool documents, lengths;
  };
  for (const auto& [samples, context, heads, head_size, rate, documents, lengths] :
       {Case{3, 5, 2, 4, 0, true, false}, Case{2, 97, 2, 40, 0.2f, true, false}, Case{1, 130, 1, 64, 0, true, true},
        Case{4, 33, 2, 7, 0.4f, false, true}, Case{3, 70, 1, 8, 0, false, true}}) {
    const std::int64_t width = heads * head_size, rows = samples * context;
    const Attention shape{
        .context = context, .heads = heads, .head_size = head_size, .dropout = {rate, 17}, .causal = documents};
    compare(
        {{.name = "joint", .rows = rows, .columns = 3 * width, .scale = 2},
         {.name = "keys", .rows = samples, .columns = 1, .holds = rate > 0 ? Operand::keys : Operand::nothing},
         {.name = "y", .rows = rows, .columns = width, .tolerance = 100},
         {.name = "log_sums", .rows = samples * heads, .columns = context, .tolerance = 60},
         {.name = "d_y", .rows = rows, .columns = width},
         {.name = "d_joint", .rows = rows, .columns = 3 * width, .tolerance = 600},
         {.name = "tokens", .rows = samples, .columns = context, .holds = Operand::tokens, .scale = 9},
         {.name = "places", .rows = samples, .columns = context, .holds = Operand::tokens, .scale = 1},
         {.name = "lengths", .rows = samples, .columns = 1, .holds = Operand::tokens, .scale = double(context)}},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.places_in_documents(t[6], {.separator = 3}, t[7]);
          AttentionMask mask;
          if (documents) mask.places = t[7].reshaped(rows, 1);
          if (lengths) mask.lengths = t[8];
          s.attention_forward(shape, {.joint = t[0], .dropout_keys = t[1], .mask = mask, .y = t[2], .log_sums = t[3]});
          s.attention_backward(shape, {.joint = t[0],
                                       .dropout_keys = t[1],
                                       .mask = mask,
                                       .y = t[2],
                                       .log_sums = t[3],
                                       .d_y = t[4],
                                       .d_joint = t[5]});
        },
        fmt::format("attention of {} x {} with a mask", samples, context));
  }
}

/// Lengths include 0 and one that exceeds the series.
TEST_F(CpuSequencesTest, PaddedSeries) {
  for (const auto pool : {PaddedSeries::Pool::mean, PaddedSeries::Pool::max, PaddedSeries::Pool::last}) {
    for (const std::int64_t samples : {0, 1, 40}) {
      const PaddedSeries series{.steps = 6, .pool = pool};
      compare(
          {{.name = "x", .rows = samples * 6, .columns = 35},
           {.name = "lengths", .rows = samples, .columns = 1, .holds = Operand::tokens, .scale = 8},
           {.name = "y", .rows = samples, .columns = 35, .tolerance = 10},
           {.name = "d_y", .rows = samples, .columns = 35},
           {.name = "d_x", .rows = samples * 6, .columns = 35, .tolerance = 10},
           {.name = "inside", .rows = samples * 6, .columns = 1, .holds = Operand::tokens, .scale = 1},
           {.name = "behind", .rows = samples * 6, .columns = 1, .holds = Operand::tokens, .scale = 1},
           {.name = "carried", .rows = samples * 6, .columns = 35, .tolerance = 2}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.pool_series_forward(series, t[0], t[1], t[2]);
            s.pool_series_backward(series, t[0], t[1], t[3], t[4]);
            s.padded_rows(t[1], PaddedRows::inside, t[5]);
            s.padded_rows(t[1], PaddedRows::behind_the_last, t[6]);
            s.carry_rows(t[0], t[5], Accumulate::yes, t[7]);
            s.carry_rows(t[7], t[6], Accumulate::no, t[7]);
          },
          fmt::format("pool {} of {} samples", static_cast<int>(pool), samples));
    }
  }
}

// ---- recurrence ----

/// About every third sequence restarts at a step.
constexpr Operand kPlacesOfSteps{.name = "places of steps", .columns = 1, .holds = Operand::tokens, .scale = 3};

TEST_F(CpuSequencesTest, LstmsThatBeginAnew) {
  for (const Lstm& shape :
       {Lstm{.steps = 4, .sequences = 3, .hidden = 5}, Lstm{.steps = 6, .sequences = 20, .hidden = 100}}) {
    const std::int64_t rows = shape.steps * shape.sequences, hidden = shape.hidden;
    Operand places = kPlacesOfSteps;
    places.rows = rows;
    compare(
        {{.name = "gates", .rows = rows, .columns = 4 * hidden, .tolerance = 400, .scale = 2},
         {.name = "recurrent", .rows = hidden, .columns = 4 * hidden, .scale = 0.2},
         {.name = "cells", .rows = rows + shape.sequences, .columns = hidden, .tolerance = 200},
         {.name = "hidden", .rows = rows + shape.sequences, .columns = hidden, .tolerance = 200},
         {.name = "d_hidden", .rows = rows, .columns = hidden, .tolerance = 400},
         {.name = "d_cell", .rows = shape.sequences, .columns = hidden, .tolerance = 400},
         places},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.lstm_forward(shape, {.gates = t[0], .recurrent = t[1], .cells = t[2], .hidden = t[3], .places = t[6]});
          s.lstm_backward(
              shape,
              {.gates = t[0], .recurrent = t[1], .cells = t[2], .d_hidden = t[4], .d_cell = t[5], .places = t[6]});
        },
        fmt::format("LSTM of {} sequences that begin anew", shape.sequences));
  }
}

TEST_F(CpuSequencesTest, GrusThatBeginAnew) {
  for (const Gru& shape :
       {Gru{.steps = 4, .sequences = 3, .hidden = 5}, Gru{.steps = 6, .sequences = 20, .hidden = 100}}) {
    const std::int64_t rows = shape.steps * shape.sequences, hidden = shape.hidden;
    Operand places = kPlacesOfSteps;
    places.rows = rows;
    compare(
        {{.name = "gates", .rows = rows, .columns = 3 * hidden, .tolerance = 400, .scale = 2},
         {.name = "recurrent", .rows = hidden, .columns = 3 * hidden, .scale = 0.2},
         {.name = "bias", .rows = 1, .columns = 3 * hidden},
         {.name = "products", .rows = rows, .columns = 3 * hidden, .tolerance = 400},
         {.name = "hidden", .rows = rows + shape.sequences, .columns = hidden, .tolerance = 200},
         {.name = "d_hidden", .rows = rows, .columns = hidden, .tolerance = 400},
         places},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.gru_forward(
              shape,
              {.gates = t[0], .recurrent = t[1], .bias = t[2], .products = t[3], .hidden = t[4], .places = t[6]});
          s.gru_backward(
              shape,
              {.gates = t[0], .recurrent = t[1], .products = t[3], .hidden = t[4], .d_hidden = t[5], .places = t[6]});
        },
        fmt::format("GRU of {} sequences that begin anew", shape.sequences));
  }
}

TEST_F(CpuSequencesTest, Lstms) {
  struct Case {
    std::int64_t steps, sequences, hidden;
    std::int64_t nan_at;
  };
  for (const auto& [steps, sequences, hidden, nan_at] :
       {Case{3, 0, 4, -1}, Case{1, 1, 1, -1}, Case{4, 3, 5, 20}, Case{2, 20, 33, -1}, Case{6, 20, 100, -1},
        Case{3, 13, 150, 700}}) {
    for (const std::int64_t steps_of_part : {std::int64_t{6}, std::int64_t{4}, std::int64_t{1}}) {
      const Lstm shape{.steps = steps, .sequences = sequences, .hidden = hidden};
      const std::int64_t rows = steps * sequences;
      compare(
          {{.name = "gates", .rows = rows, .columns = 4 * hidden, .tolerance = 400, .nan_at = nan_at, .scale = 2},
           {.name = "recurrent", .rows = hidden, .columns = 4 * hidden, .scale = 0.2},
           {.name = "cells", .rows = rows + sequences, .columns = hidden, .tolerance = 200},
           {.name = "hidden", .rows = rows + sequences, .columns = hidden, .tolerance = 200},
           {.name = "d_hidden", .rows = rows, .columns = hidden, .tolerance = 400},
           {.name = "d_cell", .rows = sequences, .columns = hidden, .tolerance = 400}},
          [&](SequenceOperations& s, const std::vector<Tensor>& t) {
            s.lstm_forward(shape, {.gates = t[0], .recurrent = t[1], .cells = t[2], .hidden = t[3]});
            test::lstm_backward_in_parts(
                s, shape, {.gates = t[0], .recurrent = t[1], .cells = t[2], .d_hidden = t[4], .d_cell = t[5]},
                steps_of_part);
          },
          fmt::format("LSTM of {} steps, {} in a call, {} sequences, {} units", steps, steps_of_part, sequences,
                      hidden));
    }
  }
}

TEST_F(CpuSequencesTest, Grus) {
  struct Case {
    std::int64_t steps, sequences, hidden;
    std::int64_t nan_at;
  };
  for (const auto& [steps, sequences, hidden, nan_at] :
       {Case{3, 0, 4, -1}, Case{1, 1, 1, -1}, Case{4, 3, 5, 20}, Case{2, 20, 33, -1}, Case{6, 20, 100, -1},
        Case{3, 13, 150, 700}}) {
    const Gru shape{.steps = steps, .sequences = sequences, .hidden = hidden};
    const std::int64_t rows = steps * sequences;
    compare(
        {{.name = "gates", .rows = rows, .columns = 3 * hidden, .tolerance = 400, .nan_at = nan_at, .scale = 2},
         {.name = "recurrent", .rows = hidden, .columns = 3 * hidden, .scale = 0.2},
         {.name = "bias", .rows = 1, .columns = 3 * hidden},
         {.name = "products", .rows = rows, .columns = 3 * hidden, .tolerance = 400},
         {.name = "hidden", .rows = rows + sequences, .columns = hidden, .tolerance = 200},
         {.name = "d_hidden", .rows = rows, .columns = hidden, .tolerance = 400}},
        [&](SequenceOperations& s, const std::vector<Tensor>& t) {
          s.gru_forward(shape, {.gates = t[0], .recurrent = t[1], .bias = t[2], .products = t[3], .hidden = t[4]});
          s.gru_backward(shape, {.gates = t[0], .recurrent = t[1], .products = t[3], .hidden = t[4], .d_hidden = t[5]});
        },
        fmt::format("GRU of {} steps, {} sequences, {} units", steps, sequences, hidden));
  }
}

}  // namespace
}  // namespace lockstep::model
