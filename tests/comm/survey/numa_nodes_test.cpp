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

class NetworkCards : public NumaNodes {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text << '\n';
  }
  void add_ethernet(const std::string& name, const std::string& state, const std::string& megabits,
                    const std::string& node) const {
    write("net/" + name + "/operstate", state), write("net/" + name + "/speed", megabits);
    write("net/" + name + "/device/numa_node", node);
  }
  void add_fabric(const std::string& name, const std::string& state, const std::string& node) const {
    write("infiniband/" + name + "/ports/1/state", state), write("infiniband/" + name + "/device/numa_node", node);
  }
};

TEST_F(NetworkCards, AreFastEthernetThatIsUp) {
  add_ethernet("eno1", "up", "1000", "0"), add_ethernet("eno2", "down", "100000", "2");
  add_ethernet("ens1", "up", "100000", "1"), add_ethernet("ens2", "up", "25000", "3");
  add_ethernet("ens3", "up", "10000", "-1"), write("net/lo/operstate", "unknown");
  EXPECT_THAT(network_card_nodes(folder_), ElementsAre(1, 3));
}

TEST_F(NetworkCards, AreInfinibandWhereAPortIsActive) {
  add_ethernet("ens1", "up", "100000", "1");
  add_fabric("mlx5_0", "1: DOWN", "0");
  EXPECT_THAT(network_card_nodes(folder_), ElementsAre(1));
  add_fabric("mlx5_1", "4: ACTIVE", "2");
  EXPECT_THAT(network_card_nodes(folder_), ElementsAre(2));
}

TEST_F(NetworkCards, AreUnknownWhereTheKernelDoesNotTell) {
  EXPECT_THAT(network_card_nodes(folder_ / "nothing"), IsEmpty());
  add_ethernet("ens3", "up", "10000", "-1");
  EXPECT_THAT(network_card_nodes(folder_), IsEmpty());
}

TEST(Runs, AreFoldedAndUnfolded) {
  EXPECT_EQ(folded({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_THAT(unfolded("0-2,5,7-8"), ElementsAre(0, 1, 2, 5, 7, 8));
  EXPECT_THAT(unfolded(""), IsEmpty());
  EXPECT_THAT(unfolded("3,x,4"), ElementsAre(3));
}

}  // namespace
}  // namespace lockstep::comm
