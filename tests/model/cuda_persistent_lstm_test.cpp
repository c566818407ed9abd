// All steps of an LSTM layer in one kernel (model/cuda/persistent_lstm.hpp) on the host, where the blocks of its grid
// run side by side: against the float64 reference and against a product and a pass for each step, in odd shapes, in
// calls of any number of steps, in three orders of threads with the same bits. And what happens without a wait for
// other blocks.
#include <algorithm>
#include <set>

#include "model/cuda/cuda_sequences.hpp"
#include "model/cuda/persistent_lstm.hpp"
#include "model/kernel_harness.hpp"
#include "model/lstm_parts.hpp"
#include "model/reference/reference_sequences.hpp"
#include "support/fiber_sanitizers.hpp"

namespace lockstep::model::cuda {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the harness of these tests

constexpr PersistentLimits kLimits{.blocks = 12, .shared_bytes = 227 * 1024};

struct Window {
  std::int64_t steps, sequences, hidden;
  std::int64_t steps_of_part = 100;
};
std::string name_of(const Window& it) {
  return fmt::format("{} steps of {} sequences, {} units, {} steps a call", it.steps, it.sequences, it.hidden,
                     it.steps_of_part);
}

Lstm shape_of(const Window& it) { return {.steps = it.steps, .sequences = it.sequences, .hidden = it.hidden}; }

/// Under ThreadSanitizer, which takes fifty times as long, the first ones.
std::vector<Window> windows(std::vector<Window> all, std::size_t few) {
  if (lockstep::test::kThreadSanitizer) all.resize(few, all[0]);
  return all;
}

/// A layer's window, forward and back, by `operations`; tensors of `type`.
template <class Operations>
void run_window(Operations& operations, const Window& window, ElementType type, Tensors& t) {
  const std::int64_t rows = window.steps * window.sequences, units = window.hidden;
  const auto filled = [&](const char* name, std::int64_t of_rows, std::int64_t columns, double scale) {
    GuardedTensor& tensor = t.add(name, type, of_rows, columns);
    for (std::size_t i = 0; i < tensor.count(); ++i) {
      tensor.set(i, formulas::from_bfloat16_bits(formulas::bfloat16_bits(static_cast<float>(scale * sample(name, i)))));
    }
    return tensor.tensor();
  };
  const Tensor gates = filled("gates", rows, 4 * units, 1);
  const Tensor recurrent = filled("recurrent", units, 4 * units, 1.5 / std::sqrt(static_cast<double>(units)));
  // The state before is there; the rest is written.
  const Tensor cells = filled("cells", rows + window.sequences, units, 1);
  const Tensor hidden = filled("hidden", rows + window.sequences, units, 1);
  for (const char* const name : {"cells", "hidden"}) {
    for (auto i = static_cast<std::size_t>(window.sequences * units); i < t[name].count(); ++i) t[name].set(i, kNan);
  }
  const Tensor d_hidden = filled("d_hidden", rows, units, 1);
  const Tensor d_cell = t.add("d_cell", type, window.sequences, units).tensor();

  const auto rows_of = [&](const Tensor& tensor, std::int64_t first, std::int64_t count) {
    return tensor.row_range(first * window.sequences, count * window.sequences);
  };
  for (std::int64_t first = 0; first < window.steps; first += window.steps_of_part) {
    const std::int64_t count = std::min(window.steps_of_part, window.steps - first);
    operations.lstm_forward({.steps = count, .sequences = window.sequences, .hidden = units},
                            {.gates = rows_of(gates, first, count),
                             .recurrent = recurrent,
                             .cells = rows_of(cells, first, count + 1),
                             .hidden = rows_of(hidden, first, count + 1)});
  }
  GuardedTensor& active = t.add("active gates", type, rows, 4 * units);
  for (std::size_t i = 0; i < active.count(); ++i) active.set(i, t["gates"].get(i));
  model::test::lstm_backward_in_parts(
      operations, {.steps = window.steps, .sequences = window.sequences, .hidden = units},
      {.gates = gates, .recurrent = recurrent, .cells = cells, .d_hidden = d_hidden, .d_cell = d_cell},
      window.steps_of_part);
}

const std::vector<const char*> kResults{"active gates", "cells", "hidden", "gates"};

/// Operations whose tensors have guards around them.
struct LstmSubject {
  explicit LstmSubject(PersistentLimits limits)
      : scratch(scratch_bytes(std::int64_t{1} << 20) / sizeof(double) + 1),
        operations({.stream = nullptr,
                    .matmul = products,
                    .memory = memory,
                    .scratch = {scratch.data(), scratch.size() * sizeof(double)},
                    .persistent = limits},
                   {.compute = ElementType::bfloat16, .master = ElementType::float32}) {}
  DeviceMemory memory{0};
  Matmul products{memory, {}};
  std::vector<double> scratch;
  CudaSequences operations;
};

TEST(PersistentLstm, MatchesTheReferenceAndStepsByProducts) {
  for (const Window& window : windows({{3, 64, 40}, {1, 1, 8}, {2, 3, 24}, {5, 65, 16}, {2, 31, 136}, {4, 2, 64}}, 1)) {
    SCOPED_TRACE(name_of(window));
    const std::size_t orders = window.sequences * window.hidden > 2000 ? 2 : 3;
    in_every_order(
        0,
        [&](Tensors& t) {
          LstmSubject whole(kLimits);
          ASSERT_TRUE(whole.operations.takes_lstm_whole(shape_of(window)));
          const std::int64_t before = lockstep::test::grids_run();
          run_window(whole.operations, window, ElementType::bfloat16, t);
          EXPECT_EQ(lockstep::test::grids_run() - before, 2) << "a kernel each way";
        },
        [&](Tensors& t) {
          Tensors exact(0), by_steps(0);
          ReferenceSequences reference;
          run_window(reference, window, ElementType::float64, exact);
          LstmSubject steps({});
          ASSERT_FALSE(steps.operations.takes_lstm_whole(shape_of(window)));
          run_window(steps.operations, window, ElementType::bfloat16, by_steps);
          for (const char* const name : kResults) {
            expect_close(t[name].values(), exact[name].values(), 1e-2, name);
            expect_close(t[name].values(), by_steps[name].values(), 1e-2, name);
          }
        },
        orders);
  }
}

TEST(PersistentLstm, MakesTheSameBitsInCallsOfAnyNumberOfSteps) {
  for (const Window& window : windows({{6, 3, 24}, {5, 34, 72}}, 1)) {
    std::set<std::string> all;
    for (const std::int64_t steps_of_part : {100, 4, 3, 1}) {
      Tensors t(0);
      LstmSubject whole(kLimits);
      run_window(whole.operations, {window.steps, window.sequences, window.hidden, steps_of_part},
                 ElementType::bfloat16, t);
      all.insert(t.bits());
    }
    EXPECT_EQ(all.size(), 1u) << name_of(window);
  }
}

void run_window(LstmSubject&& subject, const Window& window, Tensors& t) {
  run_window(subject.operations, window, ElementType::bfloat16, t);
}

/// The words between blocks are 0 after each call, so any call may follow.
TEST(PersistentLstm, FollowsCallsOfOtherShapes) {
  LstmSubject subject(kLimits);
  for (const Window& window :
       windows({{2, 3, 24}, {3, 40, 24}, {2, 40, 24}, {3, 70, 24}, {1, 3, 136}, {4, 33, 40, 3}, {2, 1, 8}}, 2)) {
    Tensors t(0), fresh(0);
    run_window(subject.operations, window, ElementType::bfloat16, t);
    run_window(LstmSubject(kLimits), window, fresh);
    EXPECT_TRUE(t.bits() == fresh.bits()) << name_of(window);
  }
}

/// The kernels alone, with words of the test's own, some of which they do not wait at.
struct BareKernels {
  struct Ignored {
    std::size_t first = 0, count = 0;
  };
  void lstm_forward(const Lstm& shape, const LstmForwardOperands& operands) {
    lockstep::test::ignore_grid_waits(std::span(words).subspan(forward.first, forward.count));
    persistent_lstm_forward(nullptr, shape, operands, {words.data(), sums.data()});
    lockstep::test::ignore_grid_waits({});
  }
  void lstm_backward(const Lstm& shape, const LstmBackwardOperands& operands) {
    lockstep::test::ignore_grid_waits(std::span(words).subspan(backward.first, backward.count));
    persistent_lstm_backward(nullptr, shape, operands, {words.data(), sums.data()});
    lockstep::test::ignore_grid_waits({});
  }
  Ignored forward, backward;
  std::vector<unsigned> words;
  std::vector<float> sums;
};

/// Without one kind of wait the results differ in some order of blocks, and with all of them in none.
TEST(PersistentLstm, NeedsItsWaitsForOtherBlocks) {
  const Window window{3, 3, 72};
  const auto results = [&](BareKernels::Ignored forward, BareKernels::Ignored backward) {
    std::set<std::string> all;
    for (const std::uint32_t seed : {0u, 1u, 2u, 7u}) {
      order_threads(seed);
      BareKernels kernels{.forward = forward,
                          .backward = backward,
                          .words = std::vector<unsigned>(persistent_words(window.sequences, window.hidden)),
                          .sums = std::vector<float>(persistent_sums(window.sequences, window.hidden))};
      Tensors t(0);
      run_window(kernels, window, ElementType::bfloat16, t);
      all.insert(t.bits());
      EXPECT_EQ(kernels.words, std::vector<unsigned>(kernels.words.size()));
    }
    order_threads(0);
    return all.size();
  };
  constexpr BareKernels::Ignored kNone, kOfTile{0, 32}, kOfQuarters{32, 64};
  // CudaOnCpu.ShowsAMissingWaitForOtherBlocks shows what it makes of a wait that is left out.
  if (lockstep::test::kThreadSanitizer) return;
  EXPECT_EQ(results(kNone, kNone), 1u);
  EXPECT_GT(results(kOfTile, kNone), 1u) << "for the state of other units";
  EXPECT_GT(results(kNone, kOfTile), 1u) << "for the gradients of other units";
  EXPECT_GT(results(kNone, kOfQuarters), 1u) << "for the quarters of sums";
}

Device described(int major, int processors, std::size_t shared_bytes) {
  Device device;
  device.major = major;
  device.processors = processors;
  device.shared_bytes = shared_bytes;
  device.cooperative = true;
  return device;
}

TEST(PersistentLstm, IsARuleOfShapeAndDevice) {
  Device hopper = described(9, 132, 227 * 1024);
  const PersistentLimits limits = persistent_limits(hopper);
  EXPECT_EQ(limits.blocks, 99);
  EXPECT_EQ(most_persistent_units(limits), 1536);
  const auto takes = [&](std::int64_t sequences, std::int64_t hidden, ElementType type = ElementType::bfloat16) {
    return takes_persistent_lstm(limits, type, {.steps = 1, .sequences = sequences, .hidden = hidden});
  };
  EXPECT_TRUE(takes(256, 1536));
  EXPECT_FALSE(takes(256, 1544)) << "no room in shared memory";
  EXPECT_FALSE(takes(64, 650)) << "rows are no packs of 16 bytes";
  EXPECT_FALSE(takes(257, 512)) << "products take longer than launches";
  EXPECT_FALSE(takes(64, 512, ElementType::float32));
  EXPECT_FALSE(LstmSubject(limits).operations.takes_lstm_whole(
      {.steps = 1, .sequences = 64, .hidden = 512, .queue = Queue::side_1}));
  EXPECT_EQ(most_persistent_units({.blocks = 66, .shared_bytes = limits.shared_bytes}), 1024) << "four for each 64";
  EXPECT_EQ(most_persistent_units(persistent_limits(described(8, 108, 163 * 1024))), 1024);
  hopper.cooperative = false;
  EXPECT_EQ(most_persistent_units(persistent_limits(hopper)), 0);
  EXPECT_EQ(LstmSubject(limits).operations.description(), "LSTM steps of up to 1536 units in one kernel");
  EXPECT_EQ(LstmSubject({}).operations.description(), "LSTM steps by products");
}

TEST(PersistentLstm, LeavesTensorsThatAreNotAlignedToProducts) {
  Tensors t(1);
  LstmSubject subject(kLimits);
  const std::int64_t before = lockstep::test::grids_run();
  run_window(subject.operations, {2, 3, 24}, ElementType::bfloat16, t);
  EXPECT_GT(lockstep::test::grids_run() - before, 2);
  t.expect_guards();
}

}  // namespace
}  // namespace lockstep::model::cuda
