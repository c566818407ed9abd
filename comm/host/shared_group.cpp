#include "comm/host/shared_group.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "comm/host/memory_limit.hpp"
#include "comm/host/reduction_memory.hpp"
#include "comm/session/mpi_session.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBounceOffset = 4096;
/// Duration of polling at full speed, and of yielding after that. Waking a sleeper takes about 50 us (measured; an idle
/// core must be woken). If the whole poll were as short, each sleep of one rank would cause the next sleep of the
/// other, for ever.
constexpr std::chrono::microseconds kSpin{50}, kYield{200};
constexpr std::chrono::milliseconds kSlice{100};
/// Slices if sums may overtake: without such a sum, and with one.
constexpr std::chrono::microseconds kServingSlice{200}, kUrgentSlice{50};

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // yield has no effect on most of them
#endif
}

/// A rank's progress in allocating reduction memory, as a message.
struct MemoryMessage {
  std::int32_t has_segment = 0;
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

SharedGroup::Shared SharedGroup::alone() {
  Shared shared;
  shared.controls.push_back(SharedSegment::alone(control_bytes()));
  initialize_control(shared.controls.back(), random_nonce());
  return shared;
}

SharedGroup::Shared SharedGroup::attach_all(const PeerTable& peers, std::span<const int> ranks, int own_rank,
                                            SharedSegment own, std::unique_ptr<DescriptorExchange> exchange,
                                            double seconds) {
  for (const int rank : ranks) {
    if (peers.info(rank).segment_address == 0)
      throw std::runtime_error(fmt::format("{} has none", peers.describe(rank)));
  }
  const std::vector<int> descriptors =
      exchange_descriptors(*exchange, own.descriptor(), peers, ranks, own_rank, seconds);
  Shared shared{.controls = {}, .exchange = std::move(exchange)};
  auto descriptor = descriptors.begin();
  for (const int rank : ranks) {
    if (rank == own_rank) {
      shared.controls.push_back(std::move(own));
      continue;
    }
    shared.controls.push_back(SharedSegment::attach(*descriptor++, control_bytes()));
    if (reinterpret_cast<const SharedControl*>(shared.controls.back().data())->nonce !=
        peers.info(rank).segment_nonce) {
      throw std::runtime_error(fmt::format("the memory that came is not that of {}", peers.describe(rank)));
    }
  }
  return shared;
}

std::vector<int> SharedGroup::exchange_descriptors(DescriptorExchange& exchange, int descriptor, const PeerTable& peers,
                                                   std::span<const int> ranks, int own_rank, double seconds) {
  std::vector<DescriptorExchange::Peer> others;
  for (const int rank : ranks) {
    if (rank == own_rank) continue;
    const PeerInfo& info = peers.info(rank);
    others.push_back({.address = info.segment_address, .nonce = info.segment_nonce, .name = peers.describe(rank)});
  }
  return exchange.exchange(descriptor, peers.info(own_rank).segment_nonce, others, seconds);
}

SharedGroup::SharedGroup(std::vector<int> ranks, Shared shared, FailureDetector& detector)
    : ranks_(std::move(ranks)),
      position_(static_cast<int>(std::ranges::find(ranks_, detector.state().rank) - ranks_.begin())),
      controls_(std::move(shared.controls)),
      exchange_(std::move(shared.exchange)),
      detector_(detector) {
  controls_[static_cast<std::size_t>(position_)].close_descriptor();
  for (int peer = 0; peer < size(); ++peer) {
    detector_.add_page(ranks_[static_cast<std::size_t>(peer)], control(peer));
  }
}

SharedGroup::~SharedGroup() { detector_.forget_pages(); }

std::byte* SharedGroup::bounce(int position) const noexcept {
  return controls_[static_cast<std::size_t>(position)].data() + kBounceOffset;
}

// Barriers ------------------------------------------------------------------------------------------------------------

void SharedGroup::barrier(const CollectiveCall& own_call) {
  SharedControl& own = own_control();
  own.set_call(++barrier_, own_call);
  own.arrived.ring(barrier_);
  for (int step = 1; step < size(); ++step) {
    const int peer = (position_ + step) % size();
    if (!has_arrived(peer)) wait_for(peer, own_call);
  }
  for (int peer = 0; peer < size(); ++peer) {
    const CollectiveCall theirs = control(peer).call_at(barrier_);
    if (theirs == own_call) continue;
    throw PeerError(
        fmt::format("the ranks have diverged: {} came for {}, {} for {}; last seen in {} and {}. Ending the job.",
                    detector_.peers().describe(ranks_[static_cast<std::size_t>(peer)]), theirs.describe(),
                    detector_.peers().describe(ranks_[static_cast<std::size_t>(position_)]), own_call.describe(),
                    control(peer).last_seen(), own.last_seen()));
  }
}

bool SharedGroup::has_arrived(int peer) const noexcept {
  // The difference, not the order: the counter may wrap around.
  return static_cast<std::int32_t>(control(peer).arrived.value() - barrier_) >= 0;
}

void SharedGroup::wait_for(int peer, const CollectiveCall& own_call) {
  if (detector_.may_spin()) {
    for (Backoff backoff({.spin = kSpin, .yield = kYield, .sleep = {}}); backoff.stays_awake();) {
      for (int i = 0; i < 32; ++i) {
        if (has_arrived(peer)) return;
        pause_core();
      }
      detector_.serve_overtaking();
    }
  }
  SharedControl& theirs = control(peer);
  Patience patience = detector_.patience();
  for (auto next_check = Clock::now() + kSlice;;) {
    if (detector_.serve_overtaking()) {
      if (has_arrived(peer)) return;
      patience = detector_.patience();
      continue;
    }
    const std::uint32_t seen = theirs.arrived.value();
    if (static_cast<std::int32_t>(seen - barrier_) < 0) theirs.arrived.sleep(seen, slice());
    if (has_arrived(peer)) return;
    const Clock::time_point now = Clock::now();
    if (now < next_check) continue;
    watch_peers(own_call, patience);
    next_check = now + kSlice;
  }
}

std::chrono::microseconds SharedGroup::slice() const noexcept {
  return !detector_.expects_overtaking() ? kSlice : detector_.may_spin() ? kUrgentSlice : kServingSlice;
}

void SharedGroup::watch_peers(const CollectiveCall& own_call, Patience& patience) {
  std::uint64_t progress = 0;
  std::vector<int> missing;
  for (int peer = 0; peer < size(); ++peer) {
    progress += control(peer).progress.load(std::memory_order_relaxed);
    if (!has_arrived(peer)) missing.push_back(ranks_[static_cast<std::size_t>(peer)]);
  }
  // A rank moves data for which the others wait.
  if (std::exchange(progress_seen_, progress) != progress) patience = detector_.patience();
  detector_.watch_peers(own_call.operation, patience, missing);
}

// Memory --------------------------------------------------------------------------------------------------------------

std::unique_ptr<ReductionMemory> SharedGroup::take_memory(std::size_t bytes, std::string& error) {
  const std::size_t size_of_each = std::max(rounded_up(bytes), kReductionAlignment);
  const CollectiveCall here{.operation = Collective::memory, .element_bytes = 1, .count = size_of_each};
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
    segment = size() == 1 ? SharedSegment::alone(size_of_each) : SharedSegment::create(size_of_each);
    own.has_segment = 1;
  } catch (const std::exception& failure) {
    note(failure);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  barrier(here);  // every rank has its segment
  bool all_have = true;
  for (int peer = 0; peer < size(); ++peer) {
    MemoryMessage theirs;
    std::memcpy(&theirs, message(peer), sizeof(theirs));
    all_have = all_have && theirs.has_segment != 0;  // otherwise its message has the reason
  }
  try {
    if (all_have) {
      std::vector<int> descriptors;
      if (size() > 1) {
        descriptors = exchange_descriptors(*exchange_, segment.descriptor(), detector_.peers(), ranks_,
                                           detector_.state().rank, detector_.deadline_seconds());
      }
      auto descriptor = descriptors.begin();
      for (int peer = 0; peer < size(); ++peer) {
        window->segments.push_back(peer == position_ ? std::move(segment)
                                                     : SharedSegment::attach(*descriptor++, size_of_each));
      }
    }
  } catch (const std::exception& failure) {
    note(failure);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  barrier(here);  // every rank has mapped all of them, or has failed
  for (int peer = 0; peer < size(); ++peer) {
    MemoryMessage theirs;
    std::memcpy(&theirs, message(peer), sizeof(theirs));
    if (theirs.error[0] == '\0') continue;
    error =
        fmt::format("{}: {}", detector_.peers().describe(ranks_[static_cast<std::size_t>(peer)]), theirs.error.data());
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
