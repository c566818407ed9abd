// The queue of operations: batches copied concurrently, recorded work, small reads and writes in order, and the same
// bits from the same calls.
#include <array>
#include <span>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gpu/subject.hpp"
#include "model/sample_data.hpp"

namespace lockstep::model::test {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

class Queue : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!offers(GetParam())) GTEST_SKIP() << "this device has no " << name_of(GetParam());
  }
};

/// A batch is neither overwritten early by the next one in its slot nor read before it has arrived. Products keep the
/// queue busy, so that unordered copies would run far ahead of it.
TEST_P(Queue, StagedBatchesKeepTheirOrder) {
  constexpr int kSlots = 2, kSteps = 60;
  const std::int64_t rows = 500, columns = subject().quick ? 100 : 1000;
  const auto device = make_subject(GetParam());
  device->reserve_stages(kSlots, {.x = static_cast<std::size_t>(rows * columns),
                                  .y = static_cast<std::size_t>(rows) * sizeof(float),
                                  .keys = static_cast<std::size_t>(rows) * sizeof(std::uint64_t)});
  const auto x_of = [](int step, std::size_t i) {
    return static_cast<std::uint8_t>(step * 3 + static_cast<int>(i % 7));
  };
  const auto y_of = [](int step, std::size_t i) { return static_cast<float>(1000 * step) + static_cast<float>(i); };
  const Array square(*device, device->compute_type(), columns, columns,
                     Floats(static_cast<std::size_t>(columns * columns), 1));
  const Array product(*device, device->compute_type(), columns, columns);
  std::vector<Array> arrived_x;
  for (int step = 0; step < kSteps; ++step) arrived_x.emplace_back(*device, device->compute_type(), rows, columns);
  const auto key_of = [](int step, std::size_t i) {
    return 0x0123456789abcdef * static_cast<std::uint64_t>(step + 1) + i;
  };
  std::vector<std::pmr::vector<std::uint64_t>> keys(
      kSlots, std::pmr::vector<std::uint64_t>(static_cast<std::size_t>(rows), device->host_memory()));
  std::pmr::vector<std::uint64_t> arrived_keys(static_cast<std::size_t>(rows * kSteps), device->host_memory());
  std::pmr::vector<float> arrived_y(static_cast<std::size_t>(rows * kSteps), device->host_memory());
  std::vector<std::pmr::vector<std::uint8_t>> x(
      kSlots, std::pmr::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns), device->host_memory()));
  std::vector<std::pmr::vector<float>> y(
      kSlots, std::pmr::vector<float>(static_cast<std::size_t>(rows), device->host_memory()));
  for (int step = 0; step < kSteps; ++step) {
    const int slot = step % kSlots;
    if (slot == 0) device->wait_staged();  // all of x and y may be overwritten
    auto& host_x = x[static_cast<std::size_t>(slot)];
    auto& host_y = y[static_cast<std::size_t>(slot)];
    auto& host_keys = keys[static_cast<std::size_t>(slot)];
    for (std::size_t i = 0; i < host_x.size(); ++i) host_x[i] = x_of(step, i);
    for (std::size_t i = 0; i < host_y.size(); ++i) host_y[i] = y_of(step, i);
    for (std::size_t i = 0; i < host_keys.size(); ++i) host_keys[i] = key_of(step, i);
    const Batch staged = device->stage(slot, {{host_x.data(), ElementType::uint8, rows, columns},
                                              {host_y.data(), ElementType::float32, rows, 1},
                                              {host_keys.data(), ElementType::uint64, rows, 1}});
    device->linear_forward(square.tensor(), square.tensor(), {}, Activation::none, product.tensor());
    device->convert_input(staged.x, {}, arrived_x[static_cast<std::size_t>(step)].tensor());
    const auto place = std::span(arrived_y).subspan(static_cast<std::size_t>(step * rows), host_y.size());
    device->read(staged.y, std::as_writable_bytes(place));
    device->read(staged.keys,
                 std::as_writable_bytes(
                     std::span(arrived_keys).subspan(static_cast<std::size_t>(step * rows), host_keys.size())));
    device->release_stage(slot);
  }
  device->synchronize();
  const Floats labels = seen(Floats(arrived_y.begin(), arrived_y.end()));
  for (int step = 0; step < kSteps; ++step) {
    const Floats got = arrived_x[static_cast<std::size_t>(step)].fetch();
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<float>(x_of(step, i))) << "step " << step << ", element " << i;
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows); ++i) {
      ASSERT_EQ(labels[static_cast<std::size_t>(step * rows) + i], y_of(step, i)) << "step " << step;
      ASSERT_EQ(arrived_keys[static_cast<std::size_t>(step * rows) + i], key_of(step, i)) << "step " << step;
    }
  }
}

TEST_P(Queue, WritesAndReadsKeepTheirOrder) {
  const auto device = make_subject(GetParam());
  Scalars values(*device, {0, 0, 0});
  std::pmr::vector<double> read(300, device->host_memory());
  for (std::size_t i = 0; i < 100; ++i) {
    std::array<double, 3> next{static_cast<double>(i), static_cast<double>(2 * i), static_cast<double>(3 * i)};
    values.set(next);
    next = {-1, -1, -1};  // write() has copied them
    device->read(values.tensor(), std::as_writable_bytes(std::span(read).subspan(3 * i, 3)));
  }
  device->synchronize();
  const Doubles got = seen(Doubles(read.begin(), read.end()));
  for (std::size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(got[3 * i], static_cast<double>(i));
    ASSERT_EQ(got[3 * i + 2], static_cast<double>(3 * i));
  }
}

