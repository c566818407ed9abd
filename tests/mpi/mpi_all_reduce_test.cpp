/// The MPI library's sum as a benchmark calls it; tests/cli/bench_all_reduce.sh tests its report of a peer that never
/// comes.
#include "comm/survey/mpi_all_reduce.hpp"

#include <chrono>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/session/launcher.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

TEST(MpiAllReduceTest, AddsUp) {
  MpiAllReduce all_reduce(session(), 60);
  const int ranks = session().size();
  for (const std::size_t count : {0, 1, 2, 3, 5, 1000, 100'000}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = static_cast<float>(i % 1000) + 1000.0f * static_cast<float>(session().rank());
    }
    all_reduce.sum(data);
    for (std::size_t i = 0; i < count; ++i) {
      const float expected = static_cast<float>(i % 1000) * static_cast<float>(ranks) +
                             1000.0f * static_cast<float>(ranks * (ranks - 1) / 2);
      ASSERT_EQ(data[i], expected) << i << " of " << count;
    }
  }
}

TEST(MpiAllReduceTest, WaitsWithinTheDeadline) {
  MpiAllReduce all_reduce(session(), 20);
  if (session().rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  float one = 1;
  all_reduce.sum(std::span(&one, 1));
  EXPECT_EQ(one, static_cast<float>(session().size()));
}

TEST(MpiAllReduceTest, TheLibraryHasAName) {
  const std::string version = mpi_library_version();
  EXPECT_THAT(version, testing::ContainsRegex("MPI"));
  EXPECT_EQ(version.find_first_of(",\n\t"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::comm
