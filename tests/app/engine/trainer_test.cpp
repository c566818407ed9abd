/// The training step in a world of one: its results and its failures.
#include "app/engine/trainer.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/engine/allocation_count.hpp"
#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"
#include "model/cpu/cpu_backend.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kFeatures = 3;

/// y = x0 + 2 x1 + 3 x2, learnt by a linear model from samples that the test supplies one micro-batch at a time.
class TrainerTest : public testing::Test {
 protected:
  struct Samples {
    std::vector<float> x, y;
  };
  static Samples samples(std::int64_t count) {
    Samples made;
    for (std::int64_t i = 0; i < count; ++i) {
      float target = 0;
      for (std::int64_t j = 0; j < kFeatures; ++j) {
        made.x.push_back(std::sin(static_cast<float>(i * kFeatures + j)));
        target += static_cast<float>(j + 1) * made.x.back();
      }
      made.y.push_back(target);
    }
    return made;
  }

  /// Cuts `samples_` into micro-batches of these sizes, each step `step_count` samples, over and over.
  void feed(std::vector<std::int64_t> sizes, std::int64_t step_count) {
    sizes_ = std::move(sizes);
    step_count_ = step_count;
  }
  MicroBatch next() {
    if (fail_at_ == delivered_) throw std::runtime_error("shard-00003.h5: sample 7 has label 77");
    const std::int64_t count = sizes_[static_cast<std::size_t>(delivered_) % sizes_.size()];
    if (delivered_ % static_cast<std::int64_t>(sizes_.size()) == 0) first_ = 0;
    const MicroBatch micro{.batch = {.x = model::host_tensor(samples_.x.data() + first_ * kFeatures, count, kFeatures),
                                     .y = model::host_tensor(samples_.y.data() + first_, count, 1)},
                           .step_count = step_count_,
                           .next_position = next_position_ += 5};
    first_ += count;
    ++delivered_;
    return micro;
  }

  Trainer& trainer(std::int64_t accumulate, double rate = 0.1) {
    schedule_.emplace(model::ScheduleOptions{.base = rate, .warmup_steps = 2});
    training_.emplace(*backend_, *network_,
                      model::ModelOptions{.loss = model::LossKind::mean_squared_error, .max_batch = 16},
                      model::ParameterStateOptions{.optimizer = optimizer_});
    training_->parameters.initialize(1);
    reducer_.emplace(communicator_, training_->parameters.gradient_elements(),
                     comm::BucketRule(comm::Transport::serial, 1, 1).cut(network_->parameters().slice_ends()));
    delivered_ = next_position_ = 0;
    const Trainer::Context context{*backend_, *training_, communicator_, communicator_, *reducer_};
    return trainer_.emplace(context, *schedule_, accumulate, NextMicroBatch{.next = [this] { return next(); }});
  }
  std::vector<float> parameters() {
    std::vector<float> values(training_->parameters.elements());
    training_->parameters.download_group("parameters", values);
    return values;
  }
  std::string failure(const Trainer::Request& request = {}) {
    return test::message_of<comm::ConsensusError>([&] { trainer_->step(request); });
  }

  comm::SerialCommunicator communicator_;
  std::unique_ptr<model::Backend> backend_ = model::make_backend("cpu", {.threads = 1});
  std::unique_ptr<model::Network> network_ =
      model::make_network({.name = "linear"}, {.features = kFeatures, .outputs = 1});
  model::OptimizerOptions optimizer_{.kind = model::OptimizerKind::adam};
  Samples samples_ = samples(12);
  std::vector<std::int64_t> sizes_{12};
  std::int64_t step_count_ = 12, delivered_ = 0, first_ = 0, next_position_ = 0, fail_at_ = -1;
  std::optional<model::LearningRateSchedule> schedule_;
  std::optional<model::Training> training_;
  std::optional<comm::GradientReducer> reducer_;
  std::optional<Trainer> trainer_;
};

TEST_F(TrainerTest, SaysWhatItDid) {
  Trainer& trainer = this->trainer(1);
  const Trainer::Result first = trainer.step({});
  EXPECT_EQ(first.figures.step, 1);
  EXPECT_EQ(first.figures.samples, 12);
  EXPECT_GT(first.figures.loss_sum, 0);
  EXPECT_GT(first.figures.gradient_norm, 0);
  EXPECT_DOUBLE_EQ(first.figures.learning_rate, 0.05);  // the first of two steps of warm-up
  EXPECT_EQ(first.stop_requests, 0);
  EXPECT_DOUBLE_EQ(trainer.step({}).figures.learning_rate, 0.1);
  EXPECT_EQ(trainer.step({.stop = true, .error = {}}).stop_requests, 1);
  EXPECT_EQ(trainer.steps_done(), 3);
  EXPECT_EQ(trainer.next_position(), 15);
}

TEST_F(TrainerTest, MicroStepsOfAnySizesMakeTheSameStep) {
  Trainer* trainer = &this->trainer(1);
  for (int i = 0; i < 5; ++i) trainer->step({});
  const std::vector<float> whole = parameters();
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{6, 6}, {1, 4, 7}, {12, 0}, {0, 5, 7}}) {
    feed(sizes, 12);
    trainer = &this->trainer(static_cast<std::int64_t>(sizes.size()));
    Trainer::Result last;
    for (int i = 0; i < 5; ++i) last = trainer->step({});
    EXPECT_EQ(last.figures.samples, 12);
    const std::vector<float> parts = parameters();
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], 1e-5) << i;
  }
}

