#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory_resource>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/device_workspaces.hpp"
#include "model/reference/reference_backend.hpp"
#include "model/state/memory_plan.hpp"
#include "model/training/training.hpp"
#include "model/yaml/network_template.hpp"
#include "network_harness.hpp"
#include "now.hpp"
#include "sample_data.hpp"
#include "support/message_of.hpp"

namespace lockstep::model {
namespace {

using test::finish_gradients;
using test::forward_backward;
using test::labels;
using test::samples;
using test::SeededTraining;
using ::testing::ElementsAre;

constexpr std::int64_t kFeatures = 20, kClasses = 5, kSamples = 64;

/// Counts allocations.
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
  SeededTraining make(const OptimizerOptions& optimizer = {}) {
    return {*backend_, *network_, {.max_batch = kSamples}, {.optimizer = optimizer}};
  }
  Batch batch(std::int64_t first, std::int64_t count) const {
    return {.x = host_tensor(x_.data() + first * kFeatures, count, kFeatures),
            .y = host_tensor(y_.data() + first, count, 1)};
  }
  std::vector<float> download(Training& training, std::string_view group = "parameters") const {
    std::vector<float> values(training.parameters.elements());
    training.parameters.download_group(group, values);
    return values;
  }
  static std::vector<float> gradients(Training& training) {
    const auto elements = training.parameters.gradient_elements();
    return {elements.begin(), elements.end()};
  }
  void train(Training& training, const OptimizerOptions& options, std::int64_t first, std::int64_t last) const {
    for (std::int64_t t = first; t < last; ++t) {
      forward_backward(training, batch(t % 32, 32), 1.0 / 32);
      test::finish_step(training, update_rule(options, 0.05, t));
    }
  }

  std::unique_ptr<Backend> backend_ = make_backend("cpu");
  std::unique_ptr<Network> network_ = make_network({.values = {{"hidden", Numbers{16, 12}}}}, {kFeatures, kClasses});
  std::vector<float> x_ = samples<float>("x", kSamples* kFeatures);
  std::vector<std::int32_t> y_ = labels(kSamples, kClasses);
};

std::string locate_not_finite(Training& training, const Batch& batch) {
  forward_backward(training, batch, 1);
  return training.model.locate_not_finite();
}

void expect_close(const std::vector<float>& a, const std::vector<float>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << i;
}

TEST_F(ModelTest, TrainingLowersTheLoss) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::momentum, OptimizerKind::adam}) {
    auto training = make({.kind = kind});
    const double before = training.model.evaluate(batch(0, kSamples)).loss;
    train(training, {.kind = kind}, 0, 60);
    EXPECT_LT(training.model.evaluate(batch(0, kSamples)).loss, 0.8 * before) << name_of(kind);
  }
}

TEST_F(ModelTest, AccumulationEqualsOneBigBatch) {
  auto whole = make(), parts = make();
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
  auto whole = make();
  forward_backward(whole, batch(0, 60), 1.0 / 60);
  std::vector<float> sum(whole.parameters.elements());
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 33}, {33, 27}, {60, 0}}) {
    auto rank = make();
    forward_backward(rank, batch(first, count), 1.0 / 60);
    std::ranges::transform(sum, gradients(rank), sum.begin(), std::plus<>());
  }
  expect_close(sum, gradients(whole), 1e-6);
}

/// A weight of n counts a sample n times.
TEST_F(ModelTest, WeightsCountSamplesSoOften) {
  SeededTraining weighted(*backend_, *network_, {.weighted = true, .max_batch = kSamples}, {}),
      repeated(*backend_, *network_, {.max_batch = kSamples}, {});
  std::vector<float> x, weights;
  std::vector<std::int32_t> y;
  for (std::int64_t i = 0; i < 20; ++i) {
    weights.push_back(static_cast<float>(i % 3));
    for (std::int64_t times = 0; times < i % 3; ++times) {
      x.insert(x.end(), x_.begin() + i * kFeatures, x_.begin() + (i + 1) * kFeatures);
      y.push_back(y_[static_cast<std::size_t>(i)]);
    }
  }
  Batch of_weights = batch(0, 20);
  of_weights.weights = host_tensor(weights.data(), 20, 1);
  const LossSums got = forward_backward(weighted, of_weights, 1.0 / 20);
  const LossSums expected = forward_backward(
      repeated, {.x = host_tensor(x.data(), std::ssize(y), kFeatures), .y = host_tensor(y.data(), std::ssize(y), 1)},
      1.0 / 20);
  EXPECT_NEAR(got.loss, expected.loss, 1e-5);
  expect_close(gradients(weighted), gradients(repeated), 1e-6);
  EXPECT_EQ(weighted.model.evaluate(of_weights).loss, repeated.model.evaluate(batch(0, 20)).loss)
      << "weights are of training";
  EXPECT_THROW(repeated.model.stage(of_weights), std::invalid_argument) << "a model that was not told of weights";
}

