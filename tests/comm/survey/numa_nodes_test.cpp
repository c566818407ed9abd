#include "comm/survey/numa_nodes.hpp"

#include <cstdlib>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class NumaNodes : public testing::Test {
 protected:
  NumaNodes() {
    std::string name = (std::filesystem::temp_directory_path() / "numa-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~NumaNodes() override { std::filesystem::remove_all(folder_); }
  void add(const std::string& node, const std::string& cores) const {
    std::filesystem::create_directory(folder_ / node);
    std::ofstream(folder_ / node / "cpulist") << cores << '\n';
  }
  std::filesystem::path folder_;
};

TEST_F(NumaNodes, AreReadFromTheKernelsFolder) {
  add("node10", "8-11,24"), add("node2", "0-3,16"), add("node3", "");  // memory without cores
  add("power", "0-31"), add("node", "1"), add("node4x", "2");
  const std::vector<NumaNode> nodes = numa_nodes(folder_);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[0].number, 2);
  EXPECT_THAT(nodes[0].cores, ElementsAre(0, 1, 2, 3, 16));
  EXPECT_EQ(nodes[1].number, 3);
  EXPECT_THAT(nodes[1].cores, IsEmpty());
  EXPECT_EQ(nodes[2].number, 10);
  EXPECT_THAT(nodes[2].cores, ElementsAre(8, 9, 10, 11, 24));
  EXPECT_THAT(nodes_of(std::vector{3, 9}, nodes), ElementsAre(2, 10));
  EXPECT_THAT(nodes_of(std::vector{16}, nodes), ElementsAre(2));
  EXPECT_THAT(nodes_of(std::vector{5}, nodes), IsEmpty());
}

TEST_F(NumaNodes, AreUnknownWhereTheKernelDoesNotTell) { EXPECT_THAT(numa_nodes(folder_ / "nothing"), IsEmpty()); }

TEST(Runs, AreFoldedAndUnfolded) {
  EXPECT_EQ(folded({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_THAT(unfolded("0-2,5,7-8"), ElementsAre(0, 1, 2, 5, 7, 8));
  EXPECT_THAT(unfolded(""), IsEmpty());
  EXPECT_THAT(unfolded("3,x,4"), ElementsAre(3));
}

}  // namespace
}  // namespace lockstep::comm
