#include "app/check/check_storage.hpp"

#include <filesystem>
#include <fstream>

#include "app/check/synthetic_facts.hpp"
#include "io/io_test_support.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(CheckData, AllIsWell) { EXPECT_THAT(judge_data(healthy(3, 2)), IsEmpty()); }

TEST(CheckData, MissingOnOneHost) {
  std::vector<RankFacts> facts = healthy(3, 2);
  for (const std::size_t rank : {2u, 3u}) facts[rank].data = {.error = "cannot read data"};
  EXPECT_THAT(judge_data(facts), ElementsAre(AllOf(error(), what("the data cannot be used: cannot read data"),
                                                   where("ranks 2-3 (node1)"), blames({"node1"}))));
  for (RankFacts& rank : facts) rank.data = {.error = "cannot read data"};
  EXPECT_THAT(judge_data(facts), ElementsAre(AllOf(error(), where("all ranks"), blames({}))));
}

TEST(CheckData, OptionsThatDoNotGoWithIt) {
  std::vector<RankFacts> facts = healthy(2);
  for (RankFacts& rank : facts) {
    rank.data.opened = false;
    rank.data.misfit = "the warm-up is too long";
  }
  EXPECT_THAT(judge_data(facts),
              ElementsAre(AllOf(error(), what("the training cannot be planned: the warm-up is too long"))));
}

TEST(CheckData, OtherContentOnOneHost) {
  std::vector<RankFacts> facts = healthy(3);
  facts[2].data.fingerprint = "fedcba9876543210";
  facts[2].data.files = 4;
  EXPECT_THAT(judge_data(facts),
              ElementsAre(AllOf(error(), what(AllOf(HasSubstr("4 files of 1000 B"), HasSubstr("3 files of 1000 B"))),
                                where("rank 2 (node2) as against ranks 0-1 (node0 and node1)"), blames({"node2"}))));
  facts = healthy(3);
  facts[0].data.sizes = "others";
  EXPECT_THAT(judge_data(facts), ElementsAre(error()));
}

TEST(CheckData, Damaged) {
  std::vector<RankFacts> facts = healthy(3);
  facts[1].data.damage = "shard-00001.h5: another checksum";
  EXPECT_THAT(judge_data(facts), ElementsAre(AllOf(error(), what(HasSubstr("shard-00001.h5")), blames({"node1"}))));
}

TEST(CheckData, CopiesOfOtherTimesThatNobodyHasCompared) {
  std::vector<RankFacts> facts = healthy(3);
  facts[1].data.times = "later";
  EXPECT_THAT(judge_data(facts), ElementsAre(AllOf(warning(), remedy(HasSubstr("--verify all")))));
  for (RankFacts& rank : facts) rank.data.verified = 10;
  EXPECT_THAT(judge_data(facts), IsEmpty());
}

TEST(CheckMemory, TooLittleOnAHost) {
  std::vector<RankFacts> facts = healthy(2, 4);
  EXPECT_THAT(judge_memory(facts), IsEmpty());
  for (std::size_t rank = 4; rank < 8; ++rank) facts[rank].memory_available = 3 * kGiB;
  EXPECT_THAT(judge_memory(facts),
              ElementsAre(AllOf(error(), what("4.0 GiB for 4 ranks, and the host has 3.0 GiB free of 16.0 GiB"),
                                where("node1"), blames({"node1"}))));
  for (RankFacts& rank : facts) rank.memory_total = 0;  // not known
  EXPECT_THAT(judge_memory(facts), IsEmpty());
}

TEST(CheckMemory, TooLittleInAControlGroup) {
  std::vector<RankFacts> facts = healthy(1, 4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    facts[rank].group = rank < 3 ? "job" : "task3";  // three share one, one has its own
    facts[rank].group_limit = 4 * kGiB;
    facts[rank].group_free = 2 * kGiB;
  }
  EXPECT_THAT(judge_memory(facts),
              ElementsAre(AllOf(error(), what(HasSubstr("3.0 GiB for 3 ranks, and the job's control group (job)")),
                                remedy(HasSubstr("--mem")))));
}

class CheckRunFolder : public testing::Test {
 protected:
  bool is_empty() const { return fs::is_empty(root_); }
  const io::TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
};

TEST_F(CheckRunFolder, IsTriedOutWithoutATrace) {
  RunFolderFacts facts = look_at_run_folder(root_ / "runs" / "new");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.lowest, root_);
  EXPECT_FALSE(facts.holds_run);
  EXPECT_NE(facts.free, 0u);
  EXPECT_TRUE(is_empty());
  EXPECT_THAT(judge_run_folder(facts), IsEmpty());
}

TEST_F(CheckRunFolder, AFileInItsPlace) {
  std::ofstream(root_ / "run") << "a file";
  const RunFolderFacts facts = look_at_run_folder(root_ / "run");
  EXPECT_THAT(judge_run_folder(facts), ElementsAre(AllOf(error(), what(HasSubstr("is not a folder")))));
}

TEST_F(CheckRunFolder, WhatNobodyMayWriteTo) {
  const RunFolderFacts facts = look_at_run_folder("/proc/run");
  EXPECT_THAT(judge_run_folder(facts), ElementsAre(AllOf(error(), what(HasSubstr("cannot be written to")))));
}

TEST_F(CheckRunFolder, ARunIsThereAlready) {
  std::ofstream(root_ / "config.ini") << "";
  RunFolderFacts facts = look_at_run_folder(root_);
  EXPECT_THAT(judge_run_folder(facts), ElementsAre(AllOf(warning(), remedy(HasSubstr("--resume")))));
  facts.continues = true;
  EXPECT_THAT(judge_run_folder(facts), IsEmpty());
}

TEST_F(CheckRunFolder, TooLittleSpace) {
  RunFolderFacts facts{.folder = "run", .free = 399, .checkpoint = 100, .keep = 3};
  EXPECT_EQ(facts.wanted(), 400u);
  EXPECT_THAT(judge_run_folder(facts), ElementsAre(AllOf(error(), what(HasSubstr("400 B for checkpoints of 100 B")))));
  facts.kept = 1;  // its bytes are spent already
  EXPECT_THAT(judge_run_folder(facts), IsEmpty());
  facts.kept = 10;
  EXPECT_EQ(facts.wanted(), 100u);
}

}  // namespace
}  // namespace lockstep::app
