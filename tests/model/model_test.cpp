#include "model/model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory_resource>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "now.hpp"
#include "sample_data.hpp"

namespace lockstep::model {
namespace {

using test::finish_gradients;
using test::forward_backward;
using test::labels;
using test::samples;
using ::testing::ElementsAre;

constexpr std::int64_t kFeatures = 20, kClasses = 5, kSamples = 64;

/// Counts what is allocated from it.
class CountingMemory final : public std::pmr::memory_resource {
 public:
  std::size_t allocations = 0, bytes = 0;

 private:
  void* do_allocate(std::size_t size, std::size_t alignment) override {
    ++allocations;
    bytes += size;
    return std::pmr::new_delete_resource()->allocate(size, alignment);
  }
  void do_deallocate(void* block, std::size_t size, std::size_t alignment) override {
    bytes -= size;
    std::pmr::new_delete_resource()->deallocate(block, size, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

class ModelTest : public ::testing::Test {
 protected:
  Model make(OptimizerOptions optimizer = {}, bool training = true) {
    Model model(*backend_, *network_, {.optimizer = optimizer, .max_batch = kSamples, .training = training});
    model.initialize(7);
    return model;
  }
  Batch batch(std::int64_t first, std::int64_t count) const {
    return {.x = x_.data() + first * kFeatures, .y = y_.data() + first, .count = count};
  }
  std::vector<float> download(Model& model, std::string_view group = "parameters") const {
    std::vector<float> values(model.arena_elements());
    model.download_group(group, values);
    return values;
  }
  static std::vector<float> gradients(Model& model) { return {model.gradients().begin(), model.gradients().end()}; }
  void train(Model& model, const OptimizerOptions& options, std::int64_t first, std::int64_t last) const {
    for (std::int64_t t = first; t < last; ++t) {
      forward_backward(model, batch(t % 32, 32), 1.0 / 32);
      test::finish_step(model, update_rule(options, 0.05, t));
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu");
  std::unique_ptr<Network> network_ = make_network({.hidden = {16, 12}}, {kFeatures, kClasses});
  std::vector<float> x_ = samples<float>("x", kSamples* kFeatures);
  std::vector<std::int32_t> y_ = labels(kSamples, kClasses);
};

std::string locate_not_finite(Model& model, const Batch& batch) {
  forward_backward(model, batch, 1);
  return model.locate_not_finite();
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST_F(ModelTest, TrainingLowersTheLoss) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam}) {
    Model model = make({.kind = kind});
    const double before = model.evaluate(batch(0, kSamples)).loss;
    train(model, {.kind = kind}, 0, 60);
    EXPECT_LT(model.evaluate(batch(0, kSamples)).loss, 0.8 * before) << name_of(kind);
  }
}

TEST_F(ModelTest, AccumulationEqualsOneBigBatch) {
  Model whole = make(), parts = make();
  const LossSums sums = forward_backward(whole, batch(0, 64), 1.0 / 64);
  LossSums together;
  for (std::int64_t i = 0; i < 4; ++i) {
    const LossSums part =
        forward_backward(parts, batch(16 * i, 16), 1.0 / 64, i == 0 ? Accumulate::no : Accumulate::yes);
    together.loss += part.loss;
    together.metric += part.metric;
  }
  EXPECT_NEAR(together.loss, sums.loss, 1e-5);
  EXPECT_EQ(together.metric, sums.metric);
  expect_close(gradients(parts), gradients(whole), 1e-6);
  EXPECT_GT(finish_gradients(whole), 0.1) << "the gradients compared are not all zero";
}

TEST_F(ModelTest, RanksPartsSumToOneBigBatch) {
  Model whole = make();
  forward_backward(whole, batch(0, 60), 1.0 / 60);
  std::vector<float> sum(whole.arena_elements());
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 33}, {33, 27}, {60, 0}}) {
    Model rank = make();
    forward_backward(rank, batch(first, count), 1.0 / 60);
    std::ranges::transform(sum, gradients(rank), sum.begin(), std::plus<>());
  }
  expect_close(sum, gradients(whole), 1e-6);
}

TEST_F(ModelTest, ReadyIsCalledInAscendingOrderUpToTheEnd) {
  Model model = make();
  for (const std::int64_t count : {0, 1, 64}) {
    std::vector<std::size_t> ends;
    forward_backward(model, batch(0, count), 1, Accumulate::no, [&](std::size_t end) { ends.push_back(end); });
    const auto slices = network_->parameters().slice_ends();
    EXPECT_THAT(ends, ElementsAre(slices[1], slices[3], slices[5])) << count;
    EXPECT_EQ(ends.back(), model.arena_elements());
  }
  std::vector<std::size_t> ends;
  model.take_part_with_nothing([&](std::size_t end) { ends.push_back(end); });
  EXPECT_THAT(ends, ElementsAre(model.arena_elements()));
}

/// What ready has announced is what the arena holds at the end: a reducer may send it at once.
TEST_F(ModelTest, WhatIsReadyIsFinal) {
  Model model = make();
  std::vector<float> announced;
  forward_backward(model, batch(0, 64), 1, Accumulate::no, [&](std::size_t end) {
    const auto now = model.gradients();
    announced.insert(announced.end(), now.begin() + static_cast<std::ptrdiff_t>(announced.size()),
                     now.begin() + static_cast<std::ptrdiff_t>(end));
  });
  EXPECT_EQ(announced, gradients(model));
}

TEST_F(ModelTest, AnEmptyBatchZeroesOrKeepsTheGradients) {
  Model model = make();
  forward_backward(model, batch(0, 32), 1);
  const auto before = gradients(model);
  const LossSums sums = forward_backward(model, {}, 1, Accumulate::yes);
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.metric, 0);
  EXPECT_EQ(gradients(model), before);
  forward_backward(model, {}, 1);
  EXPECT_EQ(gradients(model), std::vector<float>(model.arena_elements(), 0.0f));
  EXPECT_EQ(model.evaluate({}).loss, 0);
}

TEST_F(ModelTest, PaddingStaysZero) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::nesterov, OptimizerKind::adamw}) {
    const OptimizerOptions options{.kind = kind, .l2 = 0.1, .weight_decay = 0.1, .average_decay = 0.9};
    Model model = make(options);
    train(model, options, 0, 5);
    std::vector<bool> owned(model.arena_elements());
    for (const Parameter& parameter : network_->parameters().all()) {
      std::fill_n(owned.begin() + static_cast<std::ptrdiff_t>(parameter.offset), parameter.count, true);
    }
    EXPECT_GT(std::ranges::count(owned, false), 0);
    for (const std::string& group : model.state_groups()) {
      const auto values = download(model, group);
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!owned[i]) {
          ASSERT_EQ(values[i], 0) << group << " " << i;
        }
      }
    }
  }
}

