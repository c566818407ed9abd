#include "app/agree/servers/replay.hpp"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/agree/servers/admission.hpp"
#include "comm/session/mpi_session.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

using testing::HasSubstr;

/// Two workers; after 10 updates come those of ranks 0, 1, 1, 0: the last of weights that two updates have changed.
Replay four_updates() {
  return Replay({.head = {.first = 10, .workers = 2},
                 .updates = {{{.worker = 0, .late = 0}},
                             {{.worker = 1, .late = 1}},
                             {{.worker = 1, .late = 0}},
                             {{.worker = 0, .late = 2}}},
                 .round_ends = {12, 14}},
                0);
}

/// Asks for weights and gets them.
std::int64_t read(Replay& replay, int worker, std::int64_t made) {
  const std::int64_t version = replay.wants(worker, made);
  replay.has_read(worker);
  return version;
}

TEST(ReplayTest, AnUpdateWaitsForItsGradientAndForAllThatReadTheWeightsBeforeIt) {
  Replay replay = four_updates();
  EXPECT_EQ(read(replay, 0, 10), 10);
  replay.brought(0);
  EXPECT_EQ(replay.next(10), std::nullopt) << "rank 1 has not read version 10";
  EXPECT_EQ(replay.wants(1, 10), 10);
  EXPECT_EQ(replay.next(10), std::nullopt) << "it wants to, and has not";
  replay.has_read(1);
  EXPECT_EQ(replay.next(10), 0);
  EXPECT_EQ(replay.next(11), std::nullopt) << "rank 1's gradient is not here";
  replay.brought(1);
  EXPECT_EQ(replay.next(11), std::nullopt) << "rank 0 has not read version 11";
  EXPECT_EQ(read(replay, 0, 11), 11);
  EXPECT_EQ(replay.next(11), 1);
  replay.brought(0);
  EXPECT_EQ(replay.next(12), std::nullopt) << "rank 0's is the one after the next";
  EXPECT_EQ(read(replay, 1, 12), 12);
  replay.brought(1);
  EXPECT_EQ(replay.next(12), 1);
  EXPECT_EQ(replay.next(13), 0);
  EXPECT_EQ(replay.next(14), std::nullopt);
}

TEST(ReplayTest, WeightsThatTheRecordDoesNotKnowOrThatAreGoneAreAnError) {
  Replay replay = four_updates();
  const auto refusal = [&](int worker, std::int64_t made) -> std::string {
    return test::message_of<comm::PeerError>([&] { replay.wants(worker, made); });
  };
  EXPECT_THAT(refusal(1, 11), HasSubstr("rank 1 is to read the weights of update 10, and 11 are made"));
  EXPECT_THAT(refusal(1, 13), HasSubstr("the record of server 0 knows no further gradient of rank 1"));
}

TEST(ReplayTest, RoundsEndWhereTheyDidAndTheRecordDecidesWhoBegins) {
  const Replay replay = four_updates();
  EXPECT_EQ(replay.round_end(10), 12);
  EXPECT_EQ(replay.round_end(12), 14);
  Admission admission({.workers = 2, .staleness = 0, .updates = 10});
  admission.begin_round(100, &replay);
  admission.drain();  // has no effect
  const auto told = [&] {
    std::vector<std::pair<int, bool>> words;
    while (const auto word = admission.next()) words.emplace_back(word->worker, word->goes_on);
    return words;
  };
  using Words = std::vector<std::pair<int, bool>>;
  EXPECT_EQ(told(), (Words{{0, true}, {1, true}}));
  admission.arrived(0);
  EXPECT_EQ(told(), (Words{{0, false}})) << "its next gradient is one of the next round";
  admission.arrived(1);
  EXPECT_EQ(told(), (Words{{1, false}}));
  EXPECT_TRUE(admission.over());
  admission.begin_round(100, &replay);
  EXPECT_EQ(told(), (Words{{0, true}, {1, true}}));
}

TEST(ReplayTest, ASumIsMadeOfTheRecordedGradients) {
  const Replay replay({.head = {.first = 0, .workers = 3, .sums = 1},
                       .updates = {{{.worker = 2, .late = 0}}, {{.worker = 0, .late = 1}, {.worker = 1, .late = 1}}},
                       .round_ends = {2}},
                      0);
  Admission admission({.workers = 3, .quorum = 2});
  admission.begin_round(100, &replay);
  EXPECT_EQ(admission.quorum(), 1);
  const auto word = admission.next();
  ASSERT_TRUE(word.has_value());
  EXPECT_EQ(word->worker, 2);
  EXPECT_EQ(admission.next(), std::nullopt) << "the others' gradients are of the next sum";
}

}  // namespace
}  // namespace lockstep::app
