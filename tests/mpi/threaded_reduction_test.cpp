#include "comm/threaded_reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "comm/gradient_reducer.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

class BesideTheComputation : public OverEveryTransport {
 protected:
  /// Gradients after `steps` steps in which each one's slices become ready bit by bit; every step adds to the last.
  std::vector<float> train(Reduction& reduction, const Wire& wire, int steps) {
    const std::vector<std::size_t> ends{70'000, 70'001, 150'000, 400'000, 400'500, 700'000};
    std::vector<float> gradients(ends.back());
    std::mt19937 random(static_cast<unsigned>(communicator_->rank()) + 5);
    std::normal_distribution<float> normal;
    const BucketRule rule("ring", communicator_->size(), communicator_->ring_length());
    GradientReducer reducer(reduction, gradients, rule.cut(ends), {.host = wire});
    double ballot = 0;
    for (int step = 0; step < steps; ++step) {
      reducer.begin_step();
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        for (std::size_t i = begin; i < end; ++i) gradients[i] = 0.5f * gradients[i] + normal(random);
        reducer.ready_up_to(begin = end);
      }
      reducer.finish_step();
      ballot += gradients[7];
      reduction.sum(std::span(&ballot, 1));
      reduction.join();
      gradients[8] = static_cast<float>(std::fmod(ballot, 1000.0));
    }
    return gradients;
  }
};

TEST_P(BesideTheComputation, GivesTheBitsOfSumsDoneAtOnce) {
  for (const bool bf16 : {false, true}) {
    std::vector<float> residual(bf16 ? 700'000 : 0), other_residual = residual;
    HostReduction at_once(*communicator_);
    const std::vector<float> plain = train(at_once, {.bf16 = bf16, .residual = residual}, 4);
    ThreadedReduction beside(*communicator_);
    const std::vector<float> threaded = train(beside, {.bf16 = bf16, .residual = other_residual}, 4);
    EXPECT_EQ(std::memcmp(plain.data(), threaded.data(), plain.size() * sizeof(float)), 0) << "bf16 " << bf16;
    EXPECT_EQ(residual, other_residual);
    EXPECT_GT(beside.busy_seconds(), 0);
    EXPECT_GE(beside.exposed_seconds(), 0);
  }
}

TEST_P(BesideTheComputation, TheHalvesMakeASum) {
  ThreadedReduction reduction(*communicator_);
  std::vector<float> data(100'003);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(i % 1000) + static_cast<float>(communicator_->rank());
  reduction.scatter_sum(data, {});
  reduction.join();
  const Slice own = communicator_->own_slice(data.size(), communicator_->rank());
  for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] += 1;
  reduction.gather(data);
  reduction.wait("the test", 1);
  const int p = communicator_->size();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    wrong += data[i] != static_cast<float>(i % 1000) * static_cast<float>(p) + static_cast<float>(p * (p - 1) / 2 + 1);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(BesideTheComputation, WhatGoesWrongInTheThreadIsThrownWhereItIsWaitedFor) {
  ThreadedReduction reduction(*communicator_);
  std::vector<float> data(1000), residual(1);
  reduction.sum(data, {.bf16 = true, .residual = residual});  // on every rank alike: nothing is sent
  reduction.sum(data);                                        // not begun any more
  EXPECT_THROW(reduction.join(), std::invalid_argument);
  std::fill(data.begin(), data.end(), 1.0f);
  reduction.sum(data);
  reduction.join();
  EXPECT_EQ(std::accumulate(data.begin(), data.end(), 0.0f), 1000.0f * static_cast<float>(communicator_->size()));
  std::vector<std::uint16_t> narrow(4);
  EXPECT_THROW(reduction.sum_bf16(narrow), std::invalid_argument);
}

TEST_P(BesideTheComputation, WhatIsNotBegunIsDroppedAtTheEnd) {
  std::vector<float> data(1000);
  { ThreadedReduction never_used(*communicator_); }
  {
    ThreadedReduction reduction(*communicator_);
    reduction.sum(data);
    reduction.join();
  }
  EXPECT_TRUE(communicator_->urgent());
  communicator_->barrier();
}

TEST(HostReductionFactory, TakesAThreadWhereMessagesTravel) {
  for (const Transport transport : {Transport::shared_memory, Transport::ring}) {
    const auto communicator = communicator_over(transport);
    const auto reduction = make_host_reduction(*communicator);
    EXPECT_EQ(dynamic_cast<ThreadedReduction*>(reduction.get()) != nullptr, communicator->uses_network());
  }
}

LOCKSTEP_OVER_EVERY_TRANSPORT(BesideTheComputation);

}  // namespace
}  // namespace lockstep::comm