TEST_F(ModelTest, ResumesBitForBitFromItsGroups) {
  const OptimizerOptions options{.kind = OptimizerKind::adam, .clip_norm = 1, .average_decay = 0.9};
  Model straight = make(options), first = make(options), second = make(options);
  train(straight, options, 0, 10);
  train(first, options, 0, 4);
  ASSERT_THAT(first.state_groups(), ElementsAre("parameters", "first_moment", "second_moment", "average"));
  for (const std::string& group : first.state_groups()) second.upload_group(group, download(first, group));
  train(second, options, 4, 10);
  for (const std::string& group : straight.state_groups()) {
    EXPECT_EQ(download(second, group), download(straight, group)) << group;
  }
}

TEST_F(ModelTest, TheAverageStartsAsTheWeightsAndIsEvaluatedInPlace) {
  const OptimizerOptions options{.average_decay = 0.9};
  Model model = make(options);
  EXPECT_EQ(download(model, "average"), download(model));
  train(model, options, 0, 5);
  EXPECT_NE(download(model, "average"), download(model));
  const double current = model.evaluate(batch(0, 64)).loss;
  const double averaged = model.evaluate(batch(0, 64), Weights::average).loss;
  EXPECT_NE(current, averaged);
  Model other = make();
  other.upload_group("parameters", download(model, "average"));
  EXPECT_EQ(other.evaluate(batch(0, 64)).loss, averaged);
  model.upload_group("parameters", download(model));
  EXPECT_EQ(model.evaluate(batch(0, 64), Weights::average).loss, current) << "uploading weights restarts the average";
  EXPECT_THROW(other.evaluate(batch(0, 64), Weights::average), std::invalid_argument);
}

TEST_F(ModelTest, L2IsInTheGradientAndTheLoss) {
  const OptimizerOptions options{.l2 = 0.3};
  Model model = make(options);
  forward_backward(model, batch(0, 64), 1.0 / 64);
  const auto before = gradients(model), weights = download(model);
  const double norm = finish_gradients(model);
  double squares = 0, decayed = 0;
  for (const Parameter& parameter : network_->parameters().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      const double l2 = parameter.decay == Decay::yes ? 0.3 : 0;
      ASSERT_NEAR(model.gradients()[i], before[i] + l2 * weights[i], 1e-6) << parameter.name;
      squares += std::pow(static_cast<double>(model.gradients()[i]), 2);
      if (parameter.decay == Decay::yes) decayed += std::pow(static_cast<double>(weights[i]), 2);
    }
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-9);
  EXPECT_NEAR(model.l2_loss(), 0.15 * decayed, 1e-9);
  EXPECT_EQ(make().l2_loss(), 0);
}

