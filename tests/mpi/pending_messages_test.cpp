/// Messages that MPI still holds when a wait ends in an error, or their object goes, must not use memory of others.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/failure/status_channel.hpp"
#include "world.hpp"

namespace {

bool sends_wait_for_receivers = false;
const void* sent = nullptr;  ///< the data of the last of these sends
int longest_broadcast = 0;

}  // namespace

// Replaces the library's own, for the whole program.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  if (sends_wait_for_receivers) sent = data;
  return (sends_wait_for_receivers ? PMPI_Issend : PMPI_Isend)(data, count, type, to, tag, comm, request);
}
extern "C" int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  longest_broadcast = std::max(longest_broadcast, count);
  return PMPI_Ibcast(data, count, type, root, comm, request);
}

namespace lockstep::comm {
namespace {

/// Messages of its own for the session while it lives: a test's pending messages disturb no other.
class OwnMessages {
 public:
  OwnMessages() {
    MPI_Comm_dup(MPI_COMM_WORLD, &data_);
    MPI_Comm_dup(MPI_COMM_WORLD, &status_);
    swap();
  }
  ~OwnMessages() { swap(); }
  OwnMessages(const OwnMessages&) = delete;
  OwnMessages& operator=(const OwnMessages&) = delete;

 private:
  void swap() {
    std::swap(session().state().data, data_);
    std::swap(session().state().status, status_);
  }
  MPI_Comm data_ = MPI_COMM_NULL, status_ = MPI_COMM_NULL;
};

/// Lets MPI progress for so many seconds.
void let_messages_come(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (int there = 0; std::chrono::steady_clock::now() < end;) {
    MPI_Iprobe(MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
  }
}

TEST(RingAfterAnError, ReceivesNothingIntoMemoryThatItsOwnerTakesBack) {
  if (session().size() == 1) return;  // nobody to receive from
  const OwnMessages own;
  const auto communicator = communicator_over(Transport::ring, 0.3);
  std::vector<std::byte> data(static_cast<std::size_t>(session().size()) * 100'000, std::byte{1});
  // Rank 0 gives up before anyone has sent; then the others send the messages that it waited for.
  if (session().rank() == 0) {
    EXPECT_THROW(communicator->all_gather(data), PeerError);
    std::ranges::fill(data, std::byte{2});
    MPI_Barrier(MPI_COMM_WORLD);
    let_messages_come(1);
    EXPECT_EQ(std::ranges::count(data, std::byte{2}), static_cast<std::ptrdiff_t>(data.size()));
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    EXPECT_THROW(communicator->all_gather(data), PeerError);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(StatusChannel, KeepsWhatIsNotTakenYetWhenItGoes) {
  if (session().size() == 1) return;  // nobody to tell
  const OwnMessages own;
  MpiSession::State& state = session().state();
  if (session().rank() == 0) {
    sends_wait_for_receivers = true;
    auto channel = std::make_unique<StatusChannel>(state, 60);
    channel->send({.kind = Report::Kind::waiting, .sequence = 4711, .waited = 12.5});
    sends_wait_for_receivers = false;
    channel.reset();
    const void* const data = sent;               // MPI's until the receiver has come
    std::vector<std::vector<std::byte>> others;  // the next allocations take the memory
    for (std::size_t bytes = 64; bytes < 1024; bytes += 8) others.emplace_back(bytes, std::byte{0xee});
    Report report;
    std::memcpy(&report, data, sizeof(report));
    EXPECT_EQ(report.sequence, 4711u);
    EXPECT_EQ(report.waited, 12.5);
    MPI_Barrier(MPI_COMM_WORLD);
    let_messages_come(0.1);
    MPI_Barrier(MPI_COMM_WORLD);
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
    Report report;
    MPI_Recv(&report, sizeof(report), MPI_BYTE, 0, 1, state.status, MPI_STATUS_IGNORE);
    EXPECT_EQ(report.sequence, 4711u);
    EXPECT_EQ(report.waited, 12.5);
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/// Each arrival is progress: a slow link would deliver no single piece of a gigabyte before its deadline.
TEST(Broadcast, ComesInPiecesThatAreEachProgress) {
  const auto communicator = communicator_over(Transport::ring);
  constexpr std::size_t kEvery = 4093;  // checking every byte takes sanitizers half a minute
  const auto value = [](std::size_t i) { return static_cast<std::byte>(1 + i * 2654435761u % 255); };
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{16} << 20, (std::size_t{48} << 20) + 5}) {
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes && session().rank() == 0; i += kEvery) data[i] = value(i);
    if (session().rank() == 0) data.back() = value(bytes);
    longest_broadcast = 0;
    communicator->broadcast(data, 0);
    communicator->wait();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i + 1 < bytes; i += kEvery) wrong += data[i] != value(i);
    EXPECT_EQ(wrong, 0u) << bytes << " bytes";
    EXPECT_EQ(data.back(), value(bytes)) << bytes << " bytes";
    if (session().size() > 1) {
      EXPECT_GT(longest_broadcast, 0);
    }
    EXPECT_LE(longest_broadcast, 16 << 20) << bytes << " bytes";
  }
}

}  // namespace
}  // namespace lockstep::comm