TEST_F(TrainerTest, AReaderThatFailsFailsTheStepAndLeavesTheWeights) {
  for (const std::int64_t micro : {0, 1}) {
    fail_at_ = -1;
    feed({6, 6}, 12);
    trainer(2).step({});
    const std::vector<float> before = parameters();
    fail_at_ = 2 + micro;
    EXPECT_THAT(failure(), HasSubstr("shard-00003.h5: sample 7 has label 77"));
    EXPECT_EQ(parameters(), before);
    EXPECT_EQ(trainer_->steps_done(), 1);
  }
}

TEST_F(TrainerTest, AnErrorBetweenTheStepsIsToldWithTheNext) {
  trainer(1).step({});
  const std::vector<float> before = parameters();
  EXPECT_EQ(failure({.stop = false, .error = "log.txt: the disk is full"}), "log.txt: the disk is full");
  EXPECT_EQ(parameters(), before);
}

TEST_F(TrainerTest, WhatIsNotFiniteIsNamedBeforeItReachesTheWeights) {
  trainer(1).step({});
  const std::vector<float> before = parameters();
  samples_.x[4] = std::numeric_limits<float>::quiet_NaN();
  const std::string message = failure();
  EXPECT_THAT(message, HasSubstr("step 2: the loss is not finite: first in input"));
  EXPECT_THAT(message, HasSubstr("weights of step 1 were not touched"));
  EXPECT_THAT(message, Not(HasSubstr("micro-step")));
  EXPECT_EQ(parameters(), before);
  EXPECT_EQ(trainer_->steps_done(), 1);
}

/// The CPU acts as a device: no result is read before the end of the step.
class LikeADevice final : public model::cpu::CpuBackend {
 public:
  LikeADevice() : CpuBackend(1) {}
  bool is_host() const noexcept override { return false; }
  void use_processors(Processors processors) noexcept override { uses.push_back(processors); }
  std::vector<Processors> uses;
};

TEST_F(TrainerTest, ADeviceNamesTheMicroStepThatIsNotFinite) {
  backend_ = std::make_unique<LikeADevice>();
  feed({4, 4, 4}, 12);
  trainer(3);
  EXPECT_EQ(failure(), "");
  samples_.y[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(failure(), HasSubstr("first in loss in micro-step 2 of 3"));
  samples_ = samples(12);
  trainer(3);
  samples_.x.back() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(failure(), HasSubstr("first in input"));
}

TEST_F(TrainerTest, ABatchThatCannotBeFetchedAheadFailsTheStepThatWantsIt) {
  backend_ = std::make_unique<LikeADevice>();
  for (const std::int64_t at : {1, 2, 3}) {
    fail_at_ = at;
    trainer(1);
    for (std::int64_t i = 0; i < at; ++i) EXPECT_EQ(trainer_->step({}).figures.step, i + 1);
    const std::vector<float> before = parameters();
    EXPECT_THAT(failure(), HasSubstr("shard-00003.h5: sample 7 has label 77"));
    EXPECT_EQ(parameters(), before);
    EXPECT_EQ(trainer_->steps_done(), at);
    EXPECT_EQ(trainer_->next_position(), 5 * at) << "where the last step that was made left the data";
  }
}

TEST_F(TrainerTest, ProductsLeaveProcessorsToCommunicationWhileGradientsAreReduced) {
  using enum model::Backend::Processors;
  auto device = std::make_unique<LikeADevice>();
  const std::vector<model::Backend::Processors>& uses = device->uses;
  backend_ = std::move(device);
  feed({6, 6}, 12);
  trainer(2).step({});
  ASSERT_GE(uses.size(), 3u);
  EXPECT_EQ(uses.front(), all) << "nothing is reduced after the first micro-step";
  EXPECT_EQ(std::count(uses.begin(), uses.end(), all), 2);
  EXPECT_EQ(uses[1], unreserved);
  EXPECT_EQ(uses.back(), all);
}

TEST_F(TrainerTest, TheMicroStepThatIsNotFiniteIsNamed) {
  feed({4, 4, 4}, 12);
  trainer(3);
  samples_.y[5] = std::numeric_limits<float>::infinity();
  EXPECT_THAT(failure(), HasSubstr("first in loss in micro-step 2 of 3"));
  samples_ = samples(12);
  trainer(3);
  samples_.x.back() = std::numeric_limits<float>::infinity();
  EXPECT_THAT(failure(), HasSubstr("first in input"));
}

TEST_F(TrainerTest, AGradientThatOverflowsIsCaught) {
  samples_.y.assign(12, 1e19f);
  for (float& x : samples_.x) x = 1e30f;
  trainer(1);
  const std::vector<float> before = parameters();
  EXPECT_THAT(failure(), HasSubstr("not finite"));
  EXPECT_EQ(parameters(), before);
}

TEST_F(TrainerTest, AResumedRunStandsWhereItStood) {
  Trainer& trainer = this->trainer(1);
  trainer.start_at(40, 3, 120);
  EXPECT_EQ(trainer.steps_done(), 40);
  EXPECT_EQ(trainer.epoch(), 3);
  EXPECT_EQ(trainer.next_position(), 120);
  EXPECT_EQ(trainer.step({}).figures.step, 41);
  EXPECT_EQ(trainer.next_position(), 5);
}

TEST_F(TrainerTest, AStepAllocatesNothing) {
  feed({4, 4, 4}, 12);
  Trainer& trainer = this->trainer(3);
  trainer.step({});
  const std::int64_t before = allocations_of_this_thread();
  for (int i = 0; i < 10; ++i) trainer.step({});
  EXPECT_EQ(allocations_of_this_thread() - before, 0);
  ::operator delete(::operator new(1));  // a call that compilers keep, unlike an expression
  EXPECT_EQ(allocations_of_this_thread() - before, 1) << "the counter counts";
}

}  // namespace
}  // namespace lockstep::app