TEST_F(ModelTest, EveryInputTypeGivesTheSame) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kSamples * kFeatures));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  const std::vector<float> floats(bytes.begin(), bytes.end());
  const std::vector<double> doubles(bytes.begin(), bytes.end());
  for (const InputTransform& transform : {InputTransform{}, InputTransform{1.0f / 256, -0.5f}}) {
    Model model(*backend_, *network_,
                {.input_transform = transform, .max_batch = kSamples, .sample_type = ElementType::float64});
    model.initialize(3);
    const double loss = model.evaluate({bytes.data(), ElementType::uint8, y_.data(), kSamples}).loss;
    EXPECT_EQ(model.evaluate({floats.data(), ElementType::float32, y_.data(), kSamples}).loss, loss);
    EXPECT_EQ(model.evaluate({doubles.data(), ElementType::float64, y_.data(), kSamples}).loss, loss);
  }
}

TEST_F(ModelTest, AnObstacleInTheBallotKeepsTheWeights) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  Model model = make(options);
  for (const bool obstacle : {true, false}) {
    const auto before = download(model);
    forward_backward(model, batch(0, 64), 1.0 / 64);
    std::array<double, kBallotSize> ballot{0, 0, obstacle ? 1.0 : 0.0, 64, 5, 6, 7, 8, 9};
    model.write_ballot(ballot);
    model.write_rule(update_rule(options, 0.1, 0));
    model.tally();
    model.finish_gradients();
    model.update();
    model.post_results();
    EXPECT_EQ(download(model) == before, obstacle);
    const Model::Results results = model.results();
    EXPECT_GT(results.ballot[0], 0);
    EXPECT_EQ(results.ballot[2], obstacle ? 1 : 0);
    EXPECT_TRUE(std::equal(ballot.begin() + 3, ballot.end(), results.ballot.begin() + 3)) << "the others pass through";
    EXPECT_GT(results.gradient_norm, 0);
  }
}

TEST_F(ModelTest, ALossThatIsNotFiniteIsAnObstacle) {
  Model model = make();
  x_[5] = std::numeric_limits<float>::quiet_NaN();
  const auto before = download(model);
  forward_backward(model, batch(0, 64), 1);
  EXPECT_FALSE(model.sums_are_finite());
  test::finish_step(model, update_rule({}, 0.1, 0));
  EXPECT_EQ(model.results().ballot[2], 1);
  EXPECT_EQ(download(model), before);
}

TEST_F(ModelTest, EvaluationRepeatsAndLeavesTheModelAlone) {
  Model model = make();
  forward_backward(model, batch(0, 64), 1);
  const auto weights = download(model), before = gradients(model);
  const LossSums first = model.evaluate(batch(0, 50));
  EXPECT_GT(first.metric, 0);
  EXPECT_EQ(model.evaluate(batch(0, 50)).loss, first.loss);
  EXPECT_EQ(download(model), weights);
  EXPECT_EQ(gradients(model), before);
}

TEST_F(ModelTest, LocatesWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Model model = make();
  EXPECT_EQ(locate_not_finite(model, batch(0, 64)), "");
  const auto x = x_[300];
  x_[300] = nan;
  EXPECT_EQ(locate_not_finite(model, batch(0, 64)), "input");
  x_[300] = x;
  const auto weights = download(model);
  for (const Parameter& parameter : network_->parameters().all()) {
    auto broken = weights;
    broken[parameter.offset + parameter.count - 1] = nan;
    model.upload_group("parameters", broken);
    EXPECT_EQ(locate_not_finite(model, batch(0, 64)), "parameter " + parameter.name);
  }
  // Finite weights whose products overflow.
  for (std::size_t layer = 0; layer < 3; ++layer) {
    auto large = weights;
    const Parameter& bias = network_->parameters()[2 * layer + 1];
    const Parameter& weight = network_->parameters()[2 * layer];
    std::fill_n(large.begin() + static_cast<std::ptrdiff_t>(weight.offset), weight.count, 3e38f);
    std::fill_n(large.begin() + static_cast<std::ptrdiff_t>(bias.offset), bias.count, 3e38f);
    model.upload_group("parameters", large);
    EXPECT_EQ(locate_not_finite(model, batch(0, 64)), "layer dense_" + std::to_string(layer + 1) + " (forward)");
  }
  // Forward stays finite (the hidden units are all but off), the way back does not.
  const auto mse = make_network({.name = "mlp", .hidden = {1}, .activation = Activation::none}, {1, 1});
  Model steep(*backend_, *mse, {.loss = LossKind::mean_squared_error, .max_batch = 1});
  std::vector<float> arena(steep.arena_elements());
  arena[mse->parameters()[0].offset] = 1e-20f;
  arena[mse->parameters()[2].offset] = 1e30f;
  steep.upload_group("parameters", arena);
  const float input = 1, target = -1e10f;
  EXPECT_EQ(locate_not_finite(steep, {.x = &input, .y = &target, .count = 1}), "gradient of dense_1/bias");
}