/// A network of convolutions with single-pixel windows treats each position of a mask like a row.
TEST_F(ModelTest, MasksAreRowsOfTheirPositions) {
  const auto network_of = [](const char* text, const SampleShape& shape) {
    const auto kind = std::make_shared<NetworkKind>(read_network(text, "masks.yaml"));
    return make_network({.name = "masks.yaml", .source = kind}, shape);
  };
  constexpr std::int64_t kSide = 4, kPositions = kSide * kSide, kChannels = 3, kCount = 6;
  const SampleShape shape{.features = kPositions * kChannels,
                          .outputs = kClasses,
                          .image = ImageShape{.height = kSide, .width = kSide, .channels = kChannels},
                          .grid = {kSide, kSide}};
  const auto pixels = network_of(
      "name: masks\nnetwork: [conv: {channels: 8, kernel: 1, activation: tanh, name: a}, conv: {channels: $outputs, "
      "kernel: 1, name: b}]\n",
      shape);
  const auto rows = network_of(
      "name: masks\nnetwork: [dense: {units: 8, activation: tanh, name: a}, dense: {units: $outputs, name: b}]\n",
      {kChannels, kClasses});
  EXPECT_EQ(pixels->positions(), kPositions);
  SeededTraining of_masks(*backend_, *pixels, {.weighted = true, .max_batch = kCount}, {}),
      of_rows(*backend_, *rows, {.weighted = true, .max_batch = kCount * kPositions}, {});
  std::vector<float> values(of_masks.parameters.elements());
  of_masks.parameters.download_group("parameters", values);
  of_rows.parameters.upload_group("parameters", values);
  auto x = samples<float>("pixels", kCount * kPositions * kChannels);
  auto y = labels(kCount * kPositions, kClasses);
  auto weights = test::weights(kCount * kPositions);
  for (std::size_t i = 3; i < y.size(); i += 5) y[i] = kNoClass;
  const Batch images{.x = host_tensor(x.data(), kCount, kPositions * kChannels),
                     .y = host_tensor(y.data(), kCount, kPositions),
                     .weights = host_tensor(weights.data(), kCount, kPositions)};
  const Batch lines{.x = host_tensor(x.data(), kCount * kPositions, kChannels),
                    .y = host_tensor(y.data(), kCount * kPositions, 1),
                    .weights = host_tensor(weights.data(), kCount * kPositions, 1)};
  const LossSums got = forward_backward(of_masks, images, 1.0 / kCount);
  const LossSums expected = forward_backward(of_rows, lines, 1.0 / (kCount * kPositions));
  EXPECT_NEAR(got.loss, expected.loss, 1e-4);
  EXPECT_EQ(got.metric, expected.metric);
  EXPECT_LT(got.metric, kCount * kPositions * 4 / 5 + 1) << "positions without a class are not right";
  expect_close(gradients(of_masks), gradients(of_rows), 1e-6);
  std::vector<float> outputs(static_cast<std::size_t>(kCount * kPositions * kClasses));
  const LossSums evaluated = of_masks.model.evaluate(images, Weights::current, outputs);
  EXPECT_NEAR(evaluated.loss, got.loss, 1e-4) << "evaluation of masks takes the weights";
  Batch wrong = images;
  wrong.y = host_tensor(y.data(), kCount, 1);
  EXPECT_THROW(of_masks.model.stage(wrong), std::invalid_argument);
}

TEST(Masks, AskForAnOutputOfTheirExtents) {
  const auto refusal = [](const char* network, std::vector<std::int64_t> mask) -> std::string {
    const auto kind = std::make_shared<NetworkKind>(read_network(network, "masks.yaml"));
    return lockstep::test::message_of<std::invalid_argument>([&] {
      make_network({.name = "masks.yaml", .source = kind}, {.features = 48,
                                                            .outputs = 5,
                                                            .image = ImageShape{.height = 4, .width = 4, .channels = 3},
                                                            .grid = std::move(mask)});
    });
  };
  using ::testing::HasSubstr;
  EXPECT_EQ(refusal("name: m\nnetwork: [conv: {channels: $outputs, kernel: 3}]\n", {4, 4}), "");
  EXPECT_THAT(
      refusal("name: m\nnetwork: [conv: {channels: $outputs, kernel: 3}]\n", {8, 8}),
      HasSubstr("the network's output is 4 x 4 x 5 of each sample, and masks of 8 x 8 with 5 classes ask for 8 x "
                "8 x 5: give it as many positions as the masks have, or masks of its size"));
  EXPECT_THAT(refusal("name: m\nnetwork: [conv: {channels: 7, kernel: 3}]\n", {4, 4}),
              HasSubstr("output is 4 x 4 x 7 of each sample, and masks of 4 x 4 with 5 classes ask for 4 x 4 x 5: end "
                        "with `conv: {channels: $outputs, kernel: 1}`"));
  EXPECT_THAT(refusal("name: m\nnetwork: [flatten, dense: $outputs]\n", {4, 4}), HasSubstr("output is 5 of each"));
}

TEST_F(ModelTest, EvaluationGivesTheOutputsToo) {
  auto training = make();
  std::vector<float> outputs(10 * kClasses), predicted(outputs.size());
  const LossSums sums = training.model.evaluate(batch(0, 10), Weights::current, outputs);
  EXPECT_EQ(sums.loss, training.model.evaluate(batch(0, 10)).loss);
  training.model.predict(batch(0, 10), Weights::current, predicted);
  EXPECT_EQ(outputs, predicted);
}

