#include "app/plan/host_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

MemoryView rank_on(const std::string& host, std::uint64_t arenas, std::uint64_t free) {
  return {.host = host,
          .wanted = {.arenas = arenas, .snapshot = 0, .input = 0, .program = 0},
          .host_free = free,
          .host_bytes = 24 * kGiB,
          .group = ""};
}

TEST(HostMemory, OfAHostIsSharedByItsRanksAndNobodyElse) {
  std::vector<MemoryView> ranks{rank_on("a", 6 * kGiB, 20 * kGiB), rank_on("a", 6 * kGiB, 19 * kGiB),
                                rank_on("b", 18 * kGiB, 20 * kGiB)};
  EXPECT_EQ(host_memory_complaint(ranks), "");
  ranks[1].wanted.snapshot = 8 * kGiB;
  EXPECT_THAT(host_memory_complaint(ranks),
              AllOf(HasSubstr("the 2 ranks on a want 20.0 GiB of memory, and the host has 19.0 GiB free of 24.0 GiB"),
                    HasSubstr("one of them: 6.0 GiB for the network, 8.0 GiB for checkpoints)")));
}

TEST(HostMemory, CountsEveryKind) {
  for (auto kind : {&HostMemoryPlan::arenas, &HostMemoryPlan::snapshot, &HostMemoryPlan::input,
                    &HostMemoryPlan::page_tables, &HostMemoryPlan::program}) {
    std::vector<MemoryView> ranks{rank_on("a", 10 * kGiB, 20 * kGiB)};
    ranks[0].wanted.*kind = 21 * kGiB;
    EXPECT_THAT(host_memory_complaint(ranks), HasSubstr("one rank wants"));
  }
}

TEST(HostMemory, OfAControlGroupIsLessThanThatOfItsHost) {
  std::vector<MemoryView> ranks(2, rank_on("a", 6 * kGiB, 20 * kGiB));
  for (MemoryView& rank : ranks) {
    rank.group = "/slurm/job 7";
    rank.group_limit = 12 * kGiB;
    rank.group_free = 11 * kGiB;
  }
  EXPECT_THAT(
      host_memory_complaint(ranks),
      HasSubstr("want 12.0 GiB of memory, and the control group /slurm/job 7 on a has 11.0 GiB free of 12.0 GiB "
                "(Slurm: --mem)"));
  ranks[1].host = "b";  // the same name on another host is another group
  EXPECT_EQ(host_memory_complaint(ranks), "");
}

TEST(HostMemory, OfAnAddressSpaceIsAProcessesOwn) {
  std::vector<MemoryView> ranks(2, rank_on("a", 6 * kGiB, 20 * kGiB));
  ranks[1].address_space = 5 * kGiB;
  EXPECT_THAT(host_memory_complaint(ranks),
              HasSubstr("one rank wants 6.0 GiB of memory, and may address no more than 5.0 GiB (raise `ulimit -v`)"));
}

TEST(HostMemory, ThatNobodyKnowsIsNoReason) {
  std::vector<MemoryView> ranks{rank_on("a", 1000 * kGiB, MemoryView::kUnknown)};
  EXPECT_EQ(host_memory_complaint(ranks), "");
}

TEST(HostMemory, IsLookedAtHere) {
  comm::SerialCommunicator alone;
  EXPECT_NO_THROW(require_host_memory(alone, {.arenas = 1 << 20}));
  EXPECT_THROW(require_host_memory(alone, {.arenas = std::uint64_t{1} << 60}), comm::ConsensusError);
}

TEST(HostMemory, OfTrainingHasActivationsBatchesAndTheCopyOfRankZero) {
  const model::MemoryPlan plan{
      .parameters = 1, .gradients = 2, .optimizer = 3, .average = 4, .activations = 5, .input = 6, .snapshot = 7};
  const Workload workload;  // without data: a benchmark's
  const HostMemoryPlan first = training_memory({}, plan, workload, 0), other = training_memory({}, plan, workload, 1);
  EXPECT_EQ(first.arenas, 21u);
  EXPECT_EQ(first.snapshot, 7u);
  EXPECT_EQ(other.snapshot, 0u);
  Place gpu;
  gpu.gpu = model::Device{};
  const HostMemoryPlan beside_gpu = training_memory(gpu, plan, workload, 0);
  EXPECT_EQ(beside_gpu.arenas, 0u);
  EXPECT_EQ(beside_gpu.snapshot, 7u);
}

TEST(HostMemory, OfTrainingHasThePageTablesOfAllGradientsThatARankMaps) {
  const model::MemoryPlan plan{.gradients = std::size_t{1} << 30};
  EXPECT_EQ(training_memory({}, plan, {}, 1, 64).page_tables, std::uint64_t{128} << 20);
  EXPECT_THAT(describe(training_memory({}, plan, {}, 1, 64)), HasSubstr("128.0 MiB for page tables"));
  Place gpu;
  gpu.gpu = model::Device{};
  EXPECT_EQ(training_memory(gpu, plan, {}, 1, 64).page_tables, 0u);
}

}  // namespace
}  // namespace lockstep::app
