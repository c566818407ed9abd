#include "comm/shared_memory_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/agreement.hpp"
#include "comm/summation.hpp"

namespace lockstep::comm {
namespace {

template <typename T>
Errand errand(Collective operation, std::size_t count, std::uint64_t place) {
  return {.operation = operation, .element_bytes = sizeof(T), .count = count, .place = place};
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(int rank, PeerTable peers, std::vector<SharedSegment> segments,
                                                   double deadline_seconds, Suspects& suspects)
    : Communicator(rank, peers.size()),
      peers_(std::move(peers)),
      group_(peers_, all_ranks(peers_.size()), rank, std::move(segments), *this),
      deadline_seconds_(deadline_seconds),
      spin_(!peers_.oversubscribed()),
      suspects_(suspects),
      float_buffers_(static_cast<std::size_t>(peers_.size())),
      double_buffers_(float_buffers_.size()),
      byte_buffers_(float_buffers_.size()) {}

SharedMemoryCommunicator::~SharedMemoryCommunicator() { group_.own_control().farewell.store(1); }

// Waits ---------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::look_around(const Errand& own_errand, Patience& patience) {
  look_for_the_dead();
  std::vector<int> missing;
  bool excused = true;
  for (int peer = 0; peer < size(); ++peer) {
    if (group_.has_come(peer)) continue;
    missing.push_back(peer);
    const ProcessState state = peers_.process_state(peer);
    excused = excused && group_.control(peer).in_long_operation.load(std::memory_order_relaxed) != 0 &&
              state != ProcessState::stopped && state != ProcessState::gone;
  }
  if (patience.exhausted(excused) && !missing.empty()) blame(missing, own_errand, patience.waited());
}

void SharedMemoryCommunicator::look_for_the_dead() {
  for (int peer = 0; peer < size(); ++peer) {
    if (group_.has_come(peer) || peers_.process_state(peer) != ProcessState::gone) continue;
    // Dead, but perhaps it came before.
    if (!group_.has_come(peer)) require_alive(peer);
  }
}

void SharedMemoryCommunicator::require_alive(int peer) {
  if (peers_.process_state(peer) != ProcessState::gone) return;
  // Perhaps it left in order, or took leave with an error of its own: then the launcher ends this rank too.
  if (group_.control(peer).farewell.load() != 0) return;
  suspects_.mark_dead(peer);
  throw PeerError(
      fmt::format("{} has died; last seen in {}. Its host's system log may say why (out of memory?). "
                  "Ending the job.",
                  peers_.describe(peer), group_.control(peer).last_seen()));
}

void SharedMemoryCommunicator::blame(const std::vector<int>& culprits, const Errand& own_errand, double waited) {
  suspects_.mark(culprits);
  constexpr std::size_t kNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, culprits.size()); ++i) {
    text += fmt::format("{} has not arrived at {} for {} s; last seen in {}. {} ", peers_.describe(culprits[i]),
                        with_article(own_errand.operation), seconds_text(waited),
                        group_.control(culprits[i]).last_seen(), explanation(peers_.process_state(culprits[i])));
  }
  if (culprits.size() > kNamed) text += fmt::format("The same goes for {} more ranks. ", culprits.size() - kNamed);
  throw PeerError(text + "Ending the job.");
}

void SharedMemoryCommunicator::do_barrier() { group_.meet(errand<std::byte>(Collective::barrier, 0, 0)); }

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
  if (const std::uint64_t place = group_.find_common(data, *buffers); place != 0) {
    return all_reduce_common(*buffers, data.size(), place);
  }
  constexpr std::size_t kPiece = SharedGroup::kBounceBytes / sizeof(T);
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
  if (!data.empty()) std::memcpy(group_.next_message(), data.data(), data.size_bytes());
  group_.meet(errand<T>(Collective::all_reduce, data.size(), 0));
  if (data.empty()) return;
  std::memcpy(data.data(), group_.message(0), data.size_bytes());
  for (int peer = 1; peer < size(); ++peer)
    add_to(data.data(), reinterpret_cast<const T*>(group_.message(peer)), data.size());
}

template <typename T>
void SharedMemoryCommunicator::all_reduce_common(const std::vector<T*>& buffers, std::size_t count,
                                                 std::uint64_t place) {
  const Errand here = errand<T>(Collective::all_reduce, count, place);
  group_.meet(here);
  const Slice piece = piece_of<T>(count, rank(), size());
  sum_into(std::span<T* const>(buffers), std::span<T* const>(buffers), piece.offset, piece.offset + piece.count);
  group_.meet(here);
}

void SharedMemoryCommunicator::do_reduce_scatter_sum(std::span<float> data, const Wire&) {
  const std::uint64_t place = group_.find_common(data, float_buffers_);
  if (place == 0) return all_reduce(data);  // through the bounce buffers the sums pass every rank anyway
  const Errand here = errand<float>(Collective::reduce_scatter, data.size(), place);
  group_.meet(here);
  const Slice own = own_slice(data.size(), rank());
  float* const destination = data.data();
  sum_into(std::span(&destination, 1), std::span<float* const>(float_buffers_), own.offset, own.offset + own.count);
  group_.meet(here);
}

