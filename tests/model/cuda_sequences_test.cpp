// Compares CudaSequences on the host (support/device_on_cpu.cpp) with the float64 reference: its combination of kernels
// and products. cuda_sequence_kernels_test.cpp and cuda_attention_kernels_test.cpp test the kernels alone.
#include "model/cuda/cuda_sequences.hpp"

#include <algorithm>
#include <list>
#include <optional>

#include "model/kernel_harness.hpp"
#include "model/lstm_parts.hpp"
#include "model/reference/reference_sequences.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;

/// A tensor on both sides.
struct Pair {
  Pair(ElementType type, ElementType judge_type, std::int64_t rows, std::int64_t columns)
      : device(type, rows, columns), judge(judge_type, rows, columns) {}
  GuardedTensor device, judge;
};

class CudaSequencesTest : public ::testing::TestWithParam<ElementType> {
 protected:
  CudaSequencesTest() {
    scratch_.resize(scratch_bytes(std::int64_t{1} << 40) / sizeof(double) + 1);
    sequences_.emplace(CudaTools{.stream = nullptr,
                                 .matmul = products_,
                                 .memory = memory_,
                                 .scratch = {scratch_.data(), scratch_.size() * sizeof(double)}},
                       OperationTypes{.compute = GetParam(), .master = ElementType::float32});
  }
  ~CudaSequencesTest() override {
    for (const Pair& pair : pairs_) EXPECT_TRUE(pair.device.guards_are_intact());
  }

  /// Unwritten memory: NaN.
  Pair& workspace(ElementType type, std::int64_t rows, std::int64_t columns) {
    const bool is_number = type == ElementType::float32 || type == ElementType::bfloat16;
    return pairs_.emplace_back(type, is_number ? ElementType::float64 : type, rows, columns);
  }
  Pair& filled(ElementType type, std::int64_t rows, std::int64_t columns, double scale = 1) {
    Pair& pair = workspace(type, rows, columns);
    const std::string name = "tensor " + std::to_string(pairs_.size());
    for (std::size_t i = 0; i < pair.device.count(); ++i) set(pair, i, scale * sample(name, i));
    return pair;
  }
  /// A parameter's gradient before the call.
  Pair& gradient(Accumulate accumulate, std::int64_t rows, std::int64_t columns) {
    return accumulate == Accumulate::yes ? filled(ElementType::float32, rows, columns)
                                         : workspace(ElementType::float32, rows, columns);
  }
  static void set(Pair& pair, std::size_t i, double value) {
    pair.device.set(i, value);
    pair.judge.set(i, pair.device.get(i));
  }
  /// Makes the same call on both: call(operations, of); of(pair) is the tensor.
  template <class Call>
  void both(const Call& call) {
    call(static_cast<SequenceOperations&>(*sequences_), [](const Pair& pair) { return pair.device.tensor(); });
    call(static_cast<SequenceOperations&>(reference_), [](const Pair& pair) { return pair.judge.tensor(); });
  }
  void expect_same(const Pair& pair, const char* what) {
    expect_close(pair.device.values(), pair.judge.values(), 2 * tolerance(GetParam()), what);
  }

  ElementType type() const { return GetParam(); }

  DeviceMemory memory_{0};
  Matmul products_{memory_, {}};
  std::vector<double> scratch_;
  std::optional<CudaSequences> sequences_;
  ReferenceSequences reference_;
  std::list<Pair> pairs_;
};

constexpr std::array kAccumulate{Accumulate::no, Accumulate::yes};

