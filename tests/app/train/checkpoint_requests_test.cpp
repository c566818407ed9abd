#include "app/train/checkpoint_requests.hpp"

#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

TEST(CheckpointRequests, OneSignalToAllRanksIsOneRequest) {
  CheckpointRequests first, second;
  first.came(1, 100);
  EXPECT_TRUE(first.wanted());
  EXPECT_FALSE(second.wanted());
  first.answered();
  second.answered();
  EXPECT_FALSE(first.wanted());
  second.came(1, 0.01);
  EXPECT_FALSE(second.wanted()) << "it has been answered";
}

TEST(CheckpointRequests, WhatComesWhileACheckpointIsUnderWayIsARequestOfItsOwn) {
  CheckpointRequests first, second;
  first.came(1, 100);
  second.came(1, 100);
  first.answered();
  second.answered();
  first.came(1, 0.01);
  EXPECT_TRUE(first.wanted());
  second.came(1, 0.01);
  EXPECT_TRUE(second.wanted());
  first.answered();
  second.answered();
  first.came(0, 0.01);
  EXPECT_FALSE(first.wanted());
}

TEST(CheckpointRequests, AfterTheEchoAndAfterASecondASignalIsARequest) {
  CheckpointRequests rank;
  rank.answered();
  rank.came(2, 0.01);
  EXPECT_TRUE(rank.wanted()) << "an echo, and another";
  CheckpointRequests late;
  late.answered();
  late.came(1, 1.5);
  EXPECT_TRUE(late.wanted());
}

}  // namespace
}  // namespace lockstep::app
