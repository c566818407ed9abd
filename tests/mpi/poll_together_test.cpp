#include "comm/failure/poll_together.hpp"

#include <chrono>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/consensus.hpp"
#include "comm/messages.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

using testing::HasSubstr;

class PollTogether : public OverEveryTransport {
 protected:
  int rank() const { return communicator_->rank(); }
  int last() const { return communicator_->size() - 1; }

  /// The error that all ranks threw, the same on each, within seconds.
  std::string agreed(double deadline, const std::function<bool()>& ready) {
    const auto start = std::chrono::steady_clock::now();
    std::string text = "no ConsensusError";
    try {
      poll_together(*communicator_, deadline, "the device", ready);
    } catch (const ConsensusError& error) {
      text = error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    for (const std::string& other : all_gather_text(*communicator_, text)) EXPECT_EQ(other, text);
    return text;
  }
};

TEST_P(PollTogether, WaitsForTheLast) {
  int polls = 0;
  const auto start = std::chrono::steady_clock::now();
  poll_together(*communicator_, 60, "the device", [&] {
    ++polls;
    return rank() != last() || std::chrono::steady_clock::now() - start > std::chrono::milliseconds(300);
  });
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
  EXPECT_GE(polls, 1);
  if (rank() != last()) {
    EXPECT_EQ(polls, 1);
  }
}

TEST_P(PollTogether, OfOneThatFailsEverybodyHearsAtOnce) {
  // The others would never be ready without it.
  const std::string text = agreed(60, [&]() -> bool {
    if (rank() == last()) throw std::runtime_error("no such device");
    return false;
  });
  EXPECT_EQ(text, last() == 0 ? "no such device" : "rank " + std::to_string(last()) + ": no such device");
}

TEST_P(PollTogether, AFailureAfterOthersAreReadyCounts) {
  int polls = 0;
  const std::string text = agreed(60, [&]() -> bool {
    if (rank() == last() && ++polls == 20) throw std::runtime_error("the link went down");
    return rank() != last();
  });
  EXPECT_THAT(text, HasSubstr("the link went down"));
}

TEST_P(PollTogether, EndsWithTheDeadline) {
  const std::string text = agreed(0.3, [&] { return rank() != last(); });
  EXPECT_THAT(text, HasSubstr("the device is not ready after 0."));
  EXPECT_TRUE(last() == 0 || text.starts_with("rank " + std::to_string(last()) + ": ")) << text;
}

LOCKSTEP_OVER_EVERY_TRANSPORT(PollTogether);

}  // namespace
}  // namespace lockstep::comm
