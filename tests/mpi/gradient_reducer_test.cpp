#include "comm/gradient_reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "world.hpp"

namespace lockstep::comm {
namespace {

class GradientReduction : public OverEveryTransport {};

TEST_P(GradientReduction, RandomSlicesGiveTheSumOfTheWhole) {
  std::mt19937 random(99);  // the same on all ranks
  for (int round = 0; round < 20; ++round) {
    std::vector<std::size_t> ends;
    for (std::size_t end = 0; ends.size() < 12;)
      ends.push_back(end += random() % 3 == 0 ? random() % 20'000 : random() % 50);
    const std::size_t count = ends.back();
    const auto memory = communicator_->reduction_memory(count * sizeof(float) + 256);
    const std::span<float> gradients(static_cast<float*>(memory->allocate(count * sizeof(float) + 4, 64)), count);
    HostReduction reduction(*communicator_);
    GradientReducer reducer(reduction, gradients,
                            bucket_schedule(ends, communicator_->transport_name(), communicator_->size(),
                                            round % 2 == 0 ? 0 : 1 + random() % 10'000));
    for (int step = 0; step < 2; ++step) {
      const auto value = [&](std::size_t i, int rank) {
        return static_cast<float>(i % 100'000 + static_cast<std::size_t>(rank * rank + step));
      };
      std::fill(gradients.begin(), gradients.end(), -1.0f);
      reducer.begin_step();
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        for (std::size_t i = begin; i < end; ++i) gradients[i] = value(i, communicator_->rank());
        begin = end;
        reducer.ready_up_to(end);
      }
      reducer.finish_step();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        float sum = 0;
        for (int rank = 0; rank < communicator_->size(); ++rank) sum += value(i, rank);
        wrong += gradients[i] != sum;
      }
      EXPECT_EQ(wrong, 0u) << "round " << round;
    }
    EXPECT_GT(reduction.exposed_seconds(), 0);
  }
}

TEST_P(GradientReduction, FinishReducesWhatNobodyAnnounced) {
  std::vector<float> gradients(1000, 1.0f);
  HostReduction reduction(*communicator_);
  GradientReducer reducer(reduction, gradients, {{.offset = 0, .count = 600}, {.offset = 600, .count = 400}});
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), static_cast<float>(communicator_->size())), 1000);
}

LOCKSTEP_OVER_EVERY_TRANSPORT(GradientReduction);

}  // namespace
}  // namespace lockstep::comm
