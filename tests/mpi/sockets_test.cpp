/// Connections for a start and a training over TCP go to O(log size) ranks, not to all.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "comm/messages.hpp"
#include "world.hpp"

namespace lockstep::comm {
namespace {

/// Local and remote end of each established TCP connection of this process, in the notation of /proc.
std::vector<std::pair<std::string, std::string>> own_connections() {
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
  }
  std::vector<std::pair<std::string, std::string>> connections;
  std::ifstream table("/proc/self/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (state == "01" && inodes.contains(inode)) connections.emplace_back(local, remote);
  }
  return connections;
}

TEST(Sockets, AreHeldToFewPeers) {
  const char* const carriers = std::getenv("OMPI_MCA_btl");
  if (carriers == nullptr || std::string(carriers) != "self,tcp") GTEST_SKIP() << "the ranks do not talk by TCP";
  const auto communicator = communicator_over(Transport::ring, 60);
  std::vector<double> status(10, 1.0);
  for (int step = 0; step < 3; ++step) {
    communicator->all_reduce(status);
    communicator->wait();
  }
  std::vector<float> bucket(1'000'000);
  communicator->all_reduce(bucket);
  communicator->broadcast(std::as_writable_bytes(std::span(bucket)), 0);
  communicator->barrier();
  communicator->wait();
  if (session().rank() == 0) {  // heartbeats
    const LongOperation writing(*communicator, "writing");
    std::this_thread::sleep_for(std::chrono::seconds(6));
  }
  communicator->barrier();
  communicator->wait();

  const auto connections = own_connections();
  std::string own;
  for (const auto& [local, remote] : connections) own += local + " ";
  std::set<int> peers;
  const std::vector<std::string> all = all_gather_text(*communicator, own);
  for (int rank = 0; rank < communicator->size(); ++rank) {
    for (const auto& [local, remote] : connections) {
      if (rank != communicator->rank() && all[static_cast<std::size_t>(rank)].find(remote + " ") != std::string::npos) {
        peers.insert(rank);
      }
    }
  }
  EXPECT_GE(peers.size(), 2u) << "the neighbours on the ring at least";
  EXPECT_LE(peers.size(), 4u) << "of " << communicator->size() - 1;
}

}  // namespace
}  // namespace lockstep::comm