TEST_F(ModelTest, ReadyIsCalledInAscendingOrderUpToTheEnd) {
  auto training = make();
  for (const std::int64_t count : {0, 1, 64}) {
    std::vector<std::size_t> ends;
    forward_backward(training, batch(0, count), 1, Accumulate::no, [&](std::size_t end) { ends.push_back(end); });
    const auto slices = network_->parameters().slice_ends();
    EXPECT_THAT(ends, ElementsAre(slices[1], slices[3], slices[5])) << count;
    EXPECT_EQ(ends.back(), training.parameters.elements());
  }
}

/// Gradients do not change after `ready`: a reducer may send them at once.
TEST_F(ModelTest, WhatIsReadyIsFinal) {
  auto training = make();
  std::vector<float> announced;
  forward_backward(training, batch(0, 64), 1, Accumulate::no, [&](std::size_t end) {
    const auto now = training.parameters.gradient_elements();
    announced.insert(announced.end(), now.begin() + static_cast<std::ptrdiff_t>(announced.size()),
                     now.begin() + static_cast<std::ptrdiff_t>(end));
  });
  EXPECT_EQ(announced, gradients(training));
}

TEST_F(ModelTest, AnEmptyBatchZeroesOrKeepsTheGradients) {
  auto training = make();
  forward_backward(training, batch(0, 32), 1);
  const auto before = gradients(training);
  const LossSums sums = forward_backward(training, {}, 1, Accumulate::yes);
  EXPECT_EQ(sums.loss, 0);
  EXPECT_EQ(sums.metric, 0);
  EXPECT_EQ(gradients(training), before);
  forward_backward(training, {}, 1);
  EXPECT_EQ(gradients(training), std::vector<float>(training.parameters.elements(), 0.0f));
  EXPECT_EQ(training.model.evaluate({}).loss, 0);
}

TEST_F(ModelTest, PaddingStaysZero) {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::nesterov, OptimizerKind::adamw}) {
    const OptimizerOptions options{.kind = kind, .l2 = 0.1, .weight_decay = 0.1, .average_decay = 0.9};
    auto training = make(options);
    train(training, options, 0, 5);
    std::vector<bool> owned(training.parameters.elements());
    for (const Parameter& parameter : network_->parameters().all()) {
      std::fill_n(owned.begin() + static_cast<std::ptrdiff_t>(parameter.offset), parameter.count, true);
    }
    EXPECT_GT(std::ranges::count(owned, false), 0);
    for (const std::string& group : training.parameters.state_groups()) {
      const auto values = download(training, group);
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
  auto straight = make(options), first = make(options), second = make(options);
  train(straight, options, 0, 10);
  train(first, options, 0, 4);
  ASSERT_THAT(first.parameters.state_groups(), ElementsAre("parameters", "first_moment", "second_moment", "average"));
  for (const std::string& group : first.parameters.state_groups())
    second.parameters.upload_group(group, download(first, group));
  train(second, options, 4, 10);
  for (const std::string& group : straight.parameters.state_groups()) {
    EXPECT_EQ(download(second, group), download(straight, group)) << group;
  }
}

TEST_F(ModelTest, TheAverageStartsAsTheWeightsAndIsEvaluatedInPlace) {
  const OptimizerOptions options{.average_decay = 0.9};
  auto training = make(options);
  EXPECT_EQ(download(training, "average"), download(training));
  train(training, options, 0, 5);
  EXPECT_NE(download(training, "average"), download(training));
  const double current = training.model.evaluate(batch(0, 64)).loss;
  const double averaged = training.model.evaluate(batch(0, 64), Weights::average).loss;
  EXPECT_NE(current, averaged);
  auto other = make();
  other.parameters.upload_group("parameters", download(training, "average"));
  EXPECT_EQ(other.model.evaluate(batch(0, 64)).loss, averaged);
  training.parameters.upload_group("parameters", download(training));
  EXPECT_EQ(training.model.evaluate(batch(0, 64), Weights::average).loss, current)
      << "uploading weights restarts the average";
  EXPECT_THROW(other.model.evaluate(batch(0, 64), Weights::average), std::invalid_argument);
}

TEST_F(ModelTest, L2IsInTheGradientAndTheLoss) {
  const OptimizerOptions options{.l2 = 0.3};
  auto training = make(options);
  forward_backward(training, batch(0, 64), 1.0 / 64);
  const auto before = gradients(training), weights = download(training);
  const double norm = finish_gradients(training);
  double squares = 0, decayed = 0;
  for (const Parameter& parameter : network_->parameters().all()) {
    for (std::size_t i = parameter.offset; i < parameter.offset + parameter.count; ++i) {
      const double l2 = parameter.decay == Decay::yes ? 0.3 : 0;
      ASSERT_NEAR(training.parameters.gradient_elements()[i], before[i] + l2 * weights[i], 1e-6) << parameter.name;
      squares += std::pow(static_cast<double>(training.parameters.gradient_elements()[i]), 2);
      if (parameter.decay == Decay::yes) decayed += std::pow(static_cast<double>(weights[i]), 2);
    }
  }
  EXPECT_NEAR(norm, std::sqrt(squares), 1e-9);
  EXPECT_NEAR(training.optimizer.l2_loss(), 0.15 * decayed, 1e-9);
  EXPECT_EQ(make().optimizer.l2_loss(), 0);
}

TEST_F(ModelTest, EveryInputTypeGivesTheSame) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kSamples * kFeatures));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 37);
  const std::vector<float> floats(bytes.begin(), bytes.end());
  const std::vector<double> doubles(bytes.begin(), bytes.end());
  for (const InputTransform& transform : {InputTransform{}, InputTransform{1.0f / 256, -0.5f}}) {
    SeededTraining training(*backend_, *network_,
                            {.input_transform = transform, .max_batch = kSamples, .sample_type = ElementType::float64});
    const auto loss_of = [&](const auto& x) {
      return training.model.evaluate({host_tensor(x.data(), kSamples, kFeatures), batch(0, kSamples).y}).loss;
    };
    const double loss = loss_of(bytes);
    EXPECT_EQ(loss_of(floats), loss);
    EXPECT_EQ(loss_of(doubles), loss);
  }
}

