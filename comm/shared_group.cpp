#include "comm/shared_group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/memory_limit.hpp"
#include "comm/mpi_session.hpp"
#include "comm/reduction_memory.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t kBounceOffset = 4096;
/// How long to look for a peer at full speed, and how long after that while lending the core to whoever wants it.
/// Waking a sleeper takes about 50 us (measured; an idle core must be roused): had the whole look been as short, each
/// sleep of one rank would cause the next sleep of the other, for ever.
constexpr std::chrono::microseconds kSpin{50}, kYield{200};
constexpr int kSliceMilliseconds = 100;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// How far each rank got in taking reduction memory, as a message.
struct MemoryMessage {
  std::int32_t descriptor = -1;
  std::array<char, 480> error{};
};
static_assert(sizeof(MemoryMessage) <= SharedControl::kMessageBytes);

}  // namespace

std::size_t SharedGroup::control_bytes() noexcept { return kBounceOffset + kBounceBytes; }

void SharedGroup::initialize_control(SharedSegment& segment, std::uint64_t nonce) {
  auto& control = *reinterpret_cast<SharedControl*>(segment.data());
  control.nonce = nonce;
  control.step.store(-1);
}

std::vector<SharedSegment> SharedGroup::attach_all(const PeerTable& peers, std::span<const int> ranks, int own_rank,
                                                   SharedSegment own) {
  std::vector<SharedSegment> segments;
  for (const int rank : ranks) {
    if (rank == own_rank) {
      segments.push_back(std::move(own));
      continue;
    }
    const PeerCard& card = peers.card(rank);
    if (card.segment_descriptor < 0) throw std::runtime_error(fmt::format("{} has none", peers.describe(rank)));
    segments.push_back(SharedSegment::attach(card.pid, card.segment_descriptor, control_bytes()));
    if (reinterpret_cast<const SharedControl*>(segments.back().data())->nonce != card.segment_nonce) {
      throw std::runtime_error(fmt::format("process {} here is not {}", card.pid, peers.describe(rank)));
    }
  }
  return segments;
}

SharedGroup::SharedGroup(const PeerTable& peers, std::vector<int> ranks, int own_rank,
                         std::vector<SharedSegment> segments, MeetingWatch& watch)
    : peers_(peers),
      ranks_(std::move(ranks)),
      position_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), own_rank) - ranks_.begin())),
      controls_(std::move(segments)),
      watch_(watch) {
  controls_[static_cast<std::size_t>(position_)].close_descriptor();
}

std::byte* SharedGroup::bounce(int position) const noexcept {
  return controls_[static_cast<std::size_t>(position)].data() + kBounceOffset;
}

// Meetings ------------------------------------------------------------------------------------------------------------

void SharedGroup::meet(const Errand& own_errand) {
  SharedControl& own = own_control();
  own.set_errand(++meeting_, own_errand);
  // Sequentially consistent against wait_for(): either this rank sees the sleeper, or the sleeper sees the arrival.
  own.arrived.store(meeting_, std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(own.arrived);
  for (int step = 1; step < size(); ++step) {
    const int peer = (position_ + step) % size();
    if (!has_come(peer)) wait_for(peer, own_errand);
  }
  for (int peer = 0; peer < size(); ++peer) {
    const Errand theirs = control(peer).errand_at(meeting_);
    if (theirs == own_errand) continue;
    throw PeerError(
        fmt::format("the ranks have diverged: {} came for {}, {} for {}; last seen in {} and {}. Ending the job.",
                    peers_.describe(ranks_[static_cast<std::size_t>(peer)]), theirs.describe(),
                    peers_.describe(ranks_[static_cast<std::size_t>(position_)]), own_errand.describe(),
                    control(peer).last_seen(), own.last_seen()));
  }
}

bool SharedGroup::has_come(int peer) const noexcept {
  // The difference, not the order: the counter may wrap around.
  return static_cast<std::int32_t>(control(peer).arrived.load(std::memory_order_acquire) - meeting_) >= 0;
}

void SharedGroup::wait_for(int peer, const Errand& own_errand) {
  if (watch_.may_spin()) {
    const auto start = std::chrono::steady_clock::now();
    for (auto waited = start - start; waited < kSpin + kYield; waited = std::chrono::steady_clock::now() - start) {
      if (waited > kSpin) std::this_thread::yield();
      for (int i = 0; i < 32; ++i) {
        if (has_come(peer)) return;
        pause_core();
      }
    }
  }
  SharedControl& theirs = control(peer);
  Patience patience(watch_.deadline_seconds());
  for (;;) {
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = theirs.arrived.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - meeting_) < 0) futex_wait(theirs.arrived, seen, kSliceMilliseconds);
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (has_come(peer)) return;
    watch_.look_around(own_errand, patience);
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

std::unique_ptr<std::pmr::memory_resource> SharedGroup::take_memory(std::size_t bytes, std::string& error) {
  const std::size_t size_of_each = std::max(rounded_up(bytes), kReductionAlignment);
  const Errand here{.operation = Collective::memory, .element_bytes = 1, .count = size_of_each};
  auto window = std::make_unique<Window>();
  window->number = ++windows_made_;
  MemoryMessage own;
  const auto note = [&own](const std::exception& failure) {
    std::strncpy(own.error.data(), failure.what(), own.error.size() - 1);
  };

  SharedSegment segment;
  try {
    if (const std::string shortage = memory_shortage(size_of_each, size(), read_meminfo()); !shortage.empty()) {
      throw std::runtime_error(shortage);
    }
    segment = SharedSegment::create(size_of_each);
    own.descriptor = segment.descriptor();
  } catch (const std::exception& failure) {
    note(failure);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  meet(here);  // everybody's segment is there
  std::vector<MemoryMessage> all(ranks_.size());
  for (int peer = 0; peer < size(); ++peer)
    std::memcpy(&all[static_cast<std::size_t>(peer)], message(peer), sizeof(own));
  try {
    for (int peer = 0; peer < size(); ++peer) {
      const std::int32_t descriptor = all[static_cast<std::size_t>(peer)].descriptor;
      if (descriptor < 0) break;  // it says why in its message
      const int pid = peers_.card(ranks_[static_cast<std::size_t>(peer)]).pid;
      window->segments.push_back(peer == position_ ? std::move(segment)
                                                   : SharedSegment::attach(pid, descriptor, size_of_each));
    }
  } catch (const std::exception& failure) {
    note(failure);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  meet(here);  // everybody has mapped all of them, or has failed
  for (int peer = 0; peer < size(); ++peer) {
    MemoryMessage theirs;
    std::memcpy(&theirs, message(peer), sizeof(theirs));
    if (theirs.error[0] == '\0') continue;
    error = fmt::format("{}: {}", peers_.describe(ranks_[static_cast<std::size_t>(peer)]), theirs.error.data());
    return nullptr;
  }
  SharedSegment& mine = window->segments[static_cast<std::size_t>(position_)];
  mine.close_descriptor();
  Window* const handle = window.get();
  windows_.push_back(std::move(window));
  return std::make_unique<ReductionMemory>(mine.data(), size_of_each, [this, handle] {
    std::erase_if(windows_, [&](const auto& candidate) { return candidate.get() == handle; });
  });
}

}  // namespace lockstep::comm
