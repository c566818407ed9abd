// Tests the checks of operands of SequenceOperations.
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spoilt_calls.hpp"

namespace lockstep::model {
namespace {

using test::Argument;
using test::each;
using test::examine;
using test::kCompute;
using test::kMaster;
using test::Tensors;
using test::tensors_for;

constexpr ElementType kTokens = ElementType::int32, kKeys = ElementType::uint64;
constexpr std::int64_t kContext = 3;

TEST(SequenceChecks, TokensAndTables) {
  test::IdleSequences sequences;
  examine("to_time_major",
          {{.name = "tokens", .type = kTokens, .rows = each(1), .columns = 5, .any_columns_if_empty = true},
           {"out", kTokens, each(5), 1}},
          {{1}, {0}}, [&](const Tensors& t) { sequences.to_time_major(t[0], t[1]); });
  examine("to_tokens",
          {{.name = "samples",
            .type = ElementType::float32,
            .rows = each(1),
            .columns = 9,
            .any_columns = true,
            .also = {ElementType::uint8, ElementType::float64}},
           {"tokens", kTokens, each(1), 4}},
          {{}, {}},
          [&](const Tensors& t) { sequences.to_tokens(t[0], {.first = 3, .count = 4, .vocabulary = 5}, t[1]); });
  const Tensors both = tensors_for({{"samples", ElementType::float32, 2, 9}, {"tokens", kTokens, 2, 4}});
  for (const TokenRange& wrong :
       {TokenRange{.first = 6, .count = 4, .vocabulary = 5}, TokenRange{.first = -1, .count = 4, .vocabulary = 5},
        TokenRange{.first = 3, .count = 4, .vocabulary = 0}}) {
    EXPECT_THROW(sequences.to_tokens(both[0], wrong, both[1]), std::invalid_argument);
  }
  examine("embedding_forward",
          {{"tokens", kTokens, each(kContext), 1},
           {.name = "table", .type = kCompute, .rows = 7, .columns = 4, .any_rows = true},
           {.name = "positions", .type = kCompute, .rows = 3, .columns = 4, .optional = true, .any_rows = true},
           {"y", kCompute, each(kContext), 4}},
          {{}, {}}, [&](const Tensors& t) { sequences.embedding_forward(t[0], t[1], t[2], t[3]); });
  examine("embedding_backward",
          {{"tokens", kTokens, each(kContext), 1},
           {"d_y", kCompute, each(kContext), 4},
           {.name = "d_table", .type = kMaster, .rows = 7, .columns = 4, .optional = true, .any_rows = true},
           {.name = "d_positions", .type = kMaster, .rows = 3, .columns = 4, .optional = true, .any_rows = true}},
          {{}, {}}, [&](const Tensors& t) { sequences.embedding_backward(t[0], t[1], Accumulate::no, t[2], t[3]); });
  examine("project_forward", {{"x", kCompute, each(1), 4}, {"table", kCompute, 7, 4}, {"y", kCompute, each(1), 7}},
          {{2}, {0}}, [&](const Tensors& t) { sequences.project_forward(t[0], t[1], t[2]); });
  examine("project_backward",
          {{"x", kCompute, each(1), 4},
           {"table", kCompute, 7, 4},
           {"d_y", kCompute, each(1), 7},
           {"d_table", kMaster, 7, 4, true},
           {"d_x", kCompute, each(1), 4}},
          {{4}, {0, 2}},
          [&](const Tensors& t) { sequences.project_backward(t[0], t[1], t[2], Accumulate::yes, t[3], t[4]); });
  // Empty tables and positions.
  const Tensors t =
      tensors_for({{"tokens", kTokens, 2, 1}, {"y", kCompute, 2, 4}, {"d", kMaster, 7, 4}, {"table", kCompute, 7, 4}});
  Tensor no_table = t[3], no_positions = t[3], no_d_positions = t[2];
  no_table.rows = no_positions.rows = no_d_positions.rows = 0;
  EXPECT_THROW(sequences.embedding_forward(t[0], no_table, {}, t[1]), std::invalid_argument);
  EXPECT_THROW(sequences.embedding_forward(t[0], t[3], no_positions, t[1]), std::invalid_argument);
  EXPECT_THROW(sequences.embedding_backward(t[0], t[1], Accumulate::no, t[2], no_d_positions), std::invalid_argument);
}

TEST(SequenceChecks, LayerNormAndGelu) {
  test::IdleSequences sequences;
  const auto norm = [&](const Tensors& t) {
    sequences.layer_norm_forward({.x = t[0],
                                  .residual = t[1],
                                  .scale = t[2],
                                  .shift = t[3],
                                  .sum = t[4],
                                  .mean = t[5],
                                  .inverse = t[6],
                                  .y = t[7]});
  };
  const std::vector<Argument> arguments{{"x", kCompute, each(1), 4},      {"residual", kCompute, each(1), 4},
                                        {"scale", kCompute, 1, 4},        {"shift", kCompute, 1, 4},
                                        {"sum", kCompute, each(1), 4},    {"mean", kMaster, each(1), 1},
                                        {"inverse", kMaster, each(1), 1}, {"y", kCompute, each(1), 4}};
  examine("layer_norm_forward", arguments, {{4}, {0, 1}, {{4, 0}, {4, 1}}}, norm);
  examine("layer_norm_forward", arguments, {{7}, {0, 1, 4}}, norm);
  Tensors alone = tensors_for(arguments, 2);
  alone[1] = alone[4] = {};
  EXPECT_NO_THROW(norm(alone));
  examine("layer_norm_backward",
          {{"x", kCompute, each(1), 4},
           {"scale", kCompute, 1, 4},
           {"mean", kMaster, each(1), 1},
           {"inverse", kMaster, each(1), 1},
           {"d_y", kCompute, each(1), 4},
           {"d_residual", kCompute, each(1), 4, true},
           {"d_scale", kMaster, 1, 4, true},
           {"d_shift", kMaster, 1, 4, true},
           {"d_x", kCompute, each(1), 4}},
          {{8}, {0, 4, 5}, {{8, 5}}}, [&](const Tensors& t) {
            sequences.layer_norm_backward({.x = t[0],
                                           .scale = t[1],
                                           .mean = t[2],
                                           .inverse = t[3],
                                           .d_y = t[4],
                                           .d_residual = t[5],
                                           .d_scale = t[6],
                                           .d_shift = t[7],
                                           .d_x = t[8]},
                                          Accumulate::no);
          });
  examine("gelu_forward", {{"x", kCompute, each(1), 4}, {"bias", kCompute, 1, 4, true}, {"y", kCompute, each(1), 4}},
          {{2}, {0}}, [&](const Tensors& t) { sequences.gelu_forward(t[0], t[1], t[2]); });
  examine("gelu_backward",
          {{"x", kCompute, each(1), 4}, {"d_y", kCompute, each(1), 4}, {"d_bias", kMaster, 1, 4, true}}, {{1}, {0}},
          [&](const Tensors& t) { sequences.gelu_backward(t[0], t[1], Accumulate::no, t[2]); });
}

TEST(SequenceChecks, BatchedProduct) {
  test::IdleSequences sequences;
  for (const bool turned : {false, true}) {
    examine("batched_product",
            {{"a", kCompute, each(turned ? 5 : 3), turned ? 3 : 5},
             {"b", kCompute, each(turned ? 4 : 5), turned ? 5 : 4},
             {"c", kCompute, each(3), 4}},
            {{2}, {0}}, [&](const Tensors& t) {
              sequences.batched_product({.count = t[2].rows / 3,
                                         .rows = 3,
                                         .inner = 5,
                                         .columns = 4,
                                         .a_transposed = turned,
                                         .b_transposed = turned},
                                        t[0], t[1], t[2]);
            });
  }
  const Tensors t = tensors_for({{"a", kCompute, 2, 2}});
  EXPECT_THROW(sequences.batched_product({.count = 1}, t[0], t[0], t[0]), std::invalid_argument);
}

TEST(SequenceChecks, DropoutNeedsKeys) {
  test::IdleSequences sequences;
  const Dropout rule{.rate = 0.5f, .stream = 16};
  examine("dropout",
          {{"x", kCompute, each(kContext), 4},
           {.name = "keys", .type = kKeys, .rows = each(1), .columns = 1, .any_rows = true, .optional_if_empty = true},
           {"y", kCompute, each(kContext), 4}},
          {{2}, {0}, {{2, 0}}}, [&](const Tensors& t) { sequences.dropout(t[0], t[1], rule, t[2]); });
  const Tensors t = tensors_for({{"x", kCompute, 6, 4}, {"keys", kKeys, 2, 1}, {"y", kCompute, 6, 4}});
  EXPECT_NO_THROW(sequences.dropout(t[0], {}, {}, t[2]));
  for (const std::int64_t samples : {0, 4, 7}) {  // 6 rows are not whole samples
    Tensor keys = t[1];
    keys.rows = samples;
    EXPECT_THROW(sequences.dropout(t[0], keys, rule, t[2]), std::invalid_argument) << samples;
  }
  for (const float rate : {-0.1f, 1.0f, 2.0f}) {
    EXPECT_THROW(sequences.dropout(t[0], t[1], {.rate = rate}, t[2]), std::invalid_argument) << rate;
  }
  EXPECT_NO_THROW(sequences.dropout(t[0], t[1], {.rate = 0.5f, .first_position = 1}, t[2]));
  EXPECT_THROW(sequences.dropout(t[0], t[1], {.rate = 0.5f, .first_position = -1}, t[2]), std::invalid_argument);
}

TEST(SequenceChecks, Attention) {
  test::IdleSequences sequences;
  const Attention shape{.context = kContext, .heads = 2, .head_size = 4, .dropout = {.rate = 0.1f}};
  examine("attention_forward",
          {{"joint", kCompute, each(kContext), 24},
           {.name = "keys", .type = kKeys, .rows = each(1), .columns = 1, .optional_if_empty = true},
           {"y", kCompute, each(kContext), 8},
           {"log_sums", kMaster, each(2), kContext}},
          {{2}, {0}}, [&](const Tensors& t) {
            sequences.attention_forward(shape, {.joint = t[0], .dropout_keys = t[1], .y = t[2], .log_sums = t[3]});
          });
  examine("attention_backward",
          {{"joint", kCompute, each(kContext), 24},
           {.name = "keys", .type = kKeys, .rows = each(1), .columns = 1, .optional_if_empty = true},
           {"y", kCompute, each(kContext), 8},
           {"log_sums", kMaster, each(2), kContext},
           {"d_y", kCompute, each(kContext), 8},
           {"d_joint", kCompute, each(kContext), 24}},
          {{5}, {0, 2, 4}}, [&](const Tensors& t) {
            sequences.attention_backward(
                shape,
                {.joint = t[0], .dropout_keys = t[1], .y = t[2], .log_sums = t[3], .d_y = t[4], .d_joint = t[5]});
          });
  const Tensors t = tensors_for(
      {{"joint", kCompute, 6, 24}, {"keys", kKeys, 2, 1}, {"y", kCompute, 6, 8}, {"log_sums", kMaster, 4, 3}});
  const auto forward = [&](Attention of, const Tensor& keys) {
    sequences.attention_forward(of, {.joint = t[0], .dropout_keys = keys, .y = t[2], .log_sums = t[3]});
  };
  Attention sure = shape;
  sure.dropout.rate = 0;
  EXPECT_NO_THROW(forward(sure, {}));
  for (const Attention& of : {Attention{.context = 0, .heads = 2, .head_size = 4, .dropout = {}},
                              Attention{.context = 3, .heads = 0, .head_size = 4, .dropout = {}},
                              Attention{.context = 3, .heads = 2, .head_size = 0, .dropout = {}},
                              Attention{.context = 4, .heads = 2, .head_size = 4, .dropout = {}},
                              Attention{.context = 3, .heads = 2, .head_size = 4, .dropout = {.rate = 1}}}) {
    EXPECT_THROW(forward(of, t[1]), std::invalid_argument);
  }
  // Seven rows with 3 positions: the other tensors fit two and a third samples.
  Tensors odd = t;
  odd[0].rows = odd[2].rows = 7;
  EXPECT_THROW(
      sequences.attention_forward(shape, {.joint = odd[0], .dropout_keys = odd[1], .y = odd[2], .log_sums = odd[3]}),
      std::invalid_argument);
}

TEST(SequenceChecks, DocumentsAndPadding) {
  test::IdleSequences sequences;
  examine("places_in_documents",
          {{.name = "tokens", .type = kTokens, .rows = each(1), .columns = 5, .any_columns_if_empty = true},
           {.name = "places", .type = kTokens, .rows = each(1), .columns = 5, .any_columns_if_empty = true}},
          {{1}, {0}}, [&](const Tensors& t) { sequences.places_in_documents(t[0], {.separator = 1}, t[1]); });
  examine("carry_rows", {{"x", kCompute, each(1), 4}, {"places", kTokens, each(1), 1}, {"y", kCompute, each(1), 4}},
          {{2}, {0}}, [&](const Tensors& t) { sequences.carry_rows(t[0], t[1], Accumulate::yes, t[2]); });
  examine("pool_series_forward",
          {{"x", kCompute, each(3), 4}, {"lengths", kTokens, each(1), 1}, {"y", kCompute, each(1), 4}}, {{2}, {0}},
          [&](const Tensors& t) {
            sequences.pool_series_forward({.steps = 3, .pool = PaddedSeries::Pool::max}, t[0], t[1], t[2]);
          });
  examine("pool_series_backward",
          {{"x", kCompute, each(3), 4},
           {"lengths", kTokens, each(1), 1},
           {"d_y", kCompute, each(1), 4},
           {"d_x", kCompute, each(3), 4}},
          {{3}, {0, 2}}, [&](const Tensors& t) {
            sequences.pool_series_backward({.steps = 3, .pool = PaddedSeries::Pool::max}, t[0], t[1], t[2], t[3]);
          });
  const Tensors t = tensors_for({{"joint", kCompute, 6, 24},
                                 {"y", kCompute, 6, 8},
                                 {"log_sums", kMaster, 4, 3},
                                 {"places", kTokens, 6, 1},
                                 {"lengths", kTokens, 2, 1},
                                 {"tokens", kTokens, 2, 3},
                                 {"more", kTokens, 2, 4}});
  const auto attend = [&](bool causal, const AttentionMask& mask) {
    sequences.attention_forward({.context = 3, .heads = 2, .head_size = 4, .dropout = {}, .causal = causal},
                                {.joint = t[0], .mask = mask, .y = t[1], .log_sums = t[2]});
  };
  EXPECT_NO_THROW(attend(true, {.places = t[3], .lengths = t[4]}));
  EXPECT_THROW(attend(false, {.places = t[3]}), std::invalid_argument);
  EXPECT_THROW(attend(true, {.places = t[4]}), std::invalid_argument);
  EXPECT_THROW(attend(false, {.lengths = t[3]}), std::invalid_argument);
  EXPECT_THROW(sequences.places_in_documents(t[5], {.separator = 1, .first = 1}, t[6]), std::invalid_argument);
  EXPECT_THROW(sequences.padded_rows(t[4], PaddedRows::inside, t[5]), std::invalid_argument);
}

TEST(SequenceChecks, Lstm) {
  test::IdleSequences sequences;
  const auto shape = [](std::int64_t count) { return Lstm{.steps = 3, .sequences = count, .hidden = 4}; };
  const std::vector<Argument> arguments{{"gates", kCompute, each(3), 16},
                                        {"recurrent", kCompute, 4, 16},
                                        {"cells", kCompute, each(4), 4},
                                        {"hidden", kCompute, each(4), 4}};
  const auto forward = [&](const Tensors& t) {
    sequences.lstm_forward(shape(t[0].data == nullptr ? 0 : t[0].rows / 3),
                           {.gates = t[0], .recurrent = t[1], .cells = t[2], .hidden = t[3]});
  };
  examine("lstm_forward", arguments, {{0}, {2, 3}}, forward);
  examine("lstm_forward", arguments, {{2}, {3}}, forward);
  const std::vector<Argument> with_gradients{
      {"gates", kCompute, each(3), 16}, {"recurrent", kCompute, 4, 16},
      {"cells", kCompute, each(4), 4},  {"d_hidden", kCompute, each(3), 4},
      {"d_cell", kCompute, each(1), 4}, {"gates_after", kCompute, each(1), 16, true}};
  const auto backward = [&](const Tensors& t) {
    sequences.lstm_backward(
        shape(t[0].rows / 3),
        {.gates = t[0], .recurrent = t[1], .cells = t[2], .d_hidden = t[3], .d_cell = t[4], .gates_after = t[5]});
  };
  examine("lstm_backward", with_gradients, {{3, 4}, {0, 2, 5}}, backward);
  examine("lstm_backward", with_gradients, {{3}, {4}}, backward);
  examine("lstm_backward", with_gradients, {{0}, {2, 5}}, backward);
  const Tensors t = tensors_for(arguments, 2);
  for (const Lstm& of : {Lstm{.steps = 0, .sequences = 2, .hidden = 4}, Lstm{.steps = 3, .sequences = 2, .hidden = 0},
                         Lstm{.steps = 3, .sequences = -1, .hidden = 4}}) {
    EXPECT_THROW(sequences.lstm_forward(of, {.gates = t[0], .recurrent = t[1], .cells = t[2], .hidden = t[3]}),
                 std::invalid_argument);
  }
  // No steps, with empty tensors.
  Tensors none = tensors_for({{"gates", kCompute, 0, 16},
                              {"recurrent", kCompute, 4, 16},
                              {"cells", kCompute, 2, 4},
                              {"hidden", kCompute, 2, 4}});
  EXPECT_THROW(sequences.lstm_forward({.steps = 0, .sequences = 2, .hidden = 4},
                                      {.gates = none[0], .recurrent = none[1], .cells = none[2], .hidden = none[3]}),
               std::invalid_argument);
}

TEST(SequenceChecks, Gru) {
  test::IdleSequences sequences;
  const auto shape = [](std::int64_t count) { return Gru{.steps = 3, .sequences = count, .hidden = 4}; };
  const std::vector<Argument> arguments{{"gates", kCompute, each(3), 12},
                                        {"recurrent", kCompute, 4, 12},
                                        {"bias", kCompute, 1, 12},
                                        {"products", kCompute, each(3), 12},
                                        {"hidden", kCompute, each(4), 4}};
  const auto forward = [&](const Tensors& t) {
    sequences.gru_forward(shape(t[0].data == nullptr ? 0 : t[0].rows / 3),
                          {.gates = t[0], .recurrent = t[1], .bias = t[2], .products = t[3], .hidden = t[4]});
  };
  examine("gru_forward", arguments, {{0}, {3, 4}}, forward);
  examine("gru_forward", arguments, {{3}, {4}}, forward);
  const std::vector<Argument> with_gradients{{"gates", kCompute, each(3), 12},
                                             {"recurrent", kCompute, 4, 12},
                                             {"products", kCompute, each(3), 12},
                                             {"hidden", kCompute, each(4), 4},
                                             {"d_hidden", kCompute, each(3), 4}};
  const auto backward = [&](const Tensors& t) {
    sequences.gru_backward(shape(t[0].rows / 3),
                           {.gates = t[0], .recurrent = t[1], .products = t[2], .hidden = t[3], .d_hidden = t[4]});
  };
  examine("gru_backward", with_gradients, {{4}, {0, 2, 3}}, backward);
  examine("gru_backward", with_gradients, {{0}, {2, 3}}, backward);
  const Tensors t = tensors_for(arguments, 2);
  for (const Gru& of : {Gru{.steps = 0, .sequences = 2, .hidden = 4}, Gru{.steps = 3, .sequences = 2, .hidden = 0},
                        Gru{.steps = 3, .sequences = -1, .hidden = 4}}) {
    EXPECT_THROW(
        sequences.gru_forward(of, {.gates = t[0], .recurrent = t[1], .bias = t[2], .products = t[3], .hidden = t[4]}),
        std::invalid_argument);
  }
}

}  // namespace
}  // namespace lockstep::model