TEST_F(ModelTest, AStatusThatIsNotFiniteKeepsTheWeights) {
  const OptimizerOptions options{.kind = OptimizerKind::adam};
  auto training = make(options);
  for (const bool fails : {true, false}) {
    const auto before = download(training);
    forward_backward(training, batch(0, 64), 1.0 / 64);
    test::finish_step(training, update_rule(options, 0.1, 0),
                      {.non_finite = fails ? 1.0 : 0.0,
                       .samples = 64,
                       .failed = 4,
                       .stop_requests = 5,
                       .save_requests = 10,
                       .schedule_low = 6,
                       .schedule_low2 = 7,
                       .schedule_high = 8,
                       .schedule_high2 = 9});
    EXPECT_EQ(download(training) == before, fails);
    const StepStatus status = training.status.posted();
    EXPECT_GT(status.loss, 0);
    EXPECT_EQ(status.non_finite, fails ? 1 : 0);
    EXPECT_THAT((std::array{status.samples, status.failed, status.stop_requests, status.save_requests,
                            status.schedule_low, status.schedule_low2, status.schedule_high, status.schedule_high2}),
                ElementsAre(64, 4, 5, 10, 6, 7, 8, 9))
        << "the others pass through";
    EXPECT_GT(status.gradient_squares, 0);
  }
}

TEST_F(ModelTest, ALossThatIsNotFiniteIsCounted) {
  auto training = make();
  x_[5] = std::numeric_limits<float>::quiet_NaN();
  const auto before = download(training);
  forward_backward(training, batch(0, 64), 1);
  test::finish_step(training, update_rule({}, 0.1, 0));
  EXPECT_EQ(training.status.posted().non_finite, 1);
  EXPECT_EQ(download(training), before);
}

/// Two losses on the same columns and one on others. The gradients are the weighted sum of those of each loss alone, in
/// one pass and over micro-steps. Each loss is reported without its weight.
TEST(SeveralLosses, AddUpWithTheirWeights) {
  const std::int64_t samples_here = 7, features = 5, outputs = 5;
  const auto x = test::samples<float>("x", samples_here * features);
  auto y = test::samples<float>("y", samples_here * outputs);
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (i % 5 >= 3) y[i] = y[i] > 0 ? 1.0f : 0.0f;
  }
  const auto backend = make_backend("cpu");
  const auto network = make_network({.name = "linear"}, {.features = features, .outputs = outputs, .image = {}});
  const std::vector<LossTerm> terms{
      {.kind = LossKind::mean_squared_error, .first = 0, .columns = 3, .share = {.loss = 2, .metric = 1}},
      {.kind = LossKind::binary_cross_entropy, .first = 3, .columns = 2, .share = {.loss = 0.5, .metric = 0}},
      {.kind = LossKind::huber, .first = 0, .columns = 3, .share = {.loss = 0.25, .metric = 0}}};
  const auto batch_of = [&](std::int64_t first, std::int64_t count) {
    return Batch{.x = host_tensor(x.data() + first * features, count, features),
                 .y = host_tensor(y.data() + first * outputs, count, outputs)};
  };
  const auto gradients_of = [&](const std::vector<LossTerm>& losses, std::int64_t cut, std::vector<double>& sums) {
    SeededTraining training(*backend, *network,
                            {.loss = LossKind::mean_squared_error, .losses = losses, .max_batch = samples_here});
    forward_backward(training, batch_of(0, cut), 1.0 / 7);
    if (cut < samples_here) forward_backward(training, batch_of(cut, samples_here - cut), 1.0 / 7, Accumulate::yes);
    const auto all = training.model.loss_sums().elements<double>();
    sums.assign(all.begin(), all.end());
    const EvaluationSums judged = training.model.evaluate(batch_of(0, samples_here));
    EXPECT_NEAR(judged.loss, sums[0], 1e-5);
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(judged.losses[i], sums[3 + i], 1e-5);
    const auto elements = training.parameters.gradient_elements();
    return std::vector<float>(elements.begin(), elements.end());
  };
  std::vector<double> sums;
  const std::vector<float> together = gradients_of(terms, samples_here, sums);
  ASSERT_EQ(sums.size(), 6u);
  EXPECT_NEAR(sums[0], 2 * sums[3] + 0.5 * sums[4] + 0.25 * sums[5], 1e-9);
  std::vector<double> parts;
  const std::vector<float> in_two = gradients_of(terms, 3, parts);
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(parts[i], sums[i], 1e-5);
  std::vector<double> expected(together.size(), 0.0);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    // One loss alone: the weights of the others are 0.
    std::vector<LossTerm> alone = terms;
    for (std::size_t other = 0; other < alone.size(); ++other) {
      if (other != i) alone[other].share.loss = 0;
    }
    std::vector<double> own;
    const std::vector<float> gradients = gradients_of(alone, samples_here, own);
    EXPECT_EQ(own[3 + i], sums[3 + i]);
    for (std::size_t k = 0; k < expected.size(); ++k) expected[k] += static_cast<double>(gradients[k]);
  }
  for (std::size_t k = 0; k < expected.size(); ++k) {
    EXPECT_NEAR(together[k], expected[k], 1e-6);
    EXPECT_NEAR(in_two[k], expected[k], 1e-6);
  }
  EXPECT_THROW(Loss(*backend, *network, {.losses = terms}), std::invalid_argument) << "classes for numbers";
}