/// A small training step on one backend: every element of a recorded step.
class Step {
 public:
  Step(Backend& backend, Random& random, Precision precision)
      : backend_(backend),
        x_(backend, backend.compute_type(), kBatch, kInputs),
        w_(backend, backend.compute_type(), kInputs, kOutputs, random.numbers(kInputs * kOutputs, precision, 0.1)),
        y_(backend, backend.compute_type(), kBatch, kOutputs),
        d_w_(backend, backend.master_type(), kInputs, kOutputs),
        d_bias_(backend, backend.master_type(), 1, kOutputs),
        d_x_(backend, backend.compute_type(), kBatch, kInputs),
        sums_(backend, {0, 0, 0}),
        squares_(backend, {0}) {
    backend.reserve_stages(2, {.x = kBatch * kInputs, .y = kBatch * sizeof(std::int32_t)});
  }

  /// All results of step `number` on this batch; recorded under the slot.
  std::vector<Floats> run(int number, std::pmr::vector<std::uint8_t>& x, std::pmr::vector<std::int32_t>& labels) {
    const int slot = number % 2;
    const std::int64_t key[] = {slot, kBatch};
    const Batch staged = backend_.stage(
        slot, {{x.data(), ElementType::uint8, kBatch, kInputs}, {labels.data(), ElementType::int32, kBatch, 1}, {}});
    backend_.repeat(key, [&] {
      backend_.fill_zero(sums_.tensor());
      backend_.convert_input(staged.x, {1.0f / 255, 0}, x_.tensor());
      backend_.linear_forward(x_.tensor(), w_.tensor(), {}, Activation::none, y_.tensor());
      backend_.softmax_cross_entropy(y_.tensor(), staged.y, {.scale = 1.0 / kBatch, .want_gradient = true},
                                     sums_.tensor());
      backend_.linear_backward({.x = x_.tensor(),
                                .w = w_.tensor(),
                                .y = y_.tensor(),
                                .d_y = y_.tensor(),
                                .d_w = d_w_.tensor(),
                                .d_bias = d_bias_.tensor(),
                                .d_x = d_x_.tensor()},
                               Activation::none, Accumulate::no);
      backend_.sum_of_squares(d_w_.tensor(), squares_.tensor());
    });
    backend_.release_stage(slot);
    std::vector<Floats> results{y_.fetch(), d_w_.fetch(), d_bias_.fetch(), d_x_.fetch()};
    for (const Doubles& scalars : {sums_.fetch(), squares_.fetch()})
      results.emplace_back(scalars.begin(), scalars.end());
    backend_.wait_staged();
    return results;
  }

  static constexpr std::int64_t kBatch = 129, kInputs = 784, kOutputs = 100;

 private:
  Backend& backend_;
  Array x_, w_, y_, d_w_, d_bias_, d_x_;
  Scalars sums_, squares_;
};

TEST_P(Queue, RecordedWorkMakesTheSameBits) {
  Random inputs;
  std::vector<std::vector<std::uint8_t>> batches(8);
  std::vector<std::vector<std::int32_t>> labels;
  for (auto& batch : batches) {
    batch.resize(static_cast<std::size_t>(Step::kBatch * Step::kInputs));
    for (std::uint8_t& byte : batch) byte = static_cast<std::uint8_t>(inputs.generator()());
    labels.push_back(inputs.labels(Step::kBatch, Step::kOutputs));
  }
  // Twice with recording, once without: compares runs with each other, and replay with the plain calls.
  std::vector<std::vector<std::vector<Floats>>> runs;
  for (const bool graphs : {true, true, false}) {
    Random same;
    const auto device = make_subject(GetParam(), {.graphs = graphs});
    Step step(*device, same, GetParam());
    auto& results = runs.emplace_back();
    for (int number = 0; number < 8; ++number) {
      auto x = host_array<std::uint8_t>(*device, batches[static_cast<std::size_t>(number)]);
      auto y = host_array<std::int32_t>(*device, labels[static_cast<std::size_t>(number)]);
      results.push_back(step.run(number, x, y));
    }
  }
  for (std::size_t number = 0; number < 8; ++number) {
    EXPECT_EQ(runs[0][number], runs[1][number]) << "step " << number << " differs from run to run";
    EXPECT_EQ(runs[0][number], runs[2][number]) << "step " << number << " differs from the plain calls";
    if (number > 0) {
      EXPECT_NE(runs[0][number], runs[0][number - 1]) << "each batch has results of its own";
    }
  }
}

TEST_P(Queue, TakesTheTime) {
  Random random;
  const auto device = make_subject(GetParam());
  const std::int64_t n = 512;
  const Array x(*device, device->compute_type(), n, n, random.numbers(n * n, GetParam()));
  const Array y(*device, device->compute_type(), n, n);
  device->mark_begin();
  device->linear_forward(x.tensor(), x.tensor(), {}, Activation::none, y.tensor());
  device->mark_end();
  device->synchronize();
  const double seconds = seen(Doubles{device->device_seconds()})[0];
  if (device->is_host()) {
    EXPECT_EQ(seconds, -1);
  } else {
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, Queue, testing::Values(Precision::fp32, Precision::tf32, Precision::bf16),
                         [](const auto& at) { return std::string(name_of(at.param)); });

}  // namespace
}  // namespace lockstep::model::test
