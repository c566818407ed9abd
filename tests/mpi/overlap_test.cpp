/// Collectives that a thread drives beside the computation.
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "comm/gradient_reducer.hpp"
#include "comm/host/network_communicator.hpp"
#include "comm/session/rendezvous.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

class Overlap : public testing::TestWithParam<TransportCase> {
 protected:
  static std::unique_ptr<Communicator> communicator_that(bool overlaps, WireFormat wire = WireFormat::fp32) {
    TransportCase tested = GetParam();
    tested.overlap = overlaps;
    return communicator_over(tested, 60, wire);
  }

  /// Gradients after `steps` steps whose slices become ready piece by piece; every step adds to the last.
  static std::vector<float> train(Communicator& communicator, int steps) {
    const std::vector<std::size_t> ends{70'000, 70'001, 150'000, 400'000, 400'500, 700'000};
    const auto memory = communicator.reduction_memory(ends.back() * sizeof(float));
    const std::span<float> gradients(static_cast<float*>(memory->allocate(ends.back() * sizeof(float), 64)),
                                     ends.back());
    std::ranges::fill(gradients, 0.0f);
    std::mt19937 random(static_cast<unsigned>(communicator.rank()) + 5);
    std::normal_distribution<float> normal;
    const BucketRule rule(Transport::ring, communicator.size(), communicator.ring_length());
    GradientReducer reducer(communicator, gradients, rule.cut(ends));
    double status = 0;
    for (int step = 0; step < steps; ++step) {
      reducer.begin_step();
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        for (std::size_t i = begin; i < end; ++i) gradients[i] = 0.5f * gradients[i] + normal(random);
        reducer.ready_up_to(begin = end);
      }
      reducer.finish_step();
      status += gradients[7];
      communicator.all_reduce(std::span(&status, 1));
      communicator.join();
      gradients[8] = static_cast<float>(std::fmod(status, 1000.0));
    }
    return {gradients.begin(), gradients.end()};
  }
};

TEST_P(Overlap, GivesTheBitsOfCollectivesDoneAtOnce) {
  for (const WireFormat wire :
       {WireFormat::fp32, WireFormat::bf16, WireFormat::bf16_feedback, WireFormat::int8_feedback}) {
    const auto at_once = communicator_that(false, wire), beside = communicator_that(true, wire);
    const std::vector<float> plain = train(*at_once, 4), threaded = train(*beside, 4);
    EXPECT_EQ(std::memcmp(plain.data(), threaded.data(), plain.size() * sizeof(float)), 0)
        << "wire " << static_cast<int>(wire);
    EXPECT_GT(beside->busy_seconds(), 0);
    EXPECT_GT(beside->exposed_seconds(), 0);
    EXPECT_GE(at_once->exposed_seconds(), at_once->busy_seconds());
  }
}

TEST_P(Overlap, TheHalvesMakeASum) {
  const auto communicator = communicator_that(true);
  std::vector<float> data(100'003);
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<float>(i % 1000) + static_cast<float>(communicator->rank());
  communicator->reduce_scatter(data);
  communicator->join();
  const Slice own = communicator->own_slice(data.size(), communicator->rank());
  for (std::size_t i = own.offset; i < own.offset + own.count; ++i) data[i] += 1;
  communicator->all_gather(std::span(data));
  communicator->wait("the test", 1);
  const int p = communicator->size();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    wrong += data[i] != static_cast<float>(i % 1000) * static_cast<float>(p) + static_cast<float>(p * (p - 1) / 2 + 1);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(Overlap, WhatIsNotWaitedForIsDroppedOrDoneAtTheEnd) {
  std::vector<float> data(1000);
  { const auto never_used = communicator_that(true); }
  {
    const auto communicator = communicator_that(true);
    communicator->all_reduce(data);
    communicator->join();
  }
  const auto communicator = communicator_that(true);
  communicator->barrier();
  communicator->wait();
}

TEST_P(Overlap, ALongOperationBeginsWhenEverythingIsDone) {
  const auto communicator = communicator_that(true);
  std::vector<float> data(300'000, 1.0f);
  communicator->all_reduce(data);
  { const LongOperation operation(*communicator, "the test"); }
  EXPECT_EQ(data.back(), static_cast<float>(communicator->size()));
}

LOCKSTEP_OVER_EVERY_TRANSPORT(Overlap);
INSTANTIATE_TEST_SUITE_P(OfTheLibrary, Overlap, testing::Values(kMpi), case_name);

/// Sends nothing; fails to gather.
class Failing final : public NetworkCommunicator {
 public:
  explicit Failing(bool overlaps)
      : NetworkCommunicator(session().state(), PeerTable(session().rank(), exchange(session(), own_info(), 60)),
                            {.overlap = overlaps}) {}
  ~Failing() override { stop(); }
  Transport transport() const noexcept override { return Transport::ring; }
  int sums = 0;

 private:
  std::unique_ptr<ReductionMemory> take_memory(std::size_t) override { return nullptr; }
  void run_all_reduce(std::span<float>) override { ++sums; }
  void run_all_reduce(std::span<double>) override { ++sums; }
  void run_reduce_scatter(std::span<float>) override { ++sums; }
  void run_all_gather(std::span<std::byte>, std::size_t) override { throw PeerError("a peer is gone"); }
  void run_broadcast(std::span<std::byte>, int) override {}
  void run_barrier() override {}
};

TEST(OverlapFailure, IsThrownWhereItIsWaitedFor) {
  Failing communicator(true);
  std::vector<float> data(1000);
  communicator.all_reduce(data);
  communicator.all_gather(std::span(data));
  communicator.all_reduce(data);  // no longer possible
  EXPECT_THROW(communicator.join(), PeerError);
  EXPECT_EQ(communicator.sums, 1);
  communicator.reduce_scatter(data);
  communicator.wait();
  EXPECT_EQ(communicator.sums, 2) << "the next one is";
}

TEST(OverlapFailure, WithoutAThreadIsThrownAtOnce) {
  Failing communicator(false);
  std::vector<float> data(1000);
  EXPECT_THROW(communicator.all_gather(std::span(data)), PeerError);
}

}  // namespace
}  // namespace lockstep::comm
