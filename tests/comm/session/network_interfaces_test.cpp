#include "comm/session/network_interfaces.hpp"

#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const std::vector<std::string> kInterfaces{"lo", "eth0", "eth1", "ib0"};

std::string error(std::string_view list) { return interface_list_error(list, kInterfaces, "node7"); }

TEST(InterfaceList, NamesTheBeginningsOfNames) {
  for (const char* list : {"eth0", "eth", "e", "et", "ib", "ib0,eth9", "eth9,ib0", ",eth0", "eth0,", "eth0:4"}) {
    EXPECT_THAT(error(list), IsEmpty()) << list;
  }
  for (const char* list : {"eth9", "th0", "eth0x", "enp1s0,eno1", "ETH0", "eth9:0", " eth0"}) {
    EXPECT_THAT(error(list), HasSubstr("names no network interface that is there")) << list;
  }
}

TEST(InterfaceList, WithAnEqualsSignNamesWholeNames) {
  for (const char* list : {"=eth0", "=eth9,ib0", "=lo"}) EXPECT_THAT(error(list), IsEmpty()) << list;
  for (const char* list : {"=eth", "=eth00", "=ib"}) EXPECT_THAT(error(list), HasSubstr("whole names")) << list;
}

TEST(InterfaceList, WithACaretNamesWhatIsNotToBeUsed) {
  for (const char* list : {"^lo", "^docker", "^eth,ib", "^=eth", "^=lo,eth0,eth1"}) {
    EXPECT_THAT(error(list), IsEmpty()) << list;
  }
  for (const char* list : {"^lo,eth,ib", "^=lo,eth0,eth1,ib0", "^l,e,i"}) {
    EXPECT_THAT(error(list), HasSubstr("excludes every network interface")) << list;
  }
}

TEST(InterfaceList, OfOneCharacterCountsAsNotGiven) {
  for (const char* list : {"", "e", "x", "^"}) EXPECT_THAT(error(list), IsEmpty()) << list;
}

TEST(InterfaceList, WithoutNamesNamesAll) {
  EXPECT_THAT(error("=,"), IsEmpty());
  EXPECT_THAT(error(",,"), IsEmpty());
  EXPECT_THAT(error("^,"), HasSubstr("excludes every"));
}

TEST(InterfaceList, IsRefusedInWordsThatSayWhatToDo) {
  EXPECT_EQ(error("eth9"),
            "NCCL_SOCKET_IFNAME=eth9 names no network interface that is there: the interfaces of node7 are lo, eth0, "
            "eth1, ib0. Name one of them, or unset it");
  EXPECT_THAT(interface_list_error("eth0", {}, "node7"),
              HasSubstr("node7 has no running interface with an IP address at all"));
}

TEST(NcclEnvironment, IsReadFromTheVariable) {
  ASSERT_EQ(unsetenv("NCCL_SOCKET_IFNAME"), 0);
  EXPECT_EQ(nccl_environment_error(), "");
  ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", "no-such-interface", 1), 0);
  EXPECT_THAT(nccl_environment_error(), HasSubstr("NCCL_SOCKET_IFNAME=no-such-interface names no"));
  const std::vector<std::string> interfaces = host_interfaces();
  if (!interfaces.empty()) {
    ASSERT_EQ(setenv("NCCL_SOCKET_IFNAME", ("=" + interfaces.back()).c_str(), 1), 0);
    EXPECT_EQ(nccl_environment_error(), "");
  }
  ASSERT_EQ(unsetenv("NCCL_SOCKET_IFNAME"), 0);
}

TEST(NcclEnvironment, DecidesOnNvlsBeforeTheOption) {
  ASSERT_EQ(unsetenv("NCCL_NVLS_ENABLE"), 0);
  EXPECT_TRUE(nccl_may_use_nvls(true));
  EXPECT_FALSE(nccl_may_use_nvls(false));
  ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "", 1), 0);
  EXPECT_FALSE(nccl_may_use_nvls(false)) << "empty is unset";
  ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "0", 1), 0);
  EXPECT_FALSE(nccl_may_use_nvls(true));
  ASSERT_EQ(setenv("NCCL_NVLS_ENABLE", "2", 1), 0);
  EXPECT_TRUE(nccl_may_use_nvls(false));
  ASSERT_EQ(unsetenv("NCCL_NVLS_ENABLE"), 0);
}

InterfaceAddress address(std::string text, int prefix) {
  InterfaceAddress a;
  a.interface = "eth0";
  a.address = std::move(text);
  a.prefix = prefix;
  return a;
}

TEST(InterfaceAddress, KnowsItsSubnet) {
  EXPECT_EQ(address("10.1.2.77", 24).subnet(), "10.1.2.0/24");
  EXPECT_EQ(address("10.1.2.77", 26).subnet(), "10.1.2.64/26");
  EXPECT_EQ(address("10.1.2.77", 32).subnet(), "10.1.2.77/32");
  EXPECT_EQ(address("10.1.2.77", 0).subnet(), "0.0.0.0/0");
  EXPECT_EQ(address("fd00::12:34", 64).subnet(), "fd00::/64");
  EXPECT_EQ(address("none", 24).subnet(), "");
}

TEST(InterfaceAddress, IsFoundInAListOfOpenMpi) {
  const InterfaceAddress a = address("10.1.2.77", 24);
  for (const char* list : {"eth0", "ib0,eth0", "10.1.0.0/16", "10.1.2.77/32", "lo,10.0.0.0/8"}) {
    EXPECT_TRUE(is_in_list(a, list)) << list;
  }
  for (const char* list :
       {"", "eth", "eth01", "ib0", "10.2.0.0/16", "10.1.2.78/32", "fd00::/64", "x/24", "10.1.2.0/x"}) {
    EXPECT_FALSE(is_in_list(a, list)) << list;
  }
}

TEST(InterfaceAddress, ThisHostHasLoopback) {
  const std::vector<InterfaceAddress> addresses = interface_addresses();
  EXPECT_THAT(addresses, Contains(testing::AllOf(testing::Field(&InterfaceAddress::address, "127.0.0.1"),
                                                 testing::Field(&InterfaceAddress::prefix, 8),
                                                 testing::Field(&InterfaceAddress::loopback, true))));
}

TEST(SuspectInterfaces, NamesTheContainersBridgeAndTheWayRoundIt) {
  std::vector<InterfaceAddress> addresses{address("10.1.2.77", 24), address("172.17.0.1", 16)};
  EXPECT_THAT(suspect_interfaces(addresses, "", ""), IsEmpty());
  addresses[1].interface = "docker0";
  EXPECT_THAT(suspect_interfaces(addresses, "", ""), AllOf(HasSubstr("docker0 172.17.0.1 looks like the same address"),
                                                           HasSubstr("--mca btl_tcp_if_include 10.1.2.0/24")));
  EXPECT_THAT(suspect_interfaces(addresses, "eth0", ""), IsEmpty());
  EXPECT_THAT(suspect_interfaces(addresses, "", "lo,docker0"), IsEmpty());
  EXPECT_THAT(suspect_interfaces(addresses, "", "lo"), HasSubstr("docker0"));
}

}  // namespace
}  // namespace lockstep::comm
