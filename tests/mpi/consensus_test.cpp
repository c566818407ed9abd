#include "comm/consensus.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/messages.hpp"
#include "comm/survey/topology.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class Consensus : public OverEveryTransport {
 protected:
  int rank() const { return communicator_->rank(); }
  int size() const { return communicator_->size(); }

  /// The error that all ranks throw; checks that all throw the same.
  std::string agreed(const std::function<void()>& call) {
    std::string text = "no ConsensusError";
    try {
      call();
    } catch (const ConsensusError& error) {
      text = error.what();
    }
    for (const std::string& other : all_gather_text(*communicator_, text)) EXPECT_EQ(other, text);
    return text;
  }

  std::string all_ranks() const {
    return size() == 1 ? "" : size() == 2 ? "ranks 0-1: " : "ranks 0-" + std::to_string(size() - 1) + ": ";
  }
};

TEST_P(Consensus, EqualItemsPass) {
  const std::string longer(100'000, 'x');
  require_equal(*communicator_, std::vector<FingerprintItem>{{"program", "1.0"}, {"configuration", longer}});
  require_equal(*communicator_, {});
}

TEST_P(Consensus, TheDifferingItemIsNamedWithRanksAndValues) {
  if (size() == 1) return;  // one rank agrees with itself
  const std::string text = agreed([&] {
    require_equal(*communicator_,
                  std::vector<FingerprintItem>{
                      {"program", "1.0"}, {"dataset manifest", rank() == 1 ? "b" : "a"}, {"number of buckets", "3"}});
  });
  EXPECT_THAT(text, AllOf(HasSubstr("the dataset manifest differs between ranks: "), HasSubstr("rank 1 has \"b\"")));
  EXPECT_THAT(text, HasSubstr(size() == 2   ? "rank 0 has \"a\""
                              : size() == 3 ? "ranks 0,2 have \"a\""
                              : size() == 4 ? "ranks 0,2-3 have \"a\""
                                            : "ranks 0,2-4 have \"a\""));
  EXPECT_THAT(text, testing::Not(HasSubstr("program")));
}

TEST_P(Consensus, OfLongValuesTheDifferingLineIsShown) {
  if (size() == 1) return;
  std::string configuration;
  for (int line = 0; line < 200; ++line) configuration += "option-" + std::to_string(line) + " = value\n";
  configuration += "batch = " + std::to_string(rank() == 0 ? 128 : 64) + "\nlast = 1\n";
  const std::string text = agreed([&] {
    require_equal(*communicator_, std::vector<FingerprintItem>{{"configuration", configuration}});
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("\"batch = 128\""), HasSubstr("\"batch = 64\""), testing::Not(HasSubstr("option-10 "))));
}

TEST_P(Consensus, DifferentItemsAreADifferenceToo) {
  if (size() == 1) return;
  std::vector<FingerprintItem> items{{"program", "1.0"}};
  if (rank() == 0) items.push_back({"threads", "4"});
  EXPECT_THAT(agreed([&] { require_equal(*communicator_, items); }), HasSubstr("the list of things compared differs"));
}

TEST_P(Consensus, WorkThatSucceedsEverywhereIsSilent) {
  int calls = 0;
  all_succeed(*communicator_, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST_P(Consensus, AnErrorOnOneRankIsKnownToAll) {
  const int culprit = size() - 1;
  const std::string text = agreed([&] {
    all_succeed(*communicator_, [&] {
      if (rank() == culprit) throw std::runtime_error("disk full");
    });
  });
  EXPECT_EQ(text, size() == 1 ? "disk full" : "rank " + std::to_string(culprit) + ": disk full");
}

TEST_P(Consensus, TheSameErrorOnAllRanksIsSaidOnce) {
  EXPECT_EQ(agreed([&] { all_succeed(*communicator_, [] { throw std::runtime_error("no such folder"); }); }),
            all_ranks() + "no such folder");
}

TEST_P(Consensus, DifferentErrorsAreSaidWithTheirRanks) {
  if (size() < 4) return;  // needs four ranks
  const std::string text = agreed([&] {
    all_succeed(*communicator_, [&] {
      if (rank() == 0 || rank() == 2) throw std::runtime_error("first");
      if (rank() == 3) throw std::invalid_argument("second");
    });
  });
  EXPECT_EQ(text, "ranks 0,2: first\nrank 3: second");
}

TEST_P(Consensus, ErrorsWithoutTextOrTypeCount) {
  EXPECT_THAT(agreed([&] { all_succeed(*communicator_, [] { throw std::runtime_error(""); }); }),
              HasSubstr("an error"));
  EXPECT_THAT(agreed([&] { all_succeed(*communicator_, [] { throw 42; }); }), HasSubstr("an error"));
}

TEST_P(Consensus, WorkThatCommunicatesIsRefused) {
  EXPECT_THAT(agreed([&] { all_succeed(*communicator_, [&] { communicator_->barrier(); }); }),
              HasSubstr("long operation"));
}

TEST_P(Consensus, TextsAreGatheredOnce) {
  EXPECT_THAT(gather_distinct(*communicator_, ""), ElementsAre());
  const std::vector<RankText> same = gather_distinct(*communicator_, "same");
  ASSERT_EQ(same.size(), 1u);
  EXPECT_EQ(same[0].ranks.size(), static_cast<std::size_t>(size()));
  EXPECT_TRUE(same[0].all);
  EXPECT_EQ(with_ranks(same[0]), all_ranks() + "same");
  EXPECT_EQ(with_ranks_unless_all(same[0]), "same");
  if (size() < 2) return;
  const std::vector<RankText> one = gather_distinct(*communicator_, rank() == 1 ? "mine" : "");
  EXPECT_THAT(one, ElementsAre(RankText{.ranks = {1}, .text = "mine"}));
  EXPECT_EQ(with_ranks_unless_all(one[0]), "rank 1: mine");
}

TEST_P(Consensus, TheTopologyIsTheSameOnAllRanks) {
  const std::vector<RankPlace> places =
      gather_topology(*communicator_, "cpu of rank " + std::to_string(rank()), "number " + std::to_string(rank()));
  ASSERT_EQ(places.size(), static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    const RankPlace& place = places[static_cast<std::size_t>(r)];
    EXPECT_EQ(place.rank, r);
    EXPECT_EQ(place.local_rank, r);
    EXPECT_EQ(place.host, session().host());
    EXPECT_EQ(place.device, "cpu of rank " + std::to_string(r));
    EXPECT_EQ(place.identity, "number " + std::to_string(r));
    EXPECT_GT(place.pid, 0);
    EXPECT_NE(place.cores, "");
    EXPECT_GT(place.host_cores, 0);
  }
  const std::string table = format_topology(places);
  for (const std::string& other : all_gather_text(*communicator_, table)) EXPECT_EQ(other, table);
}

LOCKSTEP_OVER_EVERY_TRANSPORT(Consensus);

}  // namespace
}  // namespace lockstep::comm
