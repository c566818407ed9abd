#include "comm/host/shared_memory_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "comm/consensus.hpp"
#include "comm/host/summation.hpp"
#include "comm/host/tree_sum.hpp"

namespace lockstep::comm {
namespace {

template <class T>
CollectiveCall call(Collective operation, std::size_t count, std::uint64_t address) {
  return {.operation = operation, .element_bytes = sizeof(T), .count = count, .address = address};
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

SharedMemoryCommunicator::SharedMemoryCommunicator(MpiSession::State& state, PeerTable peers,
                                                   SharedGroup::Shared shared, const CommunicatorOptions& options)
    : Communicator(state.rank, state.size),
      detector_(state, std::move(peers), options, urgency_),
      group_(all_ranks(state.size), std::move(shared), detector_),
      float_buffers_(static_cast<std::size_t>(state.size)),
      double_buffers_(float_buffers_.size()),
      byte_buffers_(float_buffers_.size()) {}

void SharedMemoryCommunicator::do_barrier() { group_.barrier(call<std::byte>(Collective::barrier, 0, 0)); }

// Sums ----------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_all_reduce(std::span<float> data) { all_reduce(data); }
void SharedMemoryCommunicator::do_all_reduce(std::span<double> data) { all_reduce(data); }

template <class T>
void SharedMemoryCommunicator::all_reduce(std::span<T> data) {
  if (data.size_bytes() <= SharedControl::kMessageBytes) return all_reduce_small(data);
  std::vector<T*>* buffers = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    buffers = &float_buffers_;
  } else {
    buffers = &double_buffers_;
  }
  if (const std::uint64_t address = group_.find_common(data, *buffers); address != 0) {
    return all_reduce_common(*buffers, data.size(), address);
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

template <class T>
void SharedMemoryCommunicator::all_reduce_small(std::span<T> data) {
  if (!data.empty()) std::memcpy(group_.next_message(), data.data(), data.size_bytes());
  group_.barrier(call<T>(Collective::all_reduce, data.size(), 0));
  if (data.empty()) return;
  std::memcpy(data.data(), group_.message(0), data.size_bytes());
  for (int peer = 1; peer < size(); ++peer)
    add_to(data.data(), reinterpret_cast<const T*>(group_.message(peer)), data.size());
}

template <class T>
void SharedMemoryCommunicator::all_reduce_common(const std::vector<T*>& buffers, std::size_t count,
                                                 std::uint64_t address) {
  const CollectiveCall here = call<T>(Collective::all_reduce, count, address);
  group_.barrier(here);
  const Slice piece = piece_of<T>(count, rank(), size());
  sum_into(std::span<T* const>(buffers), std::span<T* const>(buffers), piece.offset, piece.offset + piece.count);
  group_.barrier(here);
}

void SharedMemoryCommunicator::do_all_reduce(const TreeTerms& terms) {
  const SummationTree& tree = *terms.tree;
  const std::uint64_t address = group_.find_common(terms.data, float_buffers_);
  if (address == 0 && !terms.data.empty()) throw std::logic_error("a sum by a tree outside of the common memory");
  subtrees_.clear();
  for (int peer = 0; peer < size(); ++peer) {
    const float* const last = float_buffers_[static_cast<std::size_t>(peer)];
    for (int k = 0; k < tree.subtrees(peer); ++k) {
      // All ranks have it at the same distance from the data.
      subtrees_.push_back(last + (terms.subtree(k, tree.subtrees(peer)).data() - terms.data.data()));
    }
  }
  const CollectiveCall here = call<float>(Collective::all_reduce, terms.data.size(), address);
  group_.barrier(here);
  const Slice piece = piece_of<float>(terms.data.size(), rank(), size());
  tree_sum_into(float_buffers_, subtrees_, tree, piece.offset, piece.offset + piece.count);
  group_.barrier(here);
}

void SharedMemoryCommunicator::do_reduce_scatter(std::span<float> data) {
  const std::uint64_t address = group_.find_common(data, float_buffers_);
  if (address == 0) return all_reduce(data);  // bounce buffers carry the sums to every rank in any case
  const CollectiveCall here = call<float>(Collective::reduce_scatter, data.size(), address);
  group_.barrier(here);
  const Slice own = own_slice(data.size(), rank());
  float* const destination = data.data();
  sum_into(std::span(&destination, 1), std::span<float* const>(float_buffers_), own.offset, own.offset + own.count);
  group_.barrier(here);
}

// Copies --------------------------------------------------------------------------------------------------------------

void SharedMemoryCommunicator::do_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  const std::uint64_t address = group_.find_common(data, byte_buffers_);
  const CollectiveCall here = call<std::byte>(Collective::all_gather, data.size(), address);
  if (address != 0) {
    group_.barrier(here);
    for (int peer = 0; peer < size(); ++peer) {
      const Slice slice = own_bytes(data.size(), element_bytes, peer);
      if (peer == rank() || slice.count == 0) continue;
      std::memcpy(data.data() + slice.offset, byte_buffers_[static_cast<std::size_t>(peer)] + slice.offset,
                  slice.count);
    }
    group_.barrier(here);
    return;
  }
  const std::size_t longest = own_bytes(data.size(), element_bytes, size() - 1).count;
  const bool small = longest <= SharedControl::kMessageBytes;
  const std::size_t round = small ? std::max<std::size_t>(longest, 1) : SharedGroup::kBounceBytes;
  const auto part = [&](int peer, std::size_t done) {
    const Slice slice = own_bytes(data.size(), element_bytes, peer);
    return done >= slice.count ? std::span<std::byte>()
                               : data.subspan(slice.offset + done, std::min(round, slice.count - done));
  };
  std::size_t done = 0;
  do {
    const std::span<std::byte> own = part(rank(), done);
    if (!own.empty()) std::memcpy(small ? group_.next_message() : group_.bounce(rank()), own.data(), own.size());
    group_.barrier(here);
    for (int peer = 0; peer < size(); ++peer) {
      const std::span<std::byte> theirs = part(peer, done);
      if (peer == rank() || theirs.empty()) continue;
      std::memcpy(theirs.data(), small ? group_.message(peer) : group_.bounce(peer), theirs.size());
    }
    if (!small) group_.barrier(here);
    done += round;
  } while (done < longest);
}

void SharedMemoryCommunicator::do_broadcast(std::span<std::byte> data, int root) {
  const bool is_root = rank() == root;
  if (data.size() <= SharedControl::kMessageBytes) {
    if (is_root && !data.empty()) std::memcpy(group_.next_message(), data.data(), data.size());
    group_.barrier(call<std::byte>(Collective::broadcast, data.size(), 0));
    if (!is_root && !data.empty()) std::memcpy(data.data(), group_.message(root), data.size());
    return;
  }
  const std::uint64_t address = group_.find_common(data, byte_buffers_);
  const CollectiveCall here = call<std::byte>(Collective::broadcast, data.size(), address);
  if (address != 0) {
    group_.barrier(here);
    if (!is_root) std::memcpy(data.data(), byte_buffers_[static_cast<std::size_t>(root)], data.size());
    group_.barrier(here);
    return;
  }
  for (std::size_t offset = 0; offset < data.size(); offset += SharedGroup::kBounceBytes) {
    const std::span<std::byte> piece = data.subspan(offset, std::min(SharedGroup::kBounceBytes, data.size() - offset));
    if (is_root) std::memcpy(group_.bounce(root), piece.data(), piece.size());
    group_.barrier(here);
    if (!is_root) std::memcpy(piece.data(), group_.bounce(root), piece.size());
    group_.barrier(here);
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

template <class T>
void SharedMemoryCommunicator::fill_bounce_buffers(std::vector<T*>& buffers) const {
  for (int peer = 0; peer < size(); ++peer)
    buffers[static_cast<std::size_t>(peer)] = reinterpret_cast<T*>(group_.bounce(peer));
}

std::unique_ptr<std::pmr::memory_resource> SharedMemoryCommunicator::do_reduction_memory(std::size_t bytes, MemoryUse) {
  std::string error;
  auto memory = group_.take_memory(bytes, error);
  if (!memory) throw ConsensusError(error);
  return memory;
}

}  // namespace lockstep::comm
