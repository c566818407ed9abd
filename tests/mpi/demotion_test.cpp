/// Hosts whose ranks cannot share memory, beside hosts whose ranks can.
#include <cerrno>
#include <memory>
#include <memory_resource>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/consensus.hpp"
#include "world.hpp"

namespace {

bool shared_memory_is_forbidden = false;

}  // namespace

// Replaces the library's own, for the whole program.
extern "C" int memfd_create(const char* name, unsigned flags) noexcept {
  if (!shared_memory_is_forbidden) return static_cast<int>(syscall(SYS_memfd_create, name, flags));
  errno = EPERM;
  return -1;
}

namespace lockstep::comm {
namespace {

class Demotion : public testing::Test {
 protected:
  Demotion() { shared_memory_is_forbidden = session().rank() == 0; }
  ~Demotion() override { shared_memory_is_forbidden = false; }

  static void expect_sums(Communicator& communicator) {
    const auto memory = communicator.reduction_memory(400'000);
    const std::span<float> data(static_cast<float*>(memory->allocate(400'000, 256)), 100'000);
    for (const std::size_t count : {std::size_t{10}, std::size_t{5'000}, data.size()}) {
      const std::span<float> part = data.first(count);
      std::iota(part.begin(), part.end(), static_cast<float>(communicator.rank()));
      communicator.all_reduce(part);
      communicator.wait();
      const int size = communicator.size();
      for (std::size_t i = 0; i < count; i += 7) {
        ASSERT_EQ(part[i], static_cast<float>(size * static_cast<int>(i) + size * (size - 1) / 2)) << count;
      }
    }
  }
};

TEST_F(Demotion, AHostThatCannotShareLeavesTheOthersAsTheyAre) {
  if (session().size() < 4) GTEST_SKIP() << "of two hosts with two ranks each";
  const auto communicator = communicator_over({Transport::automatic, "", {0, 0, 1, 1, 1}});
  EXPECT_EQ(communicator->transport(), Transport::two_level);
  EXPECT_EQ(communicator->ring_length(), 3) << "ranks 0 and 1 alone, the others together";
  EXPECT_THAT(communicator->transport_note(),
              testing::AllOf(testing::HasSubstr("some ranks share a host but not its memory (rank 0"),
                             testing::HasSubstr("each of them is a host of its own")));
  expect_sums(*communicator);
}

TEST_F(Demotion, WhereNobodyElseSharesItIsTheRing) {
  if (session().size() < 2) GTEST_SKIP() << "a world of one";
  const auto communicator = communicator_over({Transport::automatic, ""});
  EXPECT_EQ(communicator->transport(), Transport::ring);
  EXPECT_THAT(communicator->transport_note(), testing::HasSubstr("they talk through the ring, which is slower"));
  expect_sums(*communicator);
  EXPECT_THROW(communicator_over({Transport::shared_memory, ""}), ConsensusError);
}

TEST(Namespaces, RanksOfOneHostShareMemoryWhateverUserNamespaceTheyAreIn) {
  const auto communicator = communicator_over({Transport::automatic, ""});
  EXPECT_EQ(communicator->transport(), session().size() == 1 ? Transport::serial : Transport::shared_memory);
  EXPECT_EQ(communicator->transport_note(), "");
  EXPECT_NE(communicator->reduction_memory(1 << 20), nullptr);
}

}  // namespace
}  // namespace lockstep::comm