TEST_F(ModelTest, EvaluationRepeatsAndLeavesTheModelAlone) {
  auto training = make();
  forward_backward(training, batch(0, 64), 1);
  const auto weights = download(training), before = gradients(training);
  const LossSums first = training.model.evaluate(batch(0, 50));
  EXPECT_GT(first.metric, 0);
  EXPECT_EQ(training.model.evaluate(batch(0, 50)).loss, first.loss);
  EXPECT_EQ(download(training), weights);
  EXPECT_EQ(gradients(training), before);
}

TEST_F(ModelTest, PredictsAllRowsAsItDoesEach) {
  auto training = make();
  train(training, {}, 0, 3);
  std::vector<float> all(7 * kClasses), one(kClasses);
  training.model.predict(batch(2, 7), Weights::current, all);
  for (std::int64_t row = 0; row < 7; ++row) {
    training.model.predict(batch(2 + row, 1), Weights::current, {.first = 0, .count = 1}, one);
    for (std::int64_t i = 0; i < kClasses; ++i) EXPECT_NEAR(one[i], all[row * kClasses + i], 1e-5) << row;
  }
  EXPECT_NE(all.front(), all.back());
  EXPECT_THROW(training.model.predict(batch(2, 7), Weights::current, std::span(all).first(6 * kClasses)),
               std::invalid_argument);
}

TEST(PredictionOfTokens, WhatFollowsKnownPositionsIsWhatTheWholeWindowSays) {
  constexpr std::int64_t kContext = 9, kVocabulary = 11;
  const auto network = make_network(
      {.name = "gpt", .values = {{"layers", std::int64_t{2}}, {"width", std::int64_t{8}}, {"heads", std::int64_t{2}}}},
      {.features = kContext, .outputs = kVocabulary, .image = {}, .tokens = true});
  for (const char* const name : {"cpu", "reference"}) {
    const auto backend = make_backend_or_reference(name);
    SeededTraining whole(*backend, *network, {.max_batch = 1, .sample_type = ElementType::int32}, {});
    SeededTraining grown(*backend, *network, {.max_batch = 1, .sample_type = ElementType::int32}, {});
    ASSERT_TRUE(grown.model.continues());
    std::vector<std::int32_t> tokens(kContext);
    std::vector<float> all(kContext * kVocabulary), one(kVocabulary);
    const auto positions = [&](std::int64_t first, std::int64_t end) {
      const Batch window{.x = host_tensor(tokens.data(), 1, kContext)};
      whole.model.predict(window, Weights::current, all);
      grown.model.predict(window, Weights::current, {.first = first, .count = end - first}, one);
      for (std::int64_t i = 0; i < kVocabulary; ++i) {
        EXPECT_NEAR(one[i], all[(end - 1) * kVocabulary + i], 1e-6) << name << " " << first << " " << end;
      }
    };
    for (std::int64_t i = 0; i < kContext; ++i) tokens[i] = static_cast<std::int32_t>(7 * i % kVocabulary);
    positions(0, 4);  // a prompt, then one token at a time
    for (std::int64_t end = 5; end <= kContext; ++end) positions(end - 1, end);
    tokens[3] = 9;  // another text with the same first three tokens
    positions(3, 5);
    positions(5, 6);
    for (std::int32_t& token : tokens) token = (token + 1) % kVocabulary;
    positions(0, kContext);
    // Without the state of the earlier positions the result differs.
    tokens[0] = (tokens[0] + 1) % kVocabulary;
    grown.model.predict({.x = host_tensor(tokens.data(), 1, kContext)}, Weights::current,
                        {.first = kContext - 1, .count = 1}, one);
    whole.model.predict({.x = host_tensor(tokens.data(), 1, kContext)}, Weights::current, all);
    float greatest = 0;
    for (std::int64_t i = 0; i < kVocabulary; ++i) {
      greatest = std::max(greatest, std::abs(one[i] - all[(kContext - 1) * kVocabulary + i]));
    }
    EXPECT_GT(greatest, 1e-5f) << name;
    EXPECT_THROW(grown.model.predict({.x = host_tensor(tokens.data(), 1, kContext)}, Weights::current,
                                     {.first = 3, .count = kContext}, one),
                 std::invalid_argument);
  }
}

