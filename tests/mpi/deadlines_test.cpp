/// Tests of the deadline that lose no rank; faults/ has the others.
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/consensus.hpp"
#include "comm/failure/failure_detector.hpp"
#include "comm/failure/urgency.hpp"
#include "support/message_of.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void sleep_seconds(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

std::string peer_error(const std::function<void()>& call) {
  return test::message_of<PeerError>([&] { call(); });
}

class LongOperations : public testing::TestWithParam<TransportCase> {};

TEST_P(LongOperations, PeersWaitPastTheDeadline) {
  const auto communicator = communicator_over(GetParam(), 0.4);
  {
    const LongOperation operation(*communicator, "writing a checkpoint");
    if (communicator->rank() == 0) sleep_seconds(1.2);
  }
  communicator->barrier();
  communicator->wait();
  all_succeed(*communicator, [&] {
    if (communicator->rank() == communicator->size() - 1) sleep_seconds(1);
  });
}

TEST_P(LongOperations, AreNoPlaceForCollectives) {
  const auto communicator = communicator_over(GetParam());
  {
    const LongOperation outer(*communicator);
    { const LongOperation inner(*communicator); }
    EXPECT_THROW(communicator->barrier(), std::invalid_argument);
  }
  communicator->barrier();
  communicator->wait();
}

TEST_P(LongOperations, AreSeenByALookAtThePeers) {
  const auto communicator = communicator_over(GetParam(), 2);
  communicator->barrier();
  communicator->wait();
  if (GetParam().transport ==
      Transport::shared_memory) {  // elsewhere a heartbeat from the preceding test may still arrive
    EXPECT_FALSE(communicator->check_peers());
  }
  communicator->barrier();
  communicator->wait();
  if (communicator->rank() == 0) {
    const LongOperation operation(*communicator, "writing a checkpoint");
    EXPECT_THROW(communicator->check_peers(), std::invalid_argument);
    sleep_seconds(1);  // heartbeats come every half second
  } else {
    bool busy = false;
    for (int i = 0; i < 20 && !busy; ++i) {
      busy = communicator->check_peers();
      sleep_seconds(0.1);
    }
    EXPECT_TRUE(busy);
  }
  communicator->barrier();
  communicator->wait();
}

TEST_P(LongOperations, ADeadlineIsWhatItWasSetTo) {
  const auto communicator = communicator_over(GetParam());
  EXPECT_THROW(communicator->set_deadline(0), std::invalid_argument);
  EXPECT_THROW(communicator->set_deadline(-1), std::invalid_argument);
  communicator->set_deadline(30);
  EXPECT_EQ(communicator->set_deadline(5), session().size() == 1 ? 5 : 30);  // alone there is nobody to wait for
  communicator->barrier();
  communicator->wait();
}

LOCKSTEP_OVER_EVERY_TRANSPORT(LongOperations);

TEST(SharedMemoryDeadline, NamesTheRankThatDoesNotCome) {
  if (session().size() == 1) return;  // nobody to wait for
  const auto communicator = communicator_over(Transport::shared_memory);
  communicator->set_deadline(0.5);
  communicator->note_activity("backward", 41 + communicator->rank());
  communicator->barrier();
  communicator->wait();
  if (communicator->rank() == 1) {
    sleep_seconds(1.5);
    communicator->barrier();  // every rank has been there
    return;
  }
  const std::string error = peer_error([&] { communicator->barrier(); });
  EXPECT_THAT(error, AllOf(HasSubstr("rank 1 (host " + session().host() + ", pid "),
                           HasSubstr("has not arrived at a barrier for 0.5 s; last seen in step 42: backward."),
                           HasSubstr("Ending the job.")));
}

/// Waits for that rank until the deadline, as all others do.
std::string verdict_of_all(int awaited) {
  const Urgency urgency;
  FailureDetector detector(session().state(), PeerTable(session().rank(), session().state().peers),
                           {.deadline_seconds = 1}, urgency);
  const auto together = communicator_over(Transport::ring);
  together->barrier();
  together->wait();
  detector.enter();
  if (awaited >= 0) detector.await(awaited);
  return peer_error([&] { detector.wait_until_done(Collective::all_reduce, [] { return Progress::none; }); });
}

TEST(LostMessages, NameTheRankThatTheyShouldHaveComeFrom) {
  if (session().size() == 1) return;  // nobody to wait for
  const int partner = (session().rank() + 2) % session().size();
  EXPECT_THAT(verdict_of_all(partner),
              AllOf(HasSubstr("has got no data from rank " + std::to_string(partner) + " (host "),
                    HasSubstr("in an all-reduce"), HasSubstr("although every rank answers")));
  EXPECT_THAT(verdict_of_all(-1), HasSubstr("has got no data from its peers in an all-reduce"));
}

TEST(SharedMemoryDivergence, IsSeenBeforeAnythingIsAdded) {
  if (session().size() == 1) return;  // nobody to differ from
  const bool first = session().rank() == 0;
  std::vector<float> data(1000, 1.0f);
  const auto attempt = [&](const std::function<void(Communicator&)>& call) {
    const auto communicator = communicator_over(Transport::shared_memory);
    const std::string error = peer_error([&] { call(*communicator); });
    EXPECT_THAT(error, AllOf(HasSubstr("the ranks have diverged: rank "), HasSubstr(" an all-reduce (")));
    EXPECT_EQ(data, std::vector<float>(1000, 1.0f));
  };
  attempt([&](Communicator& c) { first ? c.barrier() : c.all_reduce(data); });
  attempt([&](Communicator& c) { c.all_reduce(std::span(data).first(first ? 1000 : 999)); });
  attempt([&](Communicator& c) { c.all_reduce(std::span(data).first(first ? 100 : 99)); });
  attempt([&](Communicator& c) {
    const auto memory = c.reduction_memory(8000);
    auto* const common = static_cast<float*>(memory->allocate(8000, 64));
    c.all_reduce(std::span(common + (first ? 64 : 0), 1000));
    c.wait();
  });
  attempt([&](Communicator& c) {
    const auto memory = c.reduction_memory(4000);
    auto* const common = static_cast<float*>(memory->allocate(4000, 64));
    c.all_reduce(first ? std::span(common, 1000) : std::span<float>(data));
    c.wait();
  });
}

TEST(MakeCommunicator, RefusesADeadlineThatIsNone) {
  EXPECT_THROW(communicator_over(Transport::automatic, 0), std::invalid_argument);
  EXPECT_THROW(communicator_over(Transport::automatic, -1), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::comm
