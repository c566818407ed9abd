#include "comm/shared_memory_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/agreement.hpp"
#include "comm/memory_limit.hpp"
#include "comm/reduction_memory.hpp"
#include "comm/summation.hpp"

namespace lockstep::comm {
namespace {

constexpr std::size_t kBounceOffset = 4096, kBounceBytes = 256 * 1024;
/// How long to look for a peer at full speed, and how long after that while lending the core to whoever wants it.
/// Waking a sleeper takes about 50 us (measured; an idle core must be roused): had the whole look been as short, each
/// sleep of one rank would cause the next sleep of the other, for ever.
constexpr std::chrono::microseconds kSpin{50}, kYield{200};
constexpr int kSliceMilliseconds = 100;
constexpr std::size_t kCacheLine = 64;

void pause_core() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// The elements that `rank` adds up: nearly equal pieces cut at cache lines, so that no two ranks write to one line.
template <typename T>
Slice piece_of(std::size_t count, int rank, int size) {
  constexpr std::size_t kStep = kCacheLine / sizeof(T);
  const std::size_t steps = (count + kStep - 1) / kStep;
  const auto r = static_cast<std::size_t>(rank), p = static_cast<std::size_t>(size);
  const std::size_t begin = std::min(count, steps * r / p * kStep), end = std::min(count, steps * (r + 1) / p * kStep);
  return {.offset = begin, .count = end - begin};
}

template <typename T>
Errand errand(Collective operation, std::size_t count, std::uint64_t place) {
  return {.operation = operation, .element_bytes = sizeof(T), .count = count, .place = place};
}

/// How far each rank got in taking reduction memory, as a message.
struct MemoryMessage {
  std::int32_t descriptor = -1;
  std::array<char, 480> error{};
};
static_assert(sizeof(MemoryMessage) <= SharedControl::kMessageBytes);

}  // namespace

std::size_t SharedMemoryCommunicator::control_bytes() noexcept { return kBounceOffset + kBounceBytes; }

void SharedMemoryCommunicator::initialize_control(SharedSegment& segment, std::uint64_t nonce) {
  auto& control = *reinterpret_cast<SharedControl*>(segment.data());
  control.nonce = nonce;
  control.step.store(-1);
}

std::vector<SharedSegment> SharedMemoryCommunicator::attach_all(const PeerTable& peers, int own_rank,
                                                                SharedSegment own) {
  std::vector<SharedSegment> segments;
  for (int rank = 0; rank < peers.size(); ++rank) {
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

SharedMemoryCommunicator::SharedMemoryCommunicator(int rank, PeerTable peers, std::vector<SharedSegment> segments,
                                                   double deadline_seconds, Suspects& suspects)
    : Communicator(rank, peers.size()),
      peers_(std::move(peers)),
      controls_(std::move(segments)),
      deadline_seconds_(deadline_seconds),
      spin_(!peers_.oversubscribed()),
      suspects_(suspects),
      float_buffers_(controls_.size()),
      double_buffers_(controls_.size()),
      byte_buffers_(controls_.size()) {
  controls_[static_cast<std::size_t>(rank)].close_descriptor();
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() { control(rank()).farewell.store(1); }

std::byte* SharedMemoryCommunicator::bounce(int rank) const noexcept {
  return controls_[static_cast<std::size_t>(rank)].data() + kBounceOffset;
}

// Meetings ------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::meet(const Errand& own_errand) {
  SharedControl& own = control(rank());
  own.set_errand(++meeting_, own_errand);
  // Sequentially consistent against wait_for(): either this rank sees the sleeper, or the sleeper sees the arrival.
  own.arrived.store(meeting_, std::memory_order_seq_cst);
  if (own.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(own.arrived);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    if (!has_come(peer)) wait_for(peer, own_errand);
  }
  for (int peer = 0; peer < size(); ++peer) {
    const Errand theirs = control(peer).errand_at(meeting_);
    if (theirs == own_errand) continue;
    throw PeerError(
        fmt::format("the ranks have diverged: {} came for {}, {} for {}; last seen in {} and {}. Ending the job.",
                    peers_.describe(peer), theirs.describe(), peers_.describe(rank()), own_errand.describe(),
                    control(peer).last_seen(), own.last_seen()));
  }
}

bool SharedMemoryCommunicator::has_come(int peer) const noexcept {
  // The difference, not the order: the counter may wrap around.
  return static_cast<std::int32_t>(control(peer).arrived.load(std::memory_order_acquire) - meeting_) >= 0;
}

void SharedMemoryCommunicator::wait_for(int peer, const Errand& own_errand) {
  if (spin_) {
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
  Patience patience(deadline_seconds_);
  for (;;) {
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t seen = theirs.arrived.load(std::memory_order_seq_cst);
    if (static_cast<std::int32_t>(seen - meeting_) < 0) futex_wait(theirs.arrived, seen, kSliceMilliseconds);
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
    if (has_come(peer)) return;

    look_for_the_dead();
    std::vector<int> missing;
    bool excused = true;
    for (int rank = 0; rank < size(); ++rank) {
      if (has_come(rank)) continue;
      missing.push_back(rank);
      const ProcessState state = peers_.process_state(rank);
      excused = excused && control(rank).in_long_operation.load(std::memory_order_relaxed) != 0 &&
                state != ProcessState::stopped && state != ProcessState::gone;
    }
    if (patience.exhausted(excused) && !missing.empty()) blame(missing, own_errand, patience.waited());
  }
}

void SharedMemoryCommunicator::look_for_the_dead() {
  for (int peer = 0; peer < size(); ++peer) {
    if (has_come(peer) || peers_.process_state(peer) != ProcessState::gone) continue;
    // Dead, but perhaps it came before.
    if (!has_come(peer)) require_alive(peer);
  }
}

void SharedMemoryCommunicator::require_alive(int peer) {
  if (peers_.process_state(peer) != ProcessState::gone) return;
  // Perhaps it left in order, or took leave with an error of its own: then the launcher ends this rank too.
  if (control(peer).farewell.load() != 0) return;
  suspects_.mark(std::span(&peer, 1));
  throw PeerError(
      fmt::format("{} has died; last seen in {}. Its host's system log may say why (out of memory?). "
                  "Ending the job.",
                  peers_.describe(peer), control(peer).last_seen()));
}

void SharedMemoryCommunicator::blame(const std::vector<int>& culprits, const Errand& own_errand, double waited) {
  suspects_.mark(culprits);
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, culprits.size()); ++i) {
    text += fmt::format("{} has not arrived at {} for {} s; last seen in {}. {} ", peers_.describe(culprits[i]),
                        with_article(own_errand.operation), seconds_text(waited), control(culprits[i]).last_seen(),
                        explanation(peers_.process_state(culprits[i])));
  }
  if (culprits.size() > kNamed) text += fmt::format("The same goes for {} more ranks. ", culprits.size() - kNamed);
  throw PeerError(text + "Ending the job.");
}

void SharedMemoryCommunicator::do_barrier() { meet(errand<std::byte>(Collective::barrier, 0, 0)); }

// Sums ----------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_all_reduce_sum(std::span<float> data, const Wire&) { all_reduce(data); }
void SharedMemoryCommunicator::do_all_reduce_sum(std::span<double> data) { all_reduce(data); }

template <typename T>
void SharedMemoryCommunicator::all_reduce(std::span<T> data) {
  if (data.size_bytes() <= SharedControl::kMessageBytes) return all_reduce_small(data);
  std::vector<T*>* buffers = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    buffers = &float_buffers_;
  } else {
    buffers = &double_buffers_;
  }
  if (const std::uint64_t place = find_common(data, *buffers); place != 0) {
    return all_reduce_common(*buffers, data.size(), place);
  }
  constexpr std::size_t kPiece = kBounceBytes / sizeof(T);
  for (std::size_t offset = 0; offset < data.size(); offset += kPiece) {
    const std::span<T> piece = data.subspan(offset, std::min(kPiece, data.size() - offset));
    fill_bounce_buffers(*buffers);
    T* const own = (*buffers)[static_cast<std::size_t>(rank())];
    std::memcpy(own, piece.data(), piece.size_bytes());
    all_reduce_common(*buffers, piece.size(), 0);
    std::memcpy(piece.data(), own, piece.size_bytes());
  }
}

template <typename T>
void SharedMemoryCommunicator::all_reduce_small(std::span<T> data) {
  if (!data.empty()) std::memcpy(next_message(), data.data(), data.size_bytes());
  meet(errand<T>(Collective::all_reduce, data.size(), 0));
  if (data.empty()) return;
  std::memcpy(data.data(), message(0), data.size_bytes());
  for (int peer = 1; peer < size(); ++peer) add_to(data.data(), reinterpret_cast<const T*>(message(peer)), data.size());
}

template <typename T>
void SharedMemoryCommunicator::all_reduce_common(const std::vector<T*>& buffers, std::size_t count,
                                                 std::uint64_t place) {
  const Errand here = errand<T>(Collective::all_reduce, count, place);
  meet(here);
  const Slice piece = piece_of<T>(count, rank(), size());
  sum_into_all(std::span<T* const>(buffers), piece.offset, piece.offset + piece.count);
  meet(here);
}

void SharedMemoryCommunicator::do_reduce_scatter_sum(std::span<float> data, const Wire&) {
  const std::uint64_t place = find_common(data, float_buffers_);
  if (place == 0) return all_reduce(data);  // through the bounce buffers the sums pass every rank anyway
  const Errand here = errand<float>(Collective::reduce_scatter, data.size(), place);
  meet(here);
  const Slice own = own_slice(data.size(), rank());
  sum_into(data.data(), std::span<float* const>(float_buffers_), own.offset, own.offset + own.count);
  meet(here);
}

// Copies --------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_all_gather(std::span<float> data) {
  const std::uint64_t place = find_common(data, float_buffers_);
  const Errand here = errand<float>(Collective::all_gather, data.size(), place);
  if (place != 0) {
    meet(here);
    for (int peer = 0; peer < size(); ++peer) {
      const Slice slice = own_slice(data.size(), peer);
      if (peer == rank() || slice.count == 0) continue;
      std::memcpy(data.data() + slice.offset, float_buffers_[static_cast<std::size_t>(peer)] + slice.offset,
                  slice.count * sizeof(float));
    }
    meet(here);
    return;
  }
  const std::size_t longest = own_slice(data.size(), size() - 1).count;
  const bool small = longest * sizeof(float) <= SharedControl::kMessageBytes;
  const std::size_t round = small ? std::max<std::size_t>(longest, 1) : kBounceBytes / sizeof(float);
  const auto part = [&](int peer, std::size_t done) {
    const Slice slice = own_slice(data.size(), peer);
    return done >= slice.count ? std::span<float>()
                               : data.subspan(slice.offset + done, std::min(round, slice.count - done));
  };
  std::size_t done = 0;
  do {
    const std::span<float> own = part(rank(), done);
    if (!own.empty()) std::memcpy(small ? next_message() : bounce(rank()), own.data(), own.size_bytes());
    meet(here);
    for (int peer = 0; peer < size(); ++peer) {
      const std::span<float> theirs = part(peer, done);
      if (peer == rank() || theirs.empty()) continue;
      std::memcpy(theirs.data(), small ? message(peer) : bounce(peer), theirs.size_bytes());
    }
    if (!small) meet(here);
    done += round;
  } while (done < longest);
}

void SharedMemoryCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  const bool is_root = rank() == root;
  if (data.size() <= SharedControl::kMessageBytes) {
    if (is_root && !data.empty()) std::memcpy(next_message(), data.data(), data.size());
    meet(errand<std::byte>(Collective::broadcast, data.size(), 0));
    if (!is_root && !data.empty()) std::memcpy(data.data(), message(root), data.size());
    return;
  }
  const std::uint64_t place = find_common(data, byte_buffers_);
  const Errand here = errand<std::byte>(Collective::broadcast, data.size(), place);
  if (place != 0) {
    meet(here);
    if (!is_root) std::memcpy(data.data(), byte_buffers_[static_cast<std::size_t>(root)], data.size());
    meet(here);
    return;
  }
  for (std::size_t offset = 0; offset < data.size(); offset += kBounceBytes) {
    const std::span<std::byte> piece = data.subspan(offset, std::min(kBounceBytes, data.size() - offset));
    if (is_root) std::memcpy(bounce(root), piece.data(), piece.size());
    meet(here);
    if (!is_root) std::memcpy(piece.data(), bounce(root), piece.size());
    meet(here);
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

template <typename T>
void SharedMemoryCommunicator::fill_bounce_buffers(std::vector<T*>& buffers) const {
  for (int peer = 0; peer < size(); ++peer)
    buffers[static_cast<std::size_t>(peer)] = reinterpret_cast<T*>(bounce(peer));
}

template <typename T>
std::uint64_t SharedMemoryCommunicator::find_common(std::span<T> data, std::vector<T*>& buffers) {
  constexpr int kNumberShift = 44;  // 16 TiB of offsets
  const auto* const begin = reinterpret_cast<const std::byte*>(data.data());
  for (const auto& window : windows_) {
    const SharedSegment& own = window->segments[static_cast<std::size_t>(rank())];
    const auto offset = static_cast<std::size_t>(reinterpret_cast<std::uintptr_t>(begin) -
                                                 reinterpret_cast<std::uintptr_t>(own.data()));
    if (data.empty() || offset >= own.size() || own.size() - offset < data.size_bytes()) continue;
    for (std::size_t peer = 0; peer < buffers.size(); ++peer) {
      buffers[peer] = reinterpret_cast<T*>(window->segments[peer].data() + offset);
    }
    return window->number << kNumberShift | offset;
  }
  return 0;
}

std::unique_ptr<std::pmr::memory_resource> SharedMemoryCommunicator::do_reduction_memory(std::size_t bytes) {
  const std::size_t size_of_each = std::max(rounded_up(bytes), kReductionAlignment);
  const Errand here = errand<std::byte>(Collective::memory, size_of_each, 0);
  auto window = std::make_unique<Window>();
  window->number = ++windows_made_;
  MemoryMessage own;
  const auto note = [&own](const std::exception& error) {
    std::strncpy(own.error.data(), error.what(), own.error.size() - 1);
  };

  SharedSegment segment;
  try {
    if (const std::string shortage = memory_shortage(size_of_each, size(), read_meminfo()); !shortage.empty()) {
      throw std::runtime_error(shortage);
    }
    segment = SharedSegment::create(size_of_each);
    own.descriptor = segment.descriptor();
  } catch (const std::exception& error) {
    note(error);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  meet(here);  // everybody's segment is there
  std::vector<MemoryMessage> all(static_cast<std::size_t>(size()));
  for (int peer = 0; peer < size(); ++peer)
    std::memcpy(&all[static_cast<std::size_t>(peer)], message(peer), sizeof(own));
  try {
    for (int peer = 0; peer < size(); ++peer) {
      const std::int32_t descriptor = all[static_cast<std::size_t>(peer)].descriptor;
      if (descriptor < 0) break;  // it says why in its message
      window->segments.push_back(
          peer == rank() ? std::move(segment) : SharedSegment::attach(peers_.card(peer).pid, descriptor, size_of_each));
    }
  } catch (const std::exception& error) {
    note(error);
  }
  std::memcpy(next_message(), &own, sizeof(own));
  meet(here);  // everybody has mapped all of them, or has failed
  for (int peer = 0; peer < size(); ++peer) {
    MemoryMessage theirs;
    std::memcpy(&theirs, message(peer), sizeof(theirs));
    if (theirs.error[0] != '\0') {
      throw AgreedError(fmt::format("{}: {}", peers_.describe(peer), theirs.error.data()));
    }
  }
  SharedSegment& mine = window->segments[static_cast<std::size_t>(rank())];
  mine.close_descriptor();
  Window* const handle = window.get();
  windows_.push_back(std::move(window));
  return std::make_unique<ReductionMemory>(mine.data(), size_of_each, [this, handle] {
    std::erase_if(windows_, [&](const auto& candidate) { return candidate.get() == handle; });
  });
}

// What this rank is doing ---------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_note_activity(const char* what, std::int64_t step) noexcept {
  control(rank()).step.store(step, std::memory_order_relaxed);
  control(rank()).set_activity(what);
}

void SharedMemoryCommunicator::do_begin_long_operation(const char* what) {
  if (what) control(rank()).set_activity(what);
  control(rank()).in_long_operation.store(1, std::memory_order_relaxed);
}

void SharedMemoryCommunicator::do_end_long_operation() noexcept {
  control(rank()).in_long_operation.store(0, std::memory_order_relaxed);
}

double SharedMemoryCommunicator::do_set_deadline(double seconds) { return std::exchange(deadline_seconds_, seconds); }

bool SharedMemoryCommunicator::do_look_at_peers() {
  bool busy = false;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    require_alive(peer);
    busy = busy || (control(peer).in_long_operation.load(std::memory_order_relaxed) != 0 &&
                    peers_.process_state(peer) != ProcessState::stopped);
  }
  return busy;
}

}  // namespace lockstep::comm