TEST_F(ModelTest, LocatesWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  auto training = make();
  EXPECT_EQ(locate_not_finite(training, batch(0, 64)), "");
  const auto x = x_[300];
  x_[300] = nan;
  EXPECT_EQ(locate_not_finite(training, batch(0, 64)), "input");
  x_[300] = x;
  const auto weights = download(training);
  for (const Parameter& parameter : network_->parameters().all()) {
    auto broken = weights;
    broken[parameter.offset + parameter.count - 1] = nan;
    training.parameters.upload_group("parameters", broken);
    EXPECT_EQ(locate_not_finite(training, batch(0, 64)), "parameter " + parameter.name);
  }
  // Finite weights whose products overflow.
  for (std::size_t layer = 0; layer < 3; ++layer) {
    auto large = weights;
    const Parameter& bias = network_->parameters()[2 * layer + 1];
    const Parameter& weight = network_->parameters()[2 * layer];
    std::fill_n(large.begin() + static_cast<std::ptrdiff_t>(weight.offset), weight.count, 3e38f);
    std::fill_n(large.begin() + static_cast<std::ptrdiff_t>(bias.offset), bias.count, 3e38f);
    training.parameters.upload_group("parameters", large);
    EXPECT_EQ(locate_not_finite(training, batch(0, 64)), "layer dense_" + std::to_string(layer + 1) + " (forward)");
  }
  // The forward pass stays finite (the hidden units are nearly off), the backward pass does not.
  const auto mse = test::dense_layers({1}, "none", {.features = 1, .outputs = 1});
  Training steep(*backend_, *mse, {.loss = LossKind::mean_squared_error, .max_batch = 1}, {});
  std::vector<float> arena(steep.parameters.elements());
  arena[mse->parameters()[0].offset] = 1e-20f;
  arena[mse->parameters()[2].offset] = 1e30f;
  steep.parameters.upload_group("parameters", arena);
  const float input = 1, target = -1e10f;
  EXPECT_EQ(locate_not_finite(steep, {.x = host_tensor(&input, 1, 1), .y = host_tensor(&target, 1, 1)}),
            "gradient of dense_1/bias");
}

/// Finite weights that overflow, in each kind of network. Reused memory does not hide the first non-finite result. The
/// results of an lstm are always finite, so it is not named.
TEST(LocateNotFinite, NamesTheFirstOperationOfEveryNetwork) {
  struct Overflow {
    NetworkOptions options;
    SampleShape shape;
    std::vector<std::string> large;  ///< parameters
    std::string first;
  };
  const SampleShape image{.features = 8 * 8 * 2, .outputs = 3, .image = ImageShape{8, 8, 2}},
      text{.features = 4, .outputs = 7, .tokens = true};
  const auto backend = make_backend("cpu");
  for (const Overflow& each : std::vector<Overflow>{
           {{.name = "linear"}, {.features = 5, .outputs = 3}, {"dense_1/weight"}, "dense_1"},
           {{.name = "mlp"}, {.features = 5, .outputs = 3}, {"dense_2/weight", "dense_2/bias"}, "dense_2"},
           {{.name = "cnn"}, image, {"conv_2/weight", "conv_2/bias"}, "conv_2"},
           {{.name = "resnet"}, image, {"stage_2/block_1/conv_1/weight"}, "stage_2/block_1/conv_1"},
           {{.name = "lstm"}, text, {"head/weight", "head/bias"}, "head"},
           {{.name = "gpt"}, text, {"block_2/attention/joint/weight"}, "block_2/attention/joint"},
           {{.name = "gpt"}, text, {"block_3/feed_forward/expand/weight"}, "block_3/feed_forward/expand"}}) {
    const auto network = make_network(each.options, each.shape);
    test::SeededTraining training(
        *backend, *network,
        {.max_batch = 2, .sample_type = each.shape.tokens ? ElementType::int32 : ElementType::float32}, {});
    const auto x = samples<float>("x", 2 * each.shape.features, 100);
    const auto tokens = labels(2 * each.shape.features, each.shape.outputs), y = labels(2 * network->positions(), 3);
    const Batch batch{.x = each.shape.tokens ? host_tensor(tokens.data(), 2, each.shape.features)
                                             : host_tensor(x.data(), 2, each.shape.features),
                      .y = host_tensor(y.data(), 2, network->positions())};
    EXPECT_EQ(locate_not_finite(training, batch), "") << each.first;
    std::vector<float> arena(training.parameters.elements());
    training.parameters.download_group("parameters", arena);
    for (const Parameter& parameter : network->parameters().all()) {
      if (std::ranges::find(each.large, parameter.name) == each.large.end()) continue;
      std::fill_n(arena.begin() + static_cast<std::ptrdiff_t>(parameter.offset), parameter.count, 3e38f);
    }
    training.parameters.upload_group("parameters", arena);
    EXPECT_EQ(locate_not_finite(training, batch), fmt::format("layer {} (forward)", each.first));
  }
}

