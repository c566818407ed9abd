#include "comm/gradient_reducer.hpp"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "comm/host/pieces.hpp"
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
    const BucketRule rule(communicator_->transport(), communicator_->size(), communicator_->ring_length(),
                          round % 2 == 0 ? 0 : 1 + random() % 10'000);
    GradientReducer reducer(*communicator_, gradients, rule.cut(ends));
    for (int step = 0; step < 2; ++step) {
      const auto value = [&](std::size_t i, int rank) {
        return static_cast<float>(i % 100'000 + static_cast<std::size_t>(rank * rank + step));
      };
      std::fill(gradients.begin(), gradients.end(), -1.0f);
      reducer.begin_step();
      EXPECT_FALSE(reducer.has_begun_to_reduce());
      std::size_t begin = 0;
      for (const std::size_t end : ends) {
        for (std::size_t i = begin; i < end; ++i) gradients[i] = value(i, communicator_->rank());
        begin = end;
        reducer.ready_up_to(end);
        EXPECT_EQ(reducer.has_begun_to_reduce(), reducer.schedule()[0].offset + reducer.schedule()[0].count <= end);
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
    EXPECT_GT(communicator_->exposed_seconds(), 0);
  }
}

/// Terms of such different sizes that each order of additions gives other bits.
float uneven_term(std::size_t i, int term) {
  const std::size_t random = (i * 131 + static_cast<std::size_t>(term) + 1) * 0x9E3779B97F4A7C15u >> 20;
  return std::ldexp(static_cast<float>(random % 2001) - 1000, static_cast<int>(random / 2001 % 20) - 10);
}

TEST_P(GradientReduction, OrderedTermsGiveTheBitsOfOneRank) {
  for (const int terms : {communicator_->size(), 24, 25}) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{40}, std::size_t{5000}, std::size_t{70'001}}) {
      const SummationTree tree(terms, communicator_->size()), alone(terms, 1);
      const std::size_t kept = static_cast<std::size_t>(tree.most_kept()) * count;
      const auto memory = communicator_->reduction_memory((count + kept + 128) * sizeof(float));
      const std::span<float> gradients(static_cast<float*>(memory->allocate(count * sizeof(float), 64)), count);
      const OrderedTerms ordered{.tree = &tree,
                                 .kept = {static_cast<float*>(memory->allocate(kept * sizeof(float) + 4, 64)), kept}};
      const std::vector<Slice> buckets =
          count < 100 ? std::vector<Slice>{{.offset = 0, .count = count}}
                      : std::vector<Slice>{{.offset = 0, .count = 33}, {.offset = 33, .count = count - 33}};
      GradientReducer reducer(*communicator_, gradients, buckets, SumsFor::everybody, ordered);
      const int own = tree.term_count(communicator_->rank());
      for (int step = 0; step < 2; ++step) {
        for (int k = 0; k < own; ++k) {
          if (k + 1 == own) reducer.begin_step();
          reducer.begin_term(k);
          const int term = tree.first_term(communicator_->rank()) + k;
          for (std::size_t i = 0; i < count; ++i) gradients[i] = uneven_term(i + static_cast<std::size_t>(step), term);
          reducer.ready_up_to(count / 3);
          reducer.ready_up_to(count);
        }
        reducer.finish_step();
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < count; ++i) {
          std::vector<float> stack;
          for (int k = 0; k < terms; ++k) {
            float sum = uneven_term(i + static_cast<std::size_t>(step), k);
            for (int add = 0; add < alone.steps(0)[static_cast<std::size_t>(k)].additions; ++add) {
              sum = stack.back() + sum;
              stack.pop_back();
            }
            stack.push_back(sum);
          }
          wrong += gradients[i] != stack.at(0);
        }
        EXPECT_EQ(wrong, 0u) << terms << " terms, " << count << " gradients";
      }
    }
  }
}

TEST(TreeSum, OfMoreThanAPieceForEachRankIsThatOfAllElements) {
  if (session().size() != 2) GTEST_SKIP() << "two ranks are enough for so many elements";
  const auto communicator = communicator_over(kRing);
  const SummationTree tree(2, 2);
  std::vector<float> data(4 * (kPieceBytes / sizeof(float)) + 11);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = uneven_term(i, communicator->rank());
  communicator->all_reduce(TreeTerms{.tree = &tree, .data = data});
  communicator->wait();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) wrong += data[i] != uneven_term(i, 0) + uneven_term(i, 1);
  EXPECT_EQ(wrong, 0u);
}

