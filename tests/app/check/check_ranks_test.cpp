#include "app/check/check_ranks.hpp"

#include "app/check/synthetic_facts.hpp"

namespace lockstep::app {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

TEST(CheckRanks, AllIsWell) {
  const std::vector<RankFacts> facts = healthy(3, 4);
  EXPECT_THAT(judge_names(facts), IsEmpty());
  EXPECT_THAT(judge_machines(facts), IsEmpty());
  EXPECT_THAT(judge_program(facts), IsEmpty());
  EXPECT_THAT(judge_processors(facts), IsEmpty());
  EXPECT_THAT(judge_devices(facts), IsEmpty());
  EXPECT_THAT(judge_environment(facts), IsEmpty());
  EXPECT_THAT(judge_limits(facts, {.open_files = 1024, .file_size = 1, .gpus = true}), IsEmpty());
  EXPECT_THAT(judge_shared_memory(facts, true), IsEmpty());
}

TEST(CheckRanks, HostsAreToldApartByNameAndMachine) {
  std::vector<RankFacts> facts = healthy(2, 2);
  EXPECT_THAT(names_of(facts), ElementsAre("node0", "node1"));
  EXPECT_THAT(hosts_of(facts)[1].ranks, ElementsAre(2, 3));
  facts[3].host = "node0";
  facts[3].machine = 7;
  EXPECT_THAT(names_of(facts), ElementsAre("node0 (of rank 0)", "node1", "node0 (of rank 3)"));
  EXPECT_THAT(judge_names(facts), ElementsAre(AllOf(warning(), what(StartsWith("2 machines or containers")),
                                                    where(HasSubstr("ranks 0,3")))));
}

TEST(CheckRanks, OneMachineUnderTwoNames) {
  std::vector<RankFacts> facts = healthy(3);
  facts[2].machine = facts[0].machine;
  EXPECT_THAT(judge_machines(facts), ElementsAre(AllOf(warning(), where("node0 and node2"))));
  for (RankFacts& rank : facts) rank.machine = 0;  // not known
  EXPECT_THAT(judge_machines(facts), IsEmpty());
}

TEST(CheckRanks, AnotherProgramOnOneHost) {
  std::vector<RankFacts> facts = healthy(3, 2);
  facts[2].program = facts[3].program = "lockstep 0.9 def";
  EXPECT_THAT(judge_program(facts),
              ElementsAre(AllOf(error(), what(HasSubstr("program is not the same")), blames({"node1"}),
                                where("lockstep 1.0 abc on ranks 0-1,4-5 (node0 and node2); "
                                      "lockstep 0.9 def on ranks 2-3 (node1)"))));
}

TEST(CheckRanks, WhereHalfSaysOtherwiseNobodyIsAtFault) {
  std::vector<RankFacts> facts = healthy(2);
  facts[1].mpi = "Open MPI v5";
  EXPECT_THAT(judge_program(facts), ElementsAre(AllOf(error(), what(HasSubstr("MPI library")), blames({}))));
}

TEST(CheckRanks, ABusyMachineIsNamed) {
  std::vector<RankFacts> facts = healthy(2, 2);
  for (RankFacts& f : facts) f.processors = 2, f.load_percent = 150;
  EXPECT_THAT(judge_load(facts), IsEmpty());
  EXPECT_EQ(describe_load(facts), "1.5 on 2 processors of node0, the busiest");
  facts[2].load_percent = facts[3].load_percent = 1000;
  EXPECT_THAT(judge_load(facts), ElementsAre(AllOf(warning(), what(HasSubstr("10.0 processes")), blames({"node1"}))));
  EXPECT_EQ(describe_load(facts), "10.0 on 2 processors of node1, the busiest");
  EXPECT_THAT(format_verdict(std::vector<Subject>{{.name = "load", .summary = "", .findings = judge_load(facts)}},
                             std::vector<std::string>{"node0"}),
              testing::EndsWith("BUSY, with 1 warning"));
}

TEST(CheckRanks, OtherProcessorsAndDevices) {
  std::vector<RankFacts> facts = healthy(3);
  facts[2].processor = "Another";
  facts[1].device = "NVIDIA A100";
  EXPECT_THAT(judge_processors(facts), ElementsAre(AllOf(warning(), blames({"node2"}))));
  EXPECT_THAT(judge_devices(facts), ElementsAre(AllOf(warning(), where(HasSubstr("NVIDIA A100 on rank 1 (node1)")))));
}

TEST(CheckRanks, VariablesThatDiffer) {
  std::vector<RankFacts> facts = healthy(3);
  facts[1].environment = {"NCCL_DEBUG=INFO", "OMP_NUM_THREADS=4"};
  EXPECT_THAT(judge_environment(facts),
              ElementsAre(AllOf(warning(), what("NCCL_DEBUG differs between ranks"), blames({}),
                                where("not set on ranks 0,2 (node0 and node2); \"INFO\" on rank 1 (node1)")),
                          AllOf(warning(), what("OMP_NUM_THREADS differs between ranks"),
                                remedy(HasSubstr("mpirun -x OMP_NUM_THREADS")))));
}

TEST(CheckRanks, TheLaunchersOwnVariablesDoNotCount) {
  for (const char* name : {"OMPI_MCA_btl", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "UCX_TLS"}) {
    EXPECT_TRUE(is_watched_variable(name)) << name;
  }
  for (const char* name : {"OMPI_MCA_ess_base_vpid", "OMPI_MCA_orte_hnp_uri", "OMPI_COMM_WORLD_RANK", "PATH", "HOME",
                           "CUDA_VISIBLE_DEVICES", "PMIX_RANK", "SLURM_PROCID"}) {
    EXPECT_FALSE(is_watched_variable(name)) << name;
  }
}

TEST(CheckRanks, LimitsThatAreTooLow) {
  std::vector<RankFacts> facts = healthy(2, 2);
  facts[3].open_files = 200;
  facts[2].address_space = kGiB / 2;
  facts[0].file_size = 1000;
  facts[1].file_size = 1;  // writes no checkpoints
  EXPECT_THAT(judge_limits(facts, {.open_files = 300, .file_size = 2000, .gpus = false}),
              ElementsAre(AllOf(error(), what("a rank needs 300 open files and may have 200"), where("rank 3 (node1)"),
                                remedy(HasSubstr("ulimit -n"))),
                          AllOf(error(), what(HasSubstr("may address 512.0 MiB")), remedy(HasSubstr("ulimit -v"))),
                          AllOf(error(), where("rank 0 (node0)"), remedy(HasSubstr("ulimit -f")))));
}

TEST(CheckRanks, LockedMemoryMattersToDevicesAlone) {
  std::vector<RankFacts> facts = healthy(2);
  facts[1].locked_bytes = 65536;
  EXPECT_THAT(judge_limits(facts, {}), IsEmpty());
  EXPECT_THAT(judge_limits(facts, {.open_files = 0, .file_size = 0, .gpus = true}),
              ElementsAre(AllOf(warning(), where("rank 1 (node1)"), remedy(HasSubstr("ulimit -l")))));
  facts[1].fabric = {{.name = "mlx5_0/1", .state = "ACTIVE", .rate = "200 Gb/sec"}};
  EXPECT_THAT(judge_limits(facts, {}), ElementsAre(warning()));
}

TEST(CheckRanks, LittleLeftInSharedMemory) {
  std::vector<RankFacts> facts = healthy(2, 4);
  for (RankFacts& rank : facts) rank.shared_memory_free = std::uint64_t{64} << 20;  // the default of containers
  EXPECT_THAT(judge_shared_memory(facts, false), IsEmpty());
  EXPECT_THAT(judge_shared_memory(facts, true),
              ElementsAre(AllOf(warning(), where("node0"), remedy(HasSubstr("--shm-size"))), where("node1")));
  EXPECT_THAT(judge_shared_memory(healthy(2), true), IsEmpty());
}

TEST(CheckFacts, AreReadAsTheyWereWritten) {
  RankFacts facts = healthy(2)[1];
  facts.environment = {"NCCL_A=a b", "OMP_B=line\nbreak\\n"};
  facts.fabric = {{.name = "mlx5_0/1", .state = "ACTIVE", .rate = "200 Gb/sec (4X HDR)"}};
  facts.addresses[1].is_virtual = true;
  facts.group = "/sys/fs/cgroup/job";
  facts.data.error = "two\nlines";
  facts.data.damage = "shard-00001.h5";
  const RankFacts back = facts_from(to_text(facts));
  EXPECT_EQ(to_text(back), to_text(facts));
  EXPECT_EQ(back.environment, facts.environment);
  EXPECT_EQ(back.addresses[1].address, "10.0.0.2");
  EXPECT_TRUE(back.addresses[1].is_virtual);
  EXPECT_TRUE(back.addresses[0].loopback);
  EXPECT_EQ(back.fabric[0].rate, "200 Gb/sec (4X HDR)");
  EXPECT_EQ(back.data.error, "two\nlines");
  EXPECT_TRUE(back.data.opened);
  EXPECT_EQ(back.memory_available, facts.memory_available);
}

TEST(CheckFacts, OfAnotherProgramAreReadAsFarAsTheyGo) {
  const RankFacts facts = facts_from("host node7\nnew-thing 5\nprogram lockstep 9.9\nmemory_total none\n\n");
  EXPECT_EQ(facts.host, "node7");
  EXPECT_EQ(facts.program, "lockstep 9.9");
  EXPECT_EQ(facts.memory_total, 0u);
  EXPECT_EQ(facts.open_files, kNoLimit);
}

TEST(CheckFacts, ThisProcessHasSome) {
  const RankFacts facts = own_facts(3, "this program");
  EXPECT_EQ(facts.rank, 3);
  EXPECT_NE(facts.host, "");
  EXPECT_GT(facts.memory_total, 0u);
  EXPECT_GE(facts.memory_total, facts.memory_available);
  EXPECT_GT(facts.open_files, 10u);
  EXPECT_THAT(facts.addresses, testing::Not(IsEmpty()));
}

}  // namespace
}  // namespace lockstep::app