TEST_P(CudaSequencesTest, EmbedsAndTakesGradientsBack) {
  for (const Accumulate accumulate : kAccumulate) {
    for (const std::int64_t rows : {0, 3, 10, 33}) {  // with 5 positions: less than one sample, whole ones, and a rest
      Pair& tokens = workspace(ElementType::int32, rows, 1);
      for (std::size_t r = 0; r < tokens.device.count(); ++r) set(tokens, r, static_cast<double>(r * 7 % 4));
      const Pair &table = filled(type(), 6, 24), &places = filled(type(), 5, 24);
      const Pair &y = workspace(type(), rows, 24), &d_y = filled(type(), rows, 24);
      const Pair &d_table = gradient(accumulate, 6, 24), &d_places = gradient(accumulate, 5, 24);
      both([&](SequenceOperations& operations, const auto& of) {
        operations.embedding_forward(of(tokens), of(table), of(places), of(y));
        operations.embedding_backward(of(tokens), of(d_y), accumulate, of(d_table), of(d_places));
      });
      expect_same(y, "y");
      expect_same(d_table, "d_table");
      expect_same(d_places, "d_positions");
      both([&](SequenceOperations& operations, const auto& of) {
        operations.embedding_backward(of(tokens), of(d_y), accumulate, of(d_table), {});
      });
      expect_same(d_table, "d_table alone");
    }
  }
}

TEST_P(CudaSequencesTest, ProjectsOntoTheTable) {
  for (const Accumulate accumulate : kAccumulate) {
    for (const std::int64_t rows : {0, 7}) {
      const Pair &x = filled(type(), rows, 12), &table = filled(type(), 19, 12);
      const Pair &y = workspace(type(), rows, 19), &d_y = filled(type(), rows, 19);
      const Pair &d_table = gradient(accumulate, 19, 12), &d_x = workspace(type(), rows, 12);
      both([&](SequenceOperations& operations, const auto& of) {
        operations.project_forward(of(x), of(table), of(y));
        operations.project_backward(of(x), of(table), of(d_y), accumulate, of(d_table), of(d_x));
      });
      expect_same(y, "y");
      expect_same(d_table, "d_table");
      expect_same(d_x, "d_x");
    }
  }
}

TEST_P(CudaSequencesTest, MultipliesPairs) {
  for (const std::int64_t count : {0, 3}) {
    for (const bool turned : {false, true}) {
      const BatchedProduct shape{
          .count = count, .rows = 5, .inner = 7, .columns = 6, .a_transposed = turned, .b_transposed = turned};
      const Pair& a = turned ? filled(type(), count * 7, 5) : filled(type(), count * 5, 7);
      const Pair& b = turned ? filled(type(), count * 6, 7) : filled(type(), count * 7, 6);
      const Pair& c = workspace(type(), count * 5, 6);
      both([&](SequenceOperations& operations, const auto& of) {
        operations.batched_product(shape, of(a), of(b), of(c));
      });
      expect_same(c, "c");
    }
  }
}

TEST_P(CudaSequencesTest, NormalisesAndBends) {
  for (const std::int64_t rows : {0, 9}) {
    const Pair &x = filled(type(), rows, 40), &residual = filled(type(), rows, 40), &sum = workspace(type(), rows, 40);
    const Pair &scale = filled(type(), 1, 40), &shift = filled(type(), 1, 40), &y = workspace(type(), rows, 40);
    const Pair &mean = workspace(ElementType::float32, rows, 1), &inverse = workspace(ElementType::float32, rows, 1);
    const Pair &d_y = filled(type(), rows, 40), &d_residual = filled(type(), rows, 40);
    const Pair &d_scale = gradient(Accumulate::no, 1, 40), &d_shift = gradient(Accumulate::no, 1, 40);
    const Pair &d_x = workspace(type(), rows, 40), &bent = workspace(type(), rows, 40),
               &d_bias = gradient(Accumulate::yes, 1, 40);
    both([&](SequenceOperations& operations, const auto& of) {
      operations.layer_norm_forward({.x = of(x),
                                     .residual = of(residual),
                                     .scale = of(scale),
                                     .shift = of(shift),
                                     .sum = of(sum),
                                     .mean = of(mean),
                                     .inverse = of(inverse),
                                     .y = of(y)});
      operations.layer_norm_backward({.x = of(sum),
                                      .scale = of(scale),
                                      .mean = of(mean),
                                      .inverse = of(inverse),
                                      .d_y = of(d_y),
                                      .d_residual = of(d_residual),
                                      .d_scale = of(d_scale),
                                      .d_shift = of(d_shift),
                                      .d_x = of(d_x)},
                                     Accumulate::no);
      operations.gelu_forward(of(y), of(shift), of(bent));
      operations.gelu_backward(of(y), of(d_y), Accumulate::yes, of(d_bias));
    });
    expect_same(sum, "sum");
    expect_same(d_x, "d_x");
    expect_same(d_scale, "d_scale");
    expect_same(d_shift, "d_shift");
    expect_same(bent, "gelu");
    expect_same(d_y, "gradient of gelu");
    expect_same(d_bias, "d_bias");
  }
}