TEST_P(GradientReduction, OrderedTermsNeedTheirMemory) {
  const SummationTree tree(24, communicator_->size());
  std::vector<float> gradients(100), kept(50);
  EXPECT_THROW(GradientReducer(*communicator_, gradients, {{.offset = 0, .count = 100}}, SumsFor::everybody,
                               {.tree = &tree, .kept = kept}),
               std::invalid_argument);
}

TEST_P(GradientReduction, FinishReducesWhatNobodyAnnounced) {
  std::vector<float> gradients(1000, 1.0f);
  GradientReducer reducer(*communicator_, gradients, {{.offset = 0, .count = 600}, {.offset = 600, .count = 400}});
  reducer.begin_step();
  reducer.finish_step();
  EXPECT_EQ(std::count(gradients.begin(), gradients.end(), static_cast<float>(communicator_->size())), 1000);
}

/// Owners get the same bits in their parts as a sum for all ranks has, and distribute the parts after changing them.
TEST_P(GradientReduction, OwnersGetTheirPartsAndBringThemToAll) {
  std::mt19937 random(17);  // the same on all ranks
  for (int round = 0; round < 12; ++round) {
    std::vector<std::size_t> ends;
    for (std::size_t end = 0; ends.size() < 6;)
      ends.push_back(end += random() % 2 == 0 ? random() % 20'000 : random() % 50);
    const std::size_t count = ends.back(), bytes = count * sizeof(float) + 256;
    const auto memory = communicator_->reduction_memory(2 * bytes);
    const auto array = [&] { return std::span(static_cast<float*>(memory->allocate(bytes - 252, 64)), count); };
    const std::span<float> whole = array(), shared = array();
    std::mt19937 own(static_cast<unsigned>(100 * round + communicator_->rank()));
    std::uniform_real_distribution<float> values(-1, 1);
    for (std::size_t i = 0; i < count; ++i) whole[i] = shared[i] = values(own);
    const std::vector<Slice> schedule =
        BucketRule(Transport::ring, communicator_->size(), communicator_->ring_length(), 1 + random() % 30'000)
            .cut(ends);
    GradientReducer to_all(*communicator_, whole, schedule);
    to_all.begin_step();
    to_all.finish_step();
    GradientReducer to_owners(*communicator_, shared, schedule, SumsFor::owners);
    to_owners.begin_step();
    to_owners.finish_step();
    std::vector<bool> mine(count);
    for (const Slice& bucket : schedule) {
      const Slice part = slice_of(bucket.count, communicator_->rank(), communicator_->size());
      std::fill_n(mine.begin() + static_cast<std::ptrdiff_t>(bucket.offset + part.offset), part.count, true);
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      wrong += mine[i] && shared[i] != whole[i];
      if (!mine[i]) shared[i] = std::nanf("");
    }
    EXPECT_EQ(wrong, 0u) << "round " << round;
    for (std::size_t bucket = 0; bucket < schedule.size(); ++bucket) to_owners.gather(shared, bucket);
    to_owners.finish_gathering();
    EXPECT_TRUE(std::ranges::equal(shared, whole)) << "round " << round;
  }
}

TEST_P(GradientReduction, PaddingStaysZeroWhereOwnersGetTheSums) {
  const auto memory = communicator_->reduction_memory(4096);
  const std::span<float> gradients(static_cast<float*>(memory->allocate(4000, 64)), 1000);
  GradientReducer reducer(*communicator_, gradients, {{.offset = 0, .count = 1000}}, SumsFor::owners);
  std::ranges::fill(gradients, 0.0f);
  for (int step = 0; step < 3; ++step) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (i % 100 < 90) gradients[i] = 1;
    }
    reducer.begin_step();
    reducer.finish_step();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (i % 100 >= 90) {
        EXPECT_EQ(gradients[i], 0) << i;
      }
    }
  }
}

LOCKSTEP_OVER_EVERY_GROUPING(GradientReduction);

}  // namespace
}  // namespace lockstep::comm