// Copies --------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_all_gather(std::span<float> data) {
  const std::uint64_t place = group_.find_common(data, float_buffers_);
  const Errand here = errand<float>(Collective::all_gather, data.size(), place);
  if (place != 0) {
    group_.meet(here);
    for (int peer = 0; peer < size(); ++peer) {
      const Slice slice = own_slice(data.size(), peer);
      if (peer == rank() || slice.count == 0) continue;
      std::memcpy(data.data() + slice.offset, float_buffers_[static_cast<std::size_t>(peer)] + slice.offset,
                  slice.count * sizeof(float));
    }
    group_.meet(here);
    return;
  }
  const std::size_t longest = own_slice(data.size(), size() - 1).count;
  const bool small = longest * sizeof(float) <= SharedControl::kMessageBytes;
  const std::size_t round = small ? std::max<std::size_t>(longest, 1) : SharedGroup::kBounceBytes / sizeof(float);
  const auto part = [&](int peer, std::size_t done) {
    const Slice slice = own_slice(data.size(), peer);
    return done >= slice.count ? std::span<float>()
                               : data.subspan(slice.offset + done, std::min(round, slice.count - done));
  };
  std::size_t done = 0;
  do {
    const std::span<float> own = part(rank(), done);
    if (!own.empty()) std::memcpy(small ? group_.next_message() : group_.bounce(rank()), own.data(), own.size_bytes());
    group_.meet(here);
    for (int peer = 0; peer < size(); ++peer) {
      const std::span<float> theirs = part(peer, done);
      if (peer == rank() || theirs.empty()) continue;
      std::memcpy(theirs.data(), small ? group_.message(peer) : group_.bounce(peer), theirs.size_bytes());
    }
    if (!small) group_.meet(here);
    done += round;
  } while (done < longest);
}

void SharedMemoryCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  const bool is_root = rank() == root;
  if (data.size() <= SharedControl::kMessageBytes) {
    if (is_root && !data.empty()) std::memcpy(group_.next_message(), data.data(), data.size());
    group_.meet(errand<std::byte>(Collective::broadcast, data.size(), 0));
    if (!is_root && !data.empty()) std::memcpy(data.data(), group_.message(root), data.size());
    return;
  }
  const std::uint64_t place = group_.find_common(data, byte_buffers_);
  const Errand here = errand<std::byte>(Collective::broadcast, data.size(), place);
  if (place != 0) {
    group_.meet(here);
    if (!is_root) std::memcpy(data.data(), byte_buffers_[static_cast<std::size_t>(root)], data.size());
    group_.meet(here);
    return;
  }
  for (std::size_t offset = 0; offset < data.size(); offset += SharedGroup::kBounceBytes) {
    const std::span<std::byte> piece = data.subspan(offset, std::min(SharedGroup::kBounceBytes, data.size() - offset));
    if (is_root) std::memcpy(group_.bounce(root), piece.data(), piece.size());
    group_.meet(here);
    if (!is_root) std::memcpy(piece.data(), group_.bounce(root), piece.size());
    group_.meet(here);
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

template <typename T>
void SharedMemoryCommunicator::fill_bounce_buffers(std::vector<T*>& buffers) const {
  for (int peer = 0; peer < size(); ++peer)
    buffers[static_cast<std::size_t>(peer)] = reinterpret_cast<T*>(group_.bounce(peer));
}

std::unique_ptr<std::pmr::memory_resource> SharedMemoryCommunicator::do_reduction_memory(std::size_t bytes) {
  std::string error;
  auto memory = group_.take_memory(bytes, error);
  if (!memory) throw AgreedError(error);
  return memory;
}

// What this rank is doing ---------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_note_activity(const char* what, std::int64_t step) noexcept {
  group_.own_control().step.store(step, std::memory_order_relaxed);
  group_.own_control().set_activity(what);
}

void SharedMemoryCommunicator::do_begin_long_operation(const char* what) {
  if (what) group_.own_control().set_activity(what);
  group_.own_control().in_long_operation.store(1, std::memory_order_relaxed);
}

void SharedMemoryCommunicator::do_end_long_operation() noexcept {
  group_.own_control().in_long_operation.store(0, std::memory_order_relaxed);
}

double SharedMemoryCommunicator::do_set_deadline(double seconds) { return std::exchange(deadline_seconds_, seconds); }

bool SharedMemoryCommunicator::do_look_at_peers() {
  bool busy = false;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    require_alive(peer);
    busy = busy || (group_.control(peer).in_long_operation.load(std::memory_order_relaxed) != 0 &&
                    peers_.process_state(peer) != ProcessState::stopped);
  }
  return busy;
}

}  // namespace lockstep::comm
