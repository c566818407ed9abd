#include "comm/servers/host_window.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include <fmt/format.h>

#include "comm/host/reduction_memory.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/peers.hpp"

// ThreadSanitizer does not support fences. The fences here order memory between processes, which it does not check
// either; between threads of one process a mutex does.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

namespace lockstep::comm {

std::size_t HostWindow::slot_bytes(int ranks) noexcept {
  constexpr std::size_t kLine = 64;
  return (kMessage + static_cast<std::size_t>(ranks) * sizeof(float) + kLine - 1) / kLine * kLine;
}

std::size_t HostWindow::bytes(int ranks, int near) noexcept {
  const std::size_t boxes = static_cast<std::size_t>(near) * kLanes;
  return rounded_up(sizeof(Control) + boxes * (sizeof(Mailbox) + kSlots * slot_bytes(ranks)));
}

std::size_t HostWindow::bytes(Communicator& communicator) {
  std::vector<double> near(static_cast<std::size_t>(communicator.size()), 0.0);
  near[static_cast<std::size_t>(communicator.rank())] = communicator.ranks_sharing_memory();
  communicator.all_reduce(std::span(near));
  communicator.wait();
  return bytes(communicator.size(), static_cast<int>(*std::ranges::max_element(near)));
}

HostWindow::HostWindow(MpiSession& session, const Communicator& communicator, std::pmr::memory_resource& memory)
    : rank_(communicator.rank()),
      slot_bytes_(slot_bytes(communicator.size())),
      oversubscribed_(PeerTable(session.state().rank, session.state().peers).oversubscribed()) {
  const int near = communicator.ranks_sharing_memory();
  const std::size_t all = bytes(communicator.size(), near);
  auto* const own = static_cast<std::byte*>(memory.allocate(all, alignof(Control)));
  int position = 0;
  for (std::byte* const at : communicator.mapped({own, all})) {
    controls_.push_back(reinterpret_cast<Control*>(at));
    positions_.push_back(at == nullptr ? -1 : position++);
  }
  new (own) Control{};
  for (int from = 0; from < communicator.size(); ++from) {
    if (!reaches(from)) continue;
    for (int lane = 0; lane < kLanes; ++lane) new (&mailbox(rank_, from, lane)) Mailbox{};
  }
}

HostWindow::Mailbox& HostWindow::mailbox(int of, int from, int lane) const noexcept {
  const auto number = static_cast<std::size_t>(positions_[static_cast<std::size_t>(from)] * kLanes + lane);
  return *reinterpret_cast<Mailbox*>(reinterpret_cast<std::byte*>(control(of) + 1) +
                                     number * (sizeof(Mailbox) + kSlots * slot_bytes_));
}

std::byte* HostWindow::slot(Mailbox& box, std::uint32_t number) const noexcept {
  return reinterpret_cast<std::byte*>(&box + 1) + number % kSlots * slot_bytes_;
}

bool HostWindow::leave(int rank, int lane, std::span<const std::byte> head, std::span<const std::byte> tail) {
  const auto size = static_cast<std::uint32_t>(head.size() + tail.size());
  if (size + sizeof size > slot_bytes_) {
    throw std::invalid_argument(fmt::format("a message of {} bytes is more than a mailbox of a host takes", size));
  }
  Mailbox& box = mailbox(rank, rank_, lane);
  const std::uint32_t number = box.left.load(std::memory_order_relaxed);
  if (number - box.taken.load(std::memory_order_acquire) >= kSlots) return false;
  std::byte* const message = slot(box, number);
  std::memcpy(message, &size, sizeof size);
  std::memcpy(message + sizeof size, head.data(), head.size());
  if (!tail.empty()) std::memcpy(message + sizeof size + head.size(), tail.data(), tail.size());
  box.left.store(number + 1, std::memory_order_release);
  return true;
}

std::span<const std::byte> HostWindow::message_of(int rank, int lane) const noexcept {
  Mailbox& box = mailbox(rank_, rank, lane);
  const std::uint32_t number = box.taken.load(std::memory_order_relaxed);
  if (box.left.load(std::memory_order_acquire) == number) return {};
  const std::byte* const message = slot(box, number);
  std::uint32_t size = 0;
  std::memcpy(&size, message, sizeof size);
  return {message + sizeof size, size};
}

void HostWindow::take(int rank, int lane) noexcept {
  std::atomic<std::uint32_t>& taken = mailbox(rank_, rank, lane).taken;
  taken.store(taken.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

HostWindow::Change::Change(HostWindow& window, std::int64_t version) : window_(window), version_(version) {
  window_.changing_.lock();
  std::atomic<std::uint64_t>& word = window_.control(window_.rank_)->version;
  word.store(word.load(std::memory_order_relaxed) | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);  // a reader that sees the later writes also sees the odd version
}

HostWindow::Change::~Change() {
  window_.control(window_.rank_)
      ->version.store(2 * static_cast<std::uint64_t>(version_) + 2, std::memory_order_release);
  window_.changing_.unlock();
}

bool HostWindow::read(int rank, std::int64_t least, std::span<const float> from, std::span<float> to) {
  std::unique_lock<std::mutex> own(changing_, std::defer_lock);
  if (rank == rank_) own.lock();
  const std::atomic<std::uint64_t>& word = control(rank)->version;
  const std::uint64_t before = word.load(std::memory_order_acquire);
  if (before % 2 != 0 || before < 2 * static_cast<std::uint64_t>(least) + 2) return false;
  std::memcpy(to.data(), from.data(), to.size_bytes());
  std::atomic_thread_fence(std::memory_order_acquire);
  return word.load(std::memory_order_relaxed) == before;
}

}  // namespace lockstep::comm