TEST_P(CudaSequencesTest, Drops) {
  for (const float rate : {0.0f, 0.4f}) {
    for (const std::int64_t samples : {0, 3}) {
      Pair& keys = workspace(ElementType::uint64, samples, 1);
      for (std::size_t s = 0; s < keys.device.count(); ++s) set(keys, s, static_cast<double>(s + 12345));
      const Pair &x = filled(type(), samples * 5, 6), &y = workspace(type(), samples * 5, 6);
      const Dropout rule{.rate = rate, .stream = 20, .order = RowOrder::time_major};
      both([&](SequenceOperations& operations, const auto& of) {
        operations.dropout(of(x), rate > 0 ? of(keys) : Tensor{}, rule, of(y));
        operations.dropout(of(x), rate > 0 ? of(keys) : Tensor{}, rule, of(x));
      });
      expect_same(y, "y");
      expect_same(x, "x in place");
    }
  }
}

TEST_P(CudaSequencesTest, AttendsOverContextsThatGrow) {
  for (const std::int64_t context : {0, 9, 40, 9}) {  // 0: no samples
    const std::int64_t samples = context == 0 ? 0 : 2;
    const Attention shape{.context = std::max<std::int64_t>(context, 1), .heads = 2, .head_size = 8, .dropout = {}};
    const std::int64_t rows = samples * shape.context;
    const Pair &joint = filled(type(), rows, 48), &y = workspace(type(), rows, 16), &d_y = filled(type(), rows, 16);
    const Pair &log_sums = workspace(ElementType::float32, samples * 2, shape.context),
               &d_joint = workspace(type(), rows, 48);
    both([&](SequenceOperations& operations, const auto& of) {
      operations.attention_forward(shape, {.joint = of(joint), .y = of(y), .log_sums = of(log_sums)});
      operations.attention_backward(
          shape, {.joint = of(joint), .y = of(y), .log_sums = of(log_sums), .d_y = of(d_y), .d_joint = of(d_joint)});
    });
    expect_same(y, "y");
    expect_same(log_sums, "log_sums");
    expect_same(d_joint, "d_joint");
  }
}

/// Weights of a layer whose sums do not drown its inputs.
double recurrent_scale(std::int64_t units) { return 3 / std::sqrt(static_cast<double>(units)); }

