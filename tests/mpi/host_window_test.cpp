#include "comm/servers/host_window.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "world.hpp"

namespace lockstep::comm {
namespace {

using End = HostWindow::End;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// A window, followed by weights of each rank's server.
struct Shown {
  explicit Shown(const TransportCase& tested)
      : communicator(communicator_over(tested)),
        memory(communicator->reduction_memory(HostWindow::bytes(*communicator) + 4096)),
        window(session(), *communicator, *memory),
        weights(static_cast<float*>(memory->allocate(4096, 64)), 1024) {
    for (std::byte* const at : communicator->mapped(std::as_writable_bytes(weights))) {
      of_rank.push_back(reinterpret_cast<float*>(at));
    }
    together();
  }
  void together() {
    communicator->barrier();
    communicator->wait();
  }
  int next() const { return (communicator->rank() + 1) % communicator->size(); }
  int before() const { return (communicator->rank() + communicator->size() - 1) % communicator->size(); }

  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<std::pmr::memory_resource> memory;
  HostWindow window;
  std::span<float> weights;
  std::vector<float*> of_rank;
};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(HostWindow, ReachesTheRanksOfItsHostAndSeesWhatTheyHave) {
  for (const TransportCase& tested : {kSharedMemory, kTwoLevelInTurn, kRing}) {
    Shown shown(tested);
    const auto own = static_cast<std::size_t>(shown.communicator->rank());
    shown.weights.front() = static_cast<float>(own);
    shown.together();
    for (std::size_t rank = 0; rank < shown.of_rank.size(); ++rank) {
      const bool two_levels = shown.communicator->transport() == Transport::two_level;
      const bool near = rank == own || tested.transport == Transport::shared_memory ||
                        (two_levels && tested.machine_of_rank.at(rank) == tested.machine_of_rank.at(own));
      EXPECT_EQ(shown.window.reaches(static_cast<int>(rank)), near) << tested.name;
      if (shown.of_rank[rank] == nullptr) continue;
      EXPECT_EQ(*shown.of_rank[rank], static_cast<float>(rank)) << tested.name;
    }
    shown.together();
  }
}

TEST(HostWindow, NotesComeInTheirOrderAndAFullMailboxTakesNone) {
  Shown shown(kSharedMemory);
  int left = 0;
  for (; left < 100; ++left) {
    if (!shown.window.leave(shown.next(), 1, bytes_of("note "), bytes_of(std::to_string(left)))) break;
  }
  EXPECT_GT(left, 1);
  EXPECT_LT(left, 100);
  shown.together();
  EXPECT_TRUE(shown.window.message_of(shown.before(), 0).empty()) << "of another lane";
  for (int i = 0; i < left; ++i) {
    EXPECT_EQ(text_of(shown.window.message_of(shown.before(), 1)), "note " + std::to_string(i));
    shown.window.take(shown.before(), 1);
  }
  EXPECT_TRUE(shown.window.message_of(shown.before(), 1).empty());
  shown.together();
  EXPECT_TRUE(shown.window.leave(shown.next(), 1, bytes_of("more"), {}));
  shown.together();
}

TEST(HostWindow, ARankThatSleepsWakesWhenItsBellRings) {
  Shown shown(kSharedMemory);
  constexpr milliseconds kCeiling{20};
  const auto begin = steady_clock::now();
  Bell& of_worker = shown.window.own_bell(End::worker);
  of_worker.sleep(of_worker.value(), kCeiling);
  EXPECT_GE(steady_clock::now() - begin, kCeiling) << "nobody rings";
  shown.together();
  Bell& of_server = shown.window.own_bell(End::server);
  const std::uint32_t seen = of_server.value();
  shown.together();  // everybody has counted before anybody rings
  shown.window.ring(shown.next(), End::server);
  while (of_server.value() == seen) of_server.sleep(seen, kCeiling);
  EXPECT_EQ(of_server.value(), seen + 1);
  shown.together();
}

TEST(HostWindow, RanksOfOtherHostsTakeNoMailboxes) {
  EXPECT_LT(HostWindow::bytes(2048, 8), 21 * HostWindow::bytes(1024, 8) / 10);
  EXPECT_LT(HostWindow::bytes(1024, 1), std::size_t{1} << 20);
  Shown shown(kTwoLevelInTurn);
  if (shown.communicator->size() < 4) return;
  EXPECT_LT(HostWindow::bytes(*shown.communicator),
            HostWindow::bytes(shown.communicator->size(), shown.communicator->size()));
  for (int rank = 0; rank < shown.communicator->size(); ++rank) {
    if (!shown.window.reaches(rank)) continue;
    EXPECT_TRUE(shown.window.leave(rank, 2, bytes_of("to a neighbour"), {}));
  }
  shown.together();
  for (int rank = 0; rank < shown.communicator->size(); ++rank) {
    if (!shown.window.reaches(rank)) continue;
    EXPECT_EQ(text_of(shown.window.message_of(rank, 2)), "to a neighbour") << rank;
  }
  shown.together();
}

TEST(HostWindow, WeightsAreReadInAVersionAndNotWhileTheyChange) {
  Shown shown(kSharedMemory);
  std::vector<float> read(shown.weights.size());
  const auto reads = [&](std::int64_t least) {
    const int from = shown.before();
    return shown.window.read(from, least, {shown.of_rank[static_cast<std::size_t>(from)], read.size()}, read);
  };
  EXPECT_FALSE(reads(0)) << "there are none";
  shown.together();
  {
    const HostWindow::Change change(shown.window, 7);
    std::ranges::fill(shown.weights, 7.0f);
    if (shown.communicator->size() > 1) {
      shown.together();
      EXPECT_FALSE(reads(0)) << "they change";
      shown.together();
    }
  }
  shown.together();
  EXPECT_FALSE(reads(8));
  EXPECT_TRUE(reads(7));
  EXPECT_EQ(read.back(), 7.0f);
  EXPECT_TRUE(reads(3));
  shown.together();
}

}  // namespace
}  // namespace lockstep::comm