TEST_F(ModelTest, NanInTheBatchReachesLossAndNorm) {
  auto training = make();
  x_[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(forward_backward(training, batch(0, 64), 1).loss));
  EXPECT_TRUE(std::isnan(finish_gradients(training)));
  EXPECT_TRUE(std::isnan(training.model.evaluate(batch(0, 64)).loss));
}

TEST_F(ModelTest, MemoryIsPlannedBeforeAndTakenOnce) {
  CountingMemory memory;
  const ModelOptions options{.max_batch = kSamples};
  const ParameterStateOptions state_options{.optimizer = {.kind = OptimizerKind::adam, .average_decay = 0.9},
                                            .gradient_memory = &memory};
  const MemoryPlan plan = plan_memory(*network_, options, state_options, memory_types(*backend_));
  const std::size_t arena = network_->parameters().arena_elements() * 4;
  EXPECT_EQ(plan.parameters, arena);
  EXPECT_EQ(plan.gradients, arena);
  EXPECT_EQ(plan.optimizer, 2 * arena);
  EXPECT_EQ(plan.average, arena);
  EXPECT_EQ(plan.total(), 5 * arena + plan.activations);
  {
    SeededTraining training(*backend_, *network_, options, state_options, 1);
    EXPECT_EQ(memory.allocations, 1u);
    EXPECT_EQ(memory.bytes, arena);
    train(training, state_options.optimizer, 0, 3);
    EXPECT_EQ(memory.allocations, 1u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(training.parameters.gradient_elements().data()) % 256, 0u);
  }
  EXPECT_EQ(memory.bytes, 0u);
  const MemoryPlan eval =
      plan_memory(*network_, {.max_batch = 1}, {.purpose = Purpose::evaluation}, memory_types(*backend_));
  EXPECT_EQ(eval.total(), arena + eval.activations);
}