TEST_P(CudaSequencesTest, RunsAnLstmThereAndBackInOneCallAndInParts) {
  for (const std::int64_t steps_of_part : {6, 4, 1}) {
    for (const Lstm& shape :
         {Lstm{.steps = 3, .sequences = 0, .hidden = 4}, Lstm{.steps = 1, .sequences = 2, .hidden = 3},
          Lstm{.steps = 6, .sequences = 5, .hidden = 20}, Lstm{.steps = 6, .sequences = 9, .hidden = 34},
          Lstm{.steps = 6, .sequences = 2, .hidden = 21}, Lstm{.steps = 6, .sequences = 8, .hidden = 128},
          Lstm{.steps = 2, .sequences = 3, .hidden = 130}}) {
      const std::int64_t rows = shape.steps * shape.sequences;
      const Pair &gates = filled(type(), rows, 4 * shape.hidden),
                 &recurrent = filled(type(), shape.hidden, 4 * shape.hidden, recurrent_scale(shape.hidden));
      // The state before the steps is given; the rest is written.
      Pair &cells = filled(type(), rows + shape.sequences, shape.hidden),
           &hidden = filled(type(), rows + shape.sequences, shape.hidden);
      const Pair &d_hidden = filled(type(), rows, shape.hidden),
                 &d_cell = workspace(type(), shape.sequences, shape.hidden);
      for (std::size_t i = static_cast<std::size_t>(shape.sequences * shape.hidden); i < cells.device.count(); ++i) {
        set(cells, i, kNan);
        set(hidden, i, kNan);
      }
      both([&](SequenceOperations& operations, const auto& of) {
        operations.lstm_forward(
            shape, {.gates = of(gates), .recurrent = of(recurrent), .cells = of(cells), .hidden = of(hidden)});
      });
      expect_same(cells, "cells");
      expect_same(hidden, "hidden");
      both([&](SequenceOperations& operations, const auto& of) {
        model::test::lstm_backward_in_parts(operations, shape,
                                            {.gates = of(gates),
                                             .recurrent = of(recurrent),
                                             .cells = of(cells),
                                             .d_hidden = of(d_hidden),
                                             .d_cell = of(d_cell)},
                                            steps_of_part);
      });
      expect_same(gates, "gradients of the sums");
    }
  }
}

TEST_P(CudaSequencesTest, RunsAGruThereAndBack) {
  for (const Gru& shape :
       {Gru{.steps = 3, .sequences = 0, .hidden = 4}, Gru{.steps = 1, .sequences = 2, .hidden = 3},
        Gru{.steps = 6, .sequences = 5, .hidden = 20}, Gru{.steps = 4, .sequences = 9, .hidden = 34},
        Gru{.steps = 6, .sequences = 2, .hidden = 21}, Gru{.steps = 3, .sequences = 8, .hidden = 128},
        Gru{.steps = 2, .sequences = 3, .hidden = 130}}) {
    const std::int64_t rows = shape.steps * shape.sequences;
    const Pair &gates = filled(type(), rows, 3 * shape.hidden),
               &recurrent = filled(type(), shape.hidden, 3 * shape.hidden, recurrent_scale(shape.hidden)),
               &bias = filled(type(), 1, 3 * shape.hidden), &products = workspace(type(), rows, 3 * shape.hidden);
    Pair& hidden = filled(type(), rows + shape.sequences, shape.hidden);
    const Pair& d_hidden = filled(type(), rows, shape.hidden);
    for (std::size_t i = static_cast<std::size_t>(shape.sequences * shape.hidden); i < hidden.device.count(); ++i) {
      set(hidden, i, kNan);
    }
    both([&](SequenceOperations& operations, const auto& of) {
      operations.gru_forward(shape, {.gates = of(gates),
                                     .recurrent = of(recurrent),
                                     .bias = of(bias),
                                     .products = of(products),
                                     .hidden = of(hidden)});
    });
    expect_same(hidden, "hidden");
    both([&](SequenceOperations& operations, const auto& of) {
      operations.gru_backward(shape, {.gates = of(gates),
                                      .recurrent = of(recurrent),
                                      .products = of(products),
                                      .hidden = of(hidden),
                                      .d_hidden = of(d_hidden)});
    });
    expect_same(gates, "gradients of the sums");
    expect_same(products, "gradients of the products");
  }
}

TEST_P(CudaSequencesTest, AttendsToBothSides) {
  const Attention shape{.context = 21, .heads = 2, .head_size = 64, .dropout = {}, .causal = false};
  const Pair &joint = filled(type(), 42, 384), &y = workspace(type(), 42, 128), &d_y = filled(type(), 42, 128);
  const Pair &log_sums = workspace(ElementType::float32, 4, 21), &d_joint = workspace(type(), 42, 384);
  both([&](SequenceOperations& operations, const auto& of) {
    operations.attention_forward(shape, {.joint = of(joint), .y = of(y), .log_sums = of(log_sums)});
    operations.attention_backward(
        shape, {.joint = of(joint), .y = of(y), .log_sums = of(log_sums), .d_y = of(d_y), .d_joint = of(d_joint)});
  });
  expect_same(y, "y");
  expect_same(d_joint, "d_joint");
}

