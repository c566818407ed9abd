#include "comm/survey/network_probe.hpp"

#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/messages.hpp"
#include "comm/survey/pair_messages.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

/// Every rank represents a host of its own.
std::vector<int> everybody() {
  std::vector<int> ranks(static_cast<std::size_t>(session().size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class NetworkProbe : public OverEveryTransport {};
LOCKSTEP_OVER_EVERY_TRANSPORT(NetworkProbe);

TEST_P(NetworkProbe, MeasuresAllPairsAndTellsAllRanks) {
  const int hosts = session().size();
  const ProbeOptions options{.seconds = 2};
  const std::vector<PairFigures> pairs =
      probe_network(session(), *communicator_, everybody(), plan_rounds(hosts, most_rounds(options), 1), options);
  ASSERT_EQ(pairs.size(), static_cast<std::size_t>(hosts * (hosts - 1) / 2));
  std::string text;
  for (const PairFigures& pair : pairs) {
    EXPECT_EQ(pair.error, "");
    EXPECT_GT(pair.latency, 0);
    EXPECT_LT(pair.latency, 1);
    EXPECT_GT(pair.forward, 1e4);
    EXPECT_GT(pair.backward, 1e4);
    EXPECT_EQ(pair.bandwidth(), std::min(pair.forward, pair.backward));
    text += std::to_string(pair.pair.first) + std::to_string(pair.pair.second) + std::to_string(pair.latency) +
            std::to_string(pair.forward);
  }
  for (const std::string& other : all_gather_text(*communicator_, text)) EXPECT_EQ(other, text);
}

TEST_P(NetworkProbe, RanksThatSpeakForNobodyWait) {
  if (session().size() < 3) return;
  const std::vector<int> speakers{2, 0};  // the first host's is rank 2
  const std::vector<Round> rounds{{{0, 1}}};
  const std::vector<PairFigures> pairs = probe_network(session(), *communicator_, speakers, rounds, {.seconds = 0.1});
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].error, "");
  EXPECT_EQ(pairs[0].pair, (HostPair{0, 1}));
}

TEST_P(NetworkProbe, ComparesClocks) {
  const std::vector<ClockOffset> offsets = measure_clocks(session(), *communicator_, everybody(), 10);
  ASSERT_EQ(offsets.size(), static_cast<std::size_t>(session().size()));
  EXPECT_EQ(offsets[0].seconds, 0);
  for (const ClockOffset& offset : offsets) {
    EXPECT_EQ(offset.error, "");
    EXPECT_LE(std::abs(offset.seconds), offset.uncertainty + 1e-3) << "one machine has one clock";
    EXPECT_LT(offset.uncertainty, 5);
  }
}

TEST_P(NetworkProbe, APairThatStandsStillIsNamedWithinTheDeadline) {
  if (session().size() < 2) return;
  // Rank 1 comes late to the pair: rank 0 gives up on it, and then rank 1 does, too.
  std::string error;
  if (session().rank() < 2) {
    PairMessages line(session(), 1 - session().rank(), 0.3);
    try {
      line.receive<int>();  // nobody sends
    } catch (const PeerError& failure) {
      error = failure.what();
    }
    EXPECT_THAT(error, testing::HasSubstr("rank " + std::to_string(1 - session().rank()) +
                                          " do not reach each other: nothing has come for 0.3 s"));
  }
  communicator_->barrier();
  communicator_->wait();
  // The abandoned receives are still posted: they take the next message between the two.
  if (session().rank() < 2) {
    PairMessages line(session(), 1 - session().rank(), 10);
    line.send(1);
  }
  communicator_->barrier();
  communicator_->wait();
}

}  // namespace
}  // namespace lockstep::comm