TEST_F(ModelTest, MemoryOfADeviceHoldsWorkspaces) {
  const ModelOptions options{.max_batch = kSamples};
  const MemoryPlan plan = plan_memory(*network_, options, {}, memory_types_on_gpu(Precision::bf16));
  EXPECT_EQ(plan.products, kProductWorkspace);
  EXPECT_EQ(plan.kernels, kKernelBytes);
  EXPECT_EQ(plan.patches, 0u);
  EXPECT_EQ(plan.cudnn, 0u);
  EXPECT_EQ(plan.total(), plan.parameters + plan.gradients + plan.optimizer + plan.average + plan.activations +
                              plan.input + plan.products + plan.kernels);

  const auto lstm = [&](std::int64_t layers, std::int64_t unroll, std::int64_t width, const MemoryTypes& types) {
    const auto made = make_network({.name = "lstm", .values = {{"layers", layers}, {"hidden", Numbers{width}}}},
                                   {.features = unroll, .outputs = 16, .tokens = true});
    return plan_memory(*made, {.max_batch = 1024}, {}, types).products;
  };
  const MemoryTypes bf16 = memory_types_on_gpu(Precision::bf16);
  EXPECT_EQ(lstm(1, 20, 64, bf16), kProductWorkspace) << "no wavefront";
  EXPECT_EQ(lstm(2, 4, 64, bf16), kProductWorkspace) << "nor in one chunk";
  EXPECT_EQ(lstm(2, 20, 64, bf16), 3 * kProductWorkspace) << "a workspace for each queue";
  EXPECT_EQ(lstm(5, 20, 64, bf16), 3 * kProductWorkspace);
  EXPECT_EQ(lstm(2, 20, 64, {}), 0u) << "on a host";
  const std::size_t odd = lstm(1, 20, 601, bf16) - kProductWorkspace;
  EXPECT_GT(odd, 0u) << "copies";
  EXPECT_GT(lstm(2, 20, 601, bf16), odd + 3 * kProductWorkspace) << "and those of the side queues";

  const auto attention = [&](std::int64_t batch, double dropout, Precision precision, bool cudnn, Purpose purpose) {
    const auto made = make_network({.name = "gpt",
                                    .values = {{"layers", std::int64_t{2}},
                                               {"heads", std::int64_t{2}},
                                               {"width", std::int64_t{32}},
                                               {"dropout", dropout}}},
                                   {.features = 128, .outputs = 16, .tokens = true});
    MemoryTypes types = memory_types_on_gpu(precision);
    types.cudnn = cudnn;
    return plan_memory(*made, {.max_batch = batch}, {.purpose = purpose}, types).cudnn;
  };
  const std::size_t scores = library_attention_bytes(std::int64_t{2} * 128 * 128);
  EXPECT_EQ(attention(3, 0, Precision::bf16, true, Purpose::training), 3 * scores);
  EXPECT_EQ(attention(100'000, 0, Precision::bf16, true, Purpose::training), kMaxAttentionWorkspace);
  EXPECT_EQ(attention(3, 0.1, Precision::bf16, true, Purpose::training), 0u) << "our own kernels drop";
  EXPECT_EQ(attention(3, 0, Precision::fp32, true, Purpose::training), 0u);
  EXPECT_EQ(attention(3, 0, Precision::bf16, false, Purpose::training), 0u);
  EXPECT_EQ(attention(3, 0, Precision::bf16, true, Purpose::evaluation), 0u) << "for the backward pass";

  const auto resnet =
      make_network({.name = "resnet"}, {.features = 32 * 32 * 3, .outputs = 10, .image = ImageShape{32, 32, 3}});
  const auto images = [&](std::int64_t batch, Precision precision, bool library = false) {
    MemoryTypes types = memory_types_on_gpu(precision);
    types.cudnn = library;
    return plan_memory(*resnet, {.max_batch = batch}, {}, types);
  };
  const std::size_t of_image = images(1, Precision::bf16).patches;
  EXPECT_GT(of_image, 0u);
  EXPECT_EQ(images(3, Precision::bf16).patches, 3 * of_image);
  EXPECT_EQ(images(1, Precision::fp32).patches, 2 * of_image);
  EXPECT_EQ(images(1'000'000, Precision::bf16).patches, kMaxPatchBytes);
  EXPECT_EQ(images(1, Precision::bf16).cudnn, 0u);
  EXPECT_EQ(images(300, Precision::bf16, true).patches, 0u) << "a library does them all";
  EXPECT_EQ(images(300, Precision::bf16, true).cudnn, kMaxLibraryWorkspace);
  EXPECT_EQ(images(1, Precision::fp32, true).cudnn, 0u) << "which does no convolutions in fp32";
  EXPECT_EQ(images(1, Precision::fp32, true).patches, 2 * of_image);
  EXPECT_EQ(plan_memory(*resnet, {.max_batch = 1}, {}, {}).patches, 0u) << "on a host";
}

TEST_F(ModelTest, AnEvaluationModelOnlyEvaluates) {
  auto training = make();
  ParameterState parameters(*backend_, network_->parameters(),
                            {.optimizer = {.kind = OptimizerKind::adam}, .purpose = Purpose::evaluation});
  parameters.initialize(7);
  Model model(*backend_, *network_, parameters, {.max_batch = kSamples});
  EXPECT_EQ(model.evaluate(batch(0, 64)).loss, training.model.evaluate(batch(0, 64)).loss);
  EXPECT_THAT(parameters.state_groups(), ElementsAre("parameters"));
  EXPECT_THROW(model.stage(batch(0, 64)), std::invalid_argument);
  EXPECT_THROW(model.forward(1, Accumulate::no), std::invalid_argument);
  EXPECT_THROW(parameters.gradients(), std::invalid_argument);
  EXPECT_THROW(parameters.gradient_elements(), std::invalid_argument);
  StepStatusBuffer status(*backend_, {});
  EXPECT_THROW(Optimizer(*backend_, parameters, status, {}), std::invalid_argument);
}

TEST_F(ModelTest, RefusesBatchesAndGroupsThatDoNotFit) {
  auto training = make();
  EXPECT_THROW(training.model.evaluate(batch(0, kSamples + 1)), std::invalid_argument);
  EXPECT_THROW(training.model.evaluate(batch(0, -1)), std::invalid_argument);
  const Batch whole = batch(0, 1);
  EXPECT_THROW(training.model.evaluate({.x = {nullptr, ElementType::float32, 1, kFeatures}, .y = whole.y}),
               std::invalid_argument);
  EXPECT_THROW(training.model.evaluate({.x = host_tensor(x_.data(), 1, kFeatures - 1), .y = whole.y}),
               std::invalid_argument);
  EXPECT_THROW(training.model.evaluate({.x = whole.x}), std::invalid_argument);
  EXPECT_THROW(training.model.stage({.x = whole.x}), std::invalid_argument);
  EXPECT_THROW(training.model.evaluate({.x = whole.x, .y = host_tensor(x_.data(), 1, 1)}), std::invalid_argument)
      << "targets of another loss";
  std::vector<float> arena(training.parameters.elements());
  EXPECT_THROW(training.parameters.download_group("velocity", arena), std::invalid_argument);
  arena.pop_back();
  EXPECT_THROW(training.parameters.upload_group("parameters", arena), std::invalid_argument);
  EXPECT_THROW(Training(*backend_, *network_, {.max_batch = 0}, {}), std::invalid_argument);
  const auto reference = std::make_unique<ReferenceBackend>();
  Training exact(*reference, *network_, {}, {});
  EXPECT_THROW(exact.parameters.gradient_elements(), std::invalid_argument);
}

TEST_F(ModelTest, StateTensorsAreInDeclarationOrder) {
  auto training = make({.kind = OptimizerKind::momentum});
  std::vector<std::string> names;
  for (const StateTensor& tensor : training.parameters.state_tensors())
    names.push_back(tensor.group + "/" + tensor.name);
  EXPECT_THAT(names, ElementsAre("parameters/dense_1/weight", "parameters/dense_1/bias", "parameters/dense_2/weight",
                                 "parameters/dense_2/bias", "parameters/dense_3/weight", "parameters/dense_3/bias",
                                 "velocity/dense_1/weight", "velocity/dense_1/bias", "velocity/dense_2/weight",
                                 "velocity/dense_2/bias", "velocity/dense_3/weight", "velocity/dense_3/bias"));
  EXPECT_THAT(training.parameters.state_tensors()[2].shape, ElementsAre(16, 12));
}

}  // namespace
}  // namespace lockstep::model