TEST_P(CudaSequencesTest, KeepsDocumentsApart) {
  for (const RowOrder order : {RowOrder::sample_major, RowOrder::time_major}) {
    Pair &tokens = workspace(ElementType::int32, 3, 45), &places = workspace(ElementType::int32, 3, 45);
    for (std::size_t i = 0; i < tokens.device.count(); ++i) set(tokens, i, static_cast<double>(i * 7 % 11 * (i % 5)));
    both([&](SequenceOperations& operations, const auto& of) {
      operations.places_in_documents(of(tokens), {.separator = 8, .order = order}, of(places));
    });
    EXPECT_EQ(places.device.values(), places.judge.values());
    if (order == RowOrder::time_major) continue;
    const Pair &table = filled(type(), 80, 24), &positions = filled(type(), 45, 24), &y = workspace(type(), 135, 24);
    const Pair &d_y = filled(type(), 135, 24), &d_positions = gradient(Accumulate::no, 45, 24);
    both([&](SequenceOperations& operations, const auto& of) {
      operations.embedding_forward(of(tokens).reshaped(135, 1), of(table), of(positions), of(y),
                                   of(places).reshaped(135, 1));
      operations.embedding_backward(of(places).reshaped(135, 1), of(d_y), Accumulate::no, of(d_positions), {});
    });
    expect_same(y, "y");
    expect_same(d_positions, "d_positions");
  }
}

TEST_P(CudaSequencesTest, AttendsWithMasks) {
  for (const std::int64_t head_size : {20, 64}) {  // 64: tensor cores without a mask
    for (const bool causal : {true, false}) {
      const Attention shape{.context = 45, .heads = 2, .head_size = head_size, .dropout = {}, .causal = causal};
      const std::int64_t width = shape.width();
      const Pair &joint = filled(type(), 135, 3 * width), &y = workspace(type(), 135, width);
      const Pair &d_y = filled(type(), 135, width), &log_sums = workspace(ElementType::float32, 6, 45);
      const Pair& d_joint = workspace(type(), 135, 3 * width);
      Pair &places = workspace(ElementType::int32, 135, 1), &lengths = workspace(ElementType::int32, 3, 1);
      for (std::size_t i = 0; i < 135; ++i) set(places, i, static_cast<double>(i % 45 % 34));
      for (std::size_t s = 0; s < 3; ++s) set(lengths, s, std::array{0.0, 33.0, 90.0}[s]);
      both([&](SequenceOperations& operations, const auto& of) {
        AttentionMask mask;
        if (causal) mask.places = of(places);
        if (!causal) mask.lengths = of(lengths);
        operations.attention_forward(shape, {.joint = of(joint), .mask = mask, .y = of(y), .log_sums = of(log_sums)});
        operations.attention_backward(shape, {.joint = of(joint),
                                              .mask = mask,
                                              .y = of(y),
                                              .log_sums = of(log_sums),
                                              .d_y = of(d_y),
                                              .d_joint = of(d_joint)});
      });
      expect_same(y, "y");
      expect_same(d_joint, "d_joint");
    }
  }
}

