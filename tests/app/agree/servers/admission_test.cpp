#include "app/agree/servers/admission.hpp"

#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

using Verdict = Admission::Verdict;

/// Tells all workers that may be told something now; returns the workers that go on.
std::vector<int> told(Admission& admission) {
  std::vector<int> workers;
  while (const std::optional<Admission::Turn> word = admission.next()) {
    if (word->goes_on) workers.push_back(word->worker);
  }
  return workers;
}

TEST(AdmissionTest, EachGradientByItselfIsAnUpdateAndARoundHasExactlyItsTarget) {
  Admission admission({.workers = 2});
  admission.begin_round(5);
  EXPECT_EQ(told(admission), (std::vector{0, 1}));
  EXPECT_EQ(admission.arrived(1), Verdict::update);
  EXPECT_EQ(told(admission), std::vector{1});
  EXPECT_EQ(admission.arrived(1), Verdict::update);
  EXPECT_EQ(told(admission), std::vector{1});
  EXPECT_EQ(admission.arrived(1), Verdict::update);
  EXPECT_EQ(told(admission), std::vector{1}) << "the fifth: rank 0 has the fourth under way";
  EXPECT_EQ(admission.arrived(1), Verdict::update);
  EXPECT_EQ(told(admission), std::vector<int>());
  EXPECT_FALSE(admission.over()) << "rank 0's is under way";
  EXPECT_EQ(admission.missing(), std::vector{0});
  EXPECT_EQ(admission.arrived(0), Verdict::update);
  EXPECT_EQ(told(admission), std::vector<int>());
  EXPECT_TRUE(admission.over());
  EXPECT_EQ(admission.updates(), 5);
}

TEST(AdmissionTest, TheFastestIsNoMoreThanTheStalenessAheadOfTheSlowest) {
  Admission admission({.workers = 2, .staleness = 2});
  admission.begin_round(100);
  EXPECT_EQ(told(admission), (std::vector{0, 1}));
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(admission.arrived(0), Verdict::update);
    EXPECT_EQ(told(admission), std::vector{0});
  }
  EXPECT_EQ(admission.arrived(0), Verdict::update);
  EXPECT_EQ(told(admission), std::vector<int>()) << "three steps to none";
  EXPECT_EQ(admission.arrived(1), Verdict::update);
  EXPECT_EQ(told(admission), (std::vector{0, 1}));
}

TEST(AdmissionTest, AQuorumMakesTheUpdateAndWhoIsLateIsDroppedAndGoesOnWithTheNewestStep) {
  Admission admission({.workers = 3, .quorum = 2});
  admission.begin_round(10);
  EXPECT_EQ(told(admission), (std::vector{0, 1, 2}));
  EXPECT_EQ(admission.arrived(2), Verdict::waits);
  EXPECT_EQ(told(admission), std::vector<int>());
  EXPECT_EQ(admission.arrived(0), Verdict::update);
  EXPECT_EQ(admission.decide(), (std::vector{0, 2})) << "in rank order, however they come";
  admission.updated();
  EXPECT_EQ(told(admission), (std::vector{0, 2}));
  EXPECT_EQ(admission.arrived(0), Verdict::waits);
  EXPECT_EQ(admission.arrived(2), Verdict::update);
  EXPECT_EQ(admission.decide(), (std::vector{0, 2}));
  EXPECT_EQ(admission.arrived(1), Verdict::dropped) << "also while the sum is not updated yet";
  EXPECT_EQ(told(admission), std::vector<int>());
  admission.updated();
  const auto words = [&] {
    std::vector<Admission::Turn> all;
    while (const auto word = admission.next()) all.push_back(*word);
    return all;
  }();
  ASSERT_EQ(words.size(), 3u);
  EXPECT_EQ(words[1].worker, 1);
  EXPECT_EQ(words[1].step, 2);
}

TEST(AdmissionTest, ADrainEndsARoundWithWholeSteps) {
  Admission each({.workers = 3});
  each.begin_round(300);
  EXPECT_EQ(told(each).size(), 3u);
  each.arrived(0);
  EXPECT_EQ(told(each), std::vector{0});
  each.drain();  // one is complete, three are under way
  each.arrived(0);
  EXPECT_EQ(told(each), std::vector{0});
  for (const int worker : {0, 1, 2}) each.arrived(worker);
  EXPECT_EQ(told(each), std::vector{0}) << "the sixth";
  each.arrived(0);
  EXPECT_EQ(told(each), std::vector<int>());
  EXPECT_TRUE(each.over());
  EXPECT_EQ(each.updates(), 6);

  Admission sums({.workers = 2, .quorum = 2});
  sums.begin_round(300);
  EXPECT_EQ(told(sums).size(), 2u);
  sums.drain();
  sums.arrived(0);
  EXPECT_EQ(sums.arrived(1), Verdict::update);
  sums.updated();
  EXPECT_EQ(told(sums), std::vector<int>());
  EXPECT_TRUE(sums.over());
  EXPECT_EQ(sums.updates(), 1);
}

TEST(AdmissionTest, AWorkerThatDiesGivesBackItsStepAndLowersTheQuorum) {
  Admission each({.workers = 2, .staleness = 1});
  each.begin_round(3);
  EXPECT_EQ(told(each), (std::vector{0, 1}));
  each.arrived(0);
  EXPECT_EQ(told(each), std::vector{0});
  each.arrived(0);
  EXPECT_EQ(told(each), std::vector<int>()) << "rank 1 has the third";
  EXPECT_FALSE(each.lost(1));
  Admission again({.workers = 2, .staleness = 1});
  again.begin_round(3);
  EXPECT_EQ(told(again), (std::vector{0, 1}));
  again.lost(1);
  for (int step = 0; step < 2; ++step) {
    again.arrived(0);
    EXPECT_EQ(told(again), std::vector{0});
  }
  again.arrived(0);
  EXPECT_EQ(told(again), std::vector<int>());
  EXPECT_TRUE(again.over());
  EXPECT_EQ(again.updates(), 3);

  Admission sums({.workers = 3, .quorum = 3});
  sums.begin_round(3);
  EXPECT_EQ(told(sums).size(), 3u);
  sums.arrived(0);
  sums.arrived(1);
  EXPECT_TRUE(sums.lost(2)) << "the others' sum is complete now";
  EXPECT_EQ(sums.quorum(), 2);
  EXPECT_EQ(sums.decide(), (std::vector{0, 1}));
}

}  // namespace
}  // namespace lockstep::app