TEST_F(ModelTest, NanInTheBatchReachesLossAndNorm) {
  Model model = make();
  x_[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(forward_backward(model, batch(0, 64), 1).loss));
  EXPECT_TRUE(std::isnan(finish_gradients(model)));
  EXPECT_TRUE(std::isnan(model.evaluate(batch(0, 64)).loss));
}

TEST_F(ModelTest, MemoryIsPlannedBeforeAndTakenOnce) {
  CountingMemory memory;
  const ModelOptions options{.optimizer = {.kind = OptimizerKind::adam, .average_decay = 0.9},
                             .max_batch = kSamples,
                             .gradient_memory = &memory};
  const MemoryPlan plan = plan_memory(*network_, options, memory_types(*backend_));
  const std::size_t arena = network_->parameters().arena_elements() * 4;
  EXPECT_EQ(plan.parameters, arena);
  EXPECT_EQ(plan.gradients, arena);
  EXPECT_EQ(plan.optimizer, 2 * arena);
  EXPECT_EQ(plan.average, arena);
  EXPECT_EQ(plan.total(), 5 * arena + plan.activations);
  {
    Model model(*backend_, *network_, options);
    model.initialize(1);
    EXPECT_EQ(memory.allocations, 1u);
    EXPECT_EQ(memory.bytes, arena);
    train(model, options.optimizer, 0, 3);
    EXPECT_EQ(memory.allocations, 1u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(model.gradients().data()) % 256, 0u);
  }
  EXPECT_EQ(memory.bytes, 0u);
  const MemoryPlan eval = plan_memory(*network_, {.max_batch = 1, .training = false}, memory_types(*backend_));
  EXPECT_EQ(eval.total(), arena + eval.activations);
}

TEST_F(ModelTest, AnEvaluationModelOnlyEvaluates) {
  Model training = make(), model = make({.kind = OptimizerKind::adam}, false);
  EXPECT_EQ(model.evaluate(batch(0, 64)).loss, training.evaluate(batch(0, 64)).loss);
  EXPECT_THAT(model.state_groups(), ElementsAre("parameters"));
  EXPECT_THROW(model.stage(batch(0, 64)), std::invalid_argument);
  EXPECT_THROW(model.forward_backward(1, Accumulate::no, {}), std::invalid_argument);
  EXPECT_THROW(model.finish_gradients(), std::invalid_argument);
  EXPECT_THROW(model.write_rule({}), std::invalid_argument);
  EXPECT_THROW(model.update(), std::invalid_argument);
  EXPECT_THROW(model.gradients(), std::invalid_argument);
  EXPECT_THROW(model.take_part_with_nothing({}), std::invalid_argument);
}

TEST_F(ModelTest, RefusesBatchesAndGroupsThatDoNotFit) {
  Model model = make();
  EXPECT_THROW(model.evaluate({.x = x_.data(), .y = y_.data(), .count = kSamples + 1}), std::invalid_argument);
  EXPECT_THROW(model.evaluate({.x = x_.data(), .y = y_.data(), .count = -1}), std::invalid_argument);
  EXPECT_THROW(model.evaluate({.x = nullptr, .y = y_.data(), .count = 1}), std::invalid_argument);
  EXPECT_THROW(model.evaluate({.x = x_.data(), .y = nullptr, .count = 1}), std::invalid_argument);
  std::vector<float> arena(model.arena_elements());
  EXPECT_THROW(model.download_group("velocity", arena), std::invalid_argument);
  arena.pop_back();
  EXPECT_THROW(model.upload_group("parameters", arena), std::invalid_argument);
  EXPECT_THROW(Model(*backend_, *network_, {.max_batch = 0}), std::invalid_argument);
  const auto reference = make_backend("reference");
  Model exact(*reference, *network_, {});
  EXPECT_THROW(exact.gradients(), std::invalid_argument);
}

TEST_F(ModelTest, StateTensorsAreInDeclarationOrder) {
  Model model = make({.kind = OptimizerKind::momentum});
  std::vector<std::string> names;
  for (const StateTensor& tensor : model.state_tensors()) names.push_back(tensor.group + "/" + tensor.name);
  EXPECT_THAT(names, ElementsAre("parameters/dense_1/weight", "parameters/dense_1/bias", "parameters/dense_2/weight",
                                 "parameters/dense_2/bias", "parameters/dense_3/weight", "parameters/dense_3/bias",
                                 "velocity/dense_1/weight", "velocity/dense_1/bias", "velocity/dense_2/weight",
                                 "velocity/dense_2/bias", "velocity/dense_3/weight", "velocity/dense_3/bias"));
  EXPECT_THAT(model.state_tensors()[2].shape, ElementsAre(16, 12));
}

}  // namespace
}  // namespace lockstep::model