TEST_P(CudaSequencesTest, BeginsAnewWithinAWindow) {
  for (const std::int64_t hidden : {20, 130}) {
    const std::int64_t steps = 5, sequences = 7, rows = steps * sequences;
    Pair& places = workspace(ElementType::int32, rows, 1);
    for (std::size_t i = 0; i < places.device.count(); ++i) set(places, i, static_cast<double>(i * 5 % 3));
    const Pair &gates = filled(type(), rows, 4 * hidden),
               &recurrent = filled(type(), hidden, 4 * hidden, recurrent_scale(hidden));
    const Pair &cells = filled(type(), rows + sequences, hidden), &states = filled(type(), rows + sequences, hidden);
    const Pair &d_hidden = filled(type(), rows, hidden), &d_cell = workspace(type(), sequences, hidden);
    const Lstm lstm{.steps = steps, .sequences = sequences, .hidden = hidden};
    both([&](SequenceOperations& operations, const auto& of) {
      operations.lstm_forward(lstm, {.gates = of(gates),
                                     .recurrent = of(recurrent),
                                     .cells = of(cells),
                                     .hidden = of(states),
                                     .places = of(places)});
      operations.lstm_backward(lstm, {.gates = of(gates),
                                      .recurrent = of(recurrent),
                                      .cells = of(cells),
                                      .d_hidden = of(d_hidden),
                                      .d_cell = of(d_cell),
                                      .places = of(places)});
    });
    expect_same(states, "hidden");
    expect_same(gates, "gradients of the sums");
    expect_same(d_cell, "d_cell");
    const Pair &of_gru = filled(type(), rows, 3 * hidden), &bias = filled(type(), 1, 3 * hidden),
               &products = workspace(type(), rows, 3 * hidden),
               &recurrent_of_gru = filled(type(), hidden, 3 * hidden, recurrent_scale(hidden)),
               &states_of_gru = filled(type(), rows + sequences, hidden), &d_of_gru = filled(type(), rows, hidden);
    const Gru gru{.steps = steps, .sequences = sequences, .hidden = hidden};
    both([&](SequenceOperations& operations, const auto& of) {
      operations.gru_forward(gru, {.gates = of(of_gru),
                                   .recurrent = of(recurrent_of_gru),
                                   .bias = of(bias),
                                   .products = of(products),
                                   .hidden = of(states_of_gru),
                                   .places = of(places)});
      operations.gru_backward(gru, {.gates = of(of_gru),
                                    .recurrent = of(recurrent_of_gru),
                                    .products = of(products),
                                    .hidden = of(states_of_gru),
                                    .d_hidden = of(d_of_gru),
                                    .places = of(places)});
    });
    expect_same(states_of_gru, "hidden of the GRU");
    expect_same(of_gru, "gradients of the GRU's sums");
    expect_same(products, "gradients of the products");
  }
}

TEST_P(CudaSequencesTest, PoolsPaddedSeries) {
  for (const auto pool : {PaddedSeries::Pool::mean, PaddedSeries::Pool::max, PaddedSeries::Pool::last}) {
    const PaddedSeries series{.steps = 6, .pool = pool};
    const Pair &x = filled(type(), 24, 35), &y = workspace(type(), 4, 35), &d_y = filled(type(), 4, 35);
    const Pair &d_x = workspace(type(), 24, 35), &carried = filled(type(), 24, 35);
    const Pair &inside = workspace(ElementType::int32, 24, 1), &behind = workspace(ElementType::int32, 24, 1);
    Pair& lengths = workspace(ElementType::int32, 4, 1);
    for (std::size_t s = 0; s < 4; ++s) set(lengths, s, std::array{0.0, 1.0, 4.0, 9.0}[s]);
    both([&](SequenceOperations& operations, const auto& of) {
      operations.pool_series_forward(series, of(x), of(lengths), of(y));
      operations.pool_series_backward(series, of(x), of(lengths), of(d_y), of(d_x));
      operations.padded_rows(of(lengths), PaddedRows::inside, of(inside));
      operations.padded_rows(of(lengths), PaddedRows::behind_the_last, of(behind));
      operations.carry_rows(of(x), of(inside), Accumulate::yes, of(carried));
      operations.carry_rows(of(carried), of(behind), Accumulate::no, of(carried));
    });
    expect_same(y, "y");
    expect_same(d_x, "d_x");
    expect_same(carried, "carried");
    EXPECT_EQ(inside.device.values(), inside.judge.values());
    EXPECT_EQ(behind.device.values(), behind.judge.values());
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaSequencesTest, ::testing::ValuesIn(kTypes),
                         [](const auto& given) { return std::string(name_of(given.param)); });

}  // namespace
}  // namespace lockstep::model::cuda
