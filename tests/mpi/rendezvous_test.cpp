#include "comm/session/rendezvous.hpp"

#include <array>

#include <gmock/gmock.h>

#include "support/message_of.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

TEST(Rendezvous, EverybodyHearsEverybody) {
  const std::vector<int> all = exchange(session(), 100 + session().rank(), 10);
  for (int rank = 0; rank < session().size(); ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], 100 + rank);
}

TEST(Session, StartsMpiOncePerProcess) {
  int argc = 0;
  char** argv = nullptr;
  EXPECT_THROW(MpiSession(argc, argv), PeerError);
}

TEST(Rendezvous, ARankWithMoreToSayRunsAnotherVersion) {
  if (session().size() != 2) GTEST_SKIP() << "of two ranks each hears the other, and nothing is left under way";
  const auto introduce = [] {
    if (session().rank() == 0) return exchange(session(), 7, 10).size();
    return exchange(session(), std::array{7, 8, 9}, 10).size();
  };
  EXPECT_THAT(test::message_of<PeerError>([&] { introduce(); }),
              testing::HasSubstr(session().rank() == 0 ? "rank 1 introduces itself in another way"
                                                       : "rank 0 introduces itself in another way"));
}

}  // namespace
}  // namespace lockstep::comm
