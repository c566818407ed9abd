#include "comm/host/two_level_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "comm/consensus.hpp"
#include "comm/host/summation.hpp"
#include "comm/session/rendezvous.hpp"

namespace lockstep::comm {
namespace {

/// Bytes per rank. With more ranks than cache lines in this size, each rank gets one line.
constexpr std::size_t kStagingBytes = 4 << 20;
constexpr std::size_t kLineBytes = 64;

Slice intersection(Slice one, Slice other) {
  const std::size_t begin = std::max(one.offset, other.offset);
  const std::size_t end = std::min(one.offset + one.count, other.offset + other.count);
  return {.offset = begin, .count = end > begin ? end - begin : 0};
}

std::size_t machine_of(int rank, const std::vector<std::vector<int>>& machines) {
  for (std::size_t i = 0; i < machines.size(); ++i) {
    if (std::binary_search(machines[i].begin(), machines[i].end(), rank)) return i;
  }
  return machines.size();
}

int least_ranks(const std::vector<std::vector<int>>& machines) {
  std::size_t least = std::numeric_limits<int>::max();
  for (const auto& ranks : machines) least = std::min(least, ranks.size());
  return static_cast<int>(least);
}

/// The ring's view of a machine's buffers: terms come from all of them, results go to all of them.
template <class T>
class MachineHandler final : public SegmentHandler {
 public:
  /// `slices`: owned by each rank of the session; `summed`: data is already the machine's sum.
  MachineHandler(SharedGroup& group, const std::vector<T*>& buffers, std::span<const Slice> slices, RingPhases phases,
                 bool summed)
      : group_(group), buffers_(buffers), slices_(slices), phases_(phases), summed_(summed) {}

  void load(Slice slice) override {
    T* const own = buffers_[static_cast<std::size_t>(group_.position())];
    if (phases_ == RingPhases::all_gather) {
      for_each_owner(slice, [&](T* buffer, Slice part) { copy(own, buffer, part); });
    } else if constexpr (std::is_same_v<T, std::byte>) {
      // gathered, never added
    } else if (!summed_) {
      sum_into(std::span(&own, 1), std::span<T* const>(buffers_), slice.offset, slice.offset + slice.count);
    }
    tell_of_progress();
  }

  void unload(Slice slice) override {
    const T* const own = buffers_[static_cast<std::size_t>(group_.position())];
    if (phases_ == RingPhases::reduce_scatter) {
      for_each_owner(slice, [&](T* buffer, Slice part) { copy(buffer, own, part); });
    } else {
      for (T* const buffer : buffers_) copy(buffer, own, slice);
    }
    tell_of_progress();
  }

 private:
  /// Calls visit(buffer, part) for the ranks of this machine that own parts of `slice`.
  template <class Visit>
  void for_each_owner(Slice slice, Visit visit) const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const Slice part = intersection(slice, slices_[static_cast<std::size_t>(group_.ranks()[i])]);
      if (part.count > 0) visit(buffers_[i], part);
    }
  }

  static void copy(T* to, const T* from, Slice slice) {
    if (to != from) std::memcpy(to + slice.offset, from + slice.offset, slice.count * sizeof(T));
  }

  void tell_of_progress() const { group_.own_control().progress.fetch_add(1, std::memory_order_relaxed); }

  SharedGroup& group_;
  const std::vector<T*>& buffers_;
  std::span<const Slice> slices_;
  RingPhases phases_;
  bool summed_;
};

}  // namespace

TwoLevelCommunicator::TwoLevelCommunicator(MpiSession::State& state, PeerTable peers, SharedGroup::Shared shared,
                                           const CommunicatorOptions& options)
    : NetworkCommunicator(state, std::move(peers), options),
      machines_(detector().peers().machines()),
      own_machine_(machine_of(state.rank, machines_)),
      rings_(least_ranks(machines_)),
      group_(machines_[own_machine_], std::move(shared), detector()),
      float_buffers_(machines_[own_machine_].size()),
      double_buffers_(machines_[own_machine_].size()),
      byte_buffers_(machines_[own_machine_].size()),
      slices_(static_cast<std::size_t>(state.size)) {
  if (group_.position() < rings_) {
    std::vector<int> leaders;
    for (const auto& ranks : machines_) leaders.push_back(ranks[static_cast<std::size_t>(group_.position())]);
    if (group_.position() == 0) urgent_.emplace(detector(), leaders, kUrgentTag);
    ring_.emplace(detector(), std::move(leaders));
  }
  const std::size_t bytes = std::max(kStagingBytes, slices_.size() * kLineBytes);
  staging_memory_ = take_memory(bytes);
  staging_ = {static_cast<std::byte*>(staging_memory_->allocate(bytes, kLineBytes)), bytes};
}

void TwoLevelCommunicator::do_map(std::span<std::byte> data, std::vector<std::byte*>& everywhere) const {
  std::vector<std::byte*> here(group_.ranks().size(), nullptr);
  group_.find_common(data, here);
  for (std::size_t i = 0; i < here.size(); ++i) everywhere[static_cast<std::size_t>(group_.ranks()[i])] = here[i];
}

// Sums and copies -----------------------------------------------------------------------------------------------------

void TwoLevelCommunicator::run_all_reduce(std::span<float> data) {
  if (data.size_bytes() <= SharedControl::kMessageBytes) return sum_small(data, Collective::all_reduce);
  carry_out(data, {.phases = RingPhases::all_reduce,
                   .operation = Collective::all_reduce,
                   .schedule = schedule_of(data.size_bytes()),
                   .wire = wire_of(data)});
}

void TwoLevelCommunicator::run_all_reduce(std::span<double> data) {
  if (data.size_bytes() <= SharedControl::kMessageBytes) return sum_small(data, Collective::all_reduce);
  carry_out(data, {.phases = RingPhases::all_reduce,
                   .operation = Collective::all_reduce,
                   .schedule = schedule_of(data.size_bytes())});
}

void TwoLevelCommunicator::run_reduce_scatter(std::span<float> data) {
  // The order of the additions is that of an all-reduce, too.
  if (data.size_bytes() <= SharedControl::kMessageBytes) return sum_small(data, Collective::reduce_scatter);
  carry_out(data, {.phases = RingPhases::reduce_scatter,
                   .operation = Collective::reduce_scatter,
                   .schedule = schedule_of(data.size_bytes()),
                   .wire = wire_of(data)});
}

void TwoLevelCommunicator::run_all_gather(std::span<std::byte> data, std::size_t element_bytes) {
  carry_out(data, {.phases = RingPhases::all_gather,
                   .operation = Collective::all_gather,
                   .schedule = schedule_of(data.size_bytes()),
                   .element_bytes = element_bytes});
}

void TwoLevelCommunicator::run_broadcast(std::span<std::byte> data, int root) {
  detector().enter();
  detector().broadcast(data, root);
}

void TwoLevelCommunicator::run_barrier() { sum_small(std::span<float>(), Collective::barrier); }

template <class T>
void TwoLevelCommunicator::sum_small(std::span<T> data, Collective operation) {
  detector().enter();
  const CollectiveCall here{.operation = operation, .element_bytes = sizeof(T), .count = data.size()};
  if (!data.empty()) std::memcpy(group_.next_message(), data.data(), data.size_bytes());
  group_.barrier(here);
  if (group_.position() == 0) {
    alignas(kLineBytes) std::array<T, SharedControl::kMessageBytes / sizeof(T)> sums;
    if (!data.empty()) std::memcpy(sums.data(), group_.message(0), data.size_bytes());
    for (int peer = 1; peer < group_.size(); ++peer) {
      add_to(sums.data(), reinterpret_cast<const T*>(group_.message(peer)), data.size());
    }
    ring_->sum_small(std::span(sums).first(data.size()), operation);
    if (!data.empty()) std::memcpy(group_.next_message(), sums.data(), data.size_bytes());
  }
  group_.barrier(here);
  if (!data.empty()) std::memcpy(data.data(), group_.message(0), data.size_bytes());
}

// Sums that overtake --------------------------------------------------------------------------------------------------

double* TwoLevelCommunicator::urgent_buffer(int position) const noexcept {
  static_assert(2 * kMaxUrgentBytes <= SharedGroup::kBounceBytes);
  return reinterpret_cast<double*>(group_.bounce(position) + urgent_number_ % 2 * kMaxUrgentBytes);
}

void TwoLevelCommunicator::begin_urgent(std::span<double> data) {
  urgent_data_ = data;
  urgent_travels_ = false;
  ++urgent_number_;
  if (!data.empty()) std::memcpy(urgent_buffer(group_.position()), data.data(), data.size_bytes());
  group_.own_control().urgent_count.store(data.size(), std::memory_order_relaxed);
  group_.own_control().urgent_brought.store(urgent_number_, std::memory_order_release);
}

Progress TwoLevelCommunicator::advance_urgent() {
  // Compares by difference: the counters may wrap around.
  const auto is_at = [this](const std::atomic<std::uint32_t>& counter) {
    return static_cast<std::int32_t>(counter.load(std::memory_order_acquire) - urgent_number_) >= 0;
  };
  bool progress = false;
  if (group_.position() == 0) {
    if (!urgent_travels_) {
      for (int peer = 1; peer < group_.size(); ++peer) {
        if (!is_at(group_.control(peer).urgent_brought)) return Progress::none;
      }
      start_urgent_sum();
      urgent_travels_ = progress = true;
    }
    if (const Progress made = urgent_->advance(); made != Progress::done) return progress ? Progress::some : made;
    group_.own_control().urgent_summed.store(urgent_number_, std::memory_order_release);
  } else if (!is_at(group_.control(0).urgent_summed)) {
    return Progress::none;
  }
  if (!urgent_data_.empty()) std::memcpy(urgent_data_.data(), urgent_buffer(0), urgent_data_.size_bytes());
  return Progress::done;
}

void TwoLevelCommunicator::start_urgent_sum() {
  double* const sums = urgent_buffer(0);
  const std::size_t count = urgent_data_.size();
  for (int peer = 1; peer < group_.size(); ++peer) {
    const std::uint64_t theirs = group_.control(peer).urgent_count.load(std::memory_order_relaxed);
    if (theirs != count) {
      detector().diverged(Collective::all_reduce, group_.ranks()[static_cast<std::size_t>(peer)],
                          static_cast<std::int64_t>(theirs * sizeof(double)), count * sizeof(double));
    }
    add_to(sums, urgent_buffer(peer), count);
  }
  urgent_parts_.clear();
  for (const auto& ranks : machines_) {
    for (const int owner : ranks) urgent_parts_.add(own_slice(count, owner));
    urgent_parts_.end_position();
  }
  const std::size_t bytes = urgent_data_.size_bytes();
  urgent_->begin({sums, count}, urgent_parts_,
                 bytes <= SharedControl::kMessageBytes ? AllReduceSchedule::doubling : schedule_of(bytes));
}

template <class T>
std::vector<T*>& TwoLevelCommunicator::buffers() {
  if constexpr (std::is_same_v<T, float>) {
    return float_buffers_;
  } else if constexpr (std::is_same_v<T, double>) {
    return double_buffers_;
  } else {
    return byte_buffers_;
  }
}

template <class T>
Slice TwoLevelCommunicator::owned_by(int rank, std::size_t count, const Task& task) const {
  return std::is_same_v<T, std::byte> ? own_bytes(count, task.element_bytes, rank) : own_slice(count, rank);
}

template <class T>
void TwoLevelCommunicator::carry_out(std::span<T> data, const Task& task) {
  detector().enter();
  const std::uint64_t address = group_.find_common(data, buffers<T>());
  if (address == 0) return carry_out_through_staging(data, task);
  for (int owner = 0; owner < size(); ++owner) {
    slices_[static_cast<std::size_t>(owner)] = owned_by<T>(owner, data.size(), task);
  }
  carry_out_in_place(data, buffers<T>(), address, task);
}

template <class T>
void TwoLevelCommunicator::carry_out_through_staging(std::span<T> data, const Task& task) {
  constexpr std::size_t kLine = kLineBytes / sizeof(T);
  const std::span<T> staging(reinterpret_cast<T*>(staging_.data()), staging_.size() / sizeof(T));
  const std::uint64_t address = group_.find_common(staging, buffers<T>());
  // Takes a share of every rank's slice at a time, so that all machines own as much of each round as of the whole.
  const std::size_t longest = owned_by<T>(size() - 1, data.size(), task).count;
  const std::size_t most = staging.size() / slices_.size() / kLine * kLine;
  const std::size_t share = std::min(most, (longest + kLine - 1) / kLine * kLine);
  for (std::size_t done = 0; done < longest; done += share) {
    /// Calls visit(offset in the data, offset in the staging window, count) for each rank's part of this round.
    const auto for_each_part = [&](bool all, auto visit) {
      for (int owner = 0; owner < size(); ++owner) {
        const Slice whole = owned_by<T>(owner, data.size(), task);
        const auto index = static_cast<std::size_t>(owner);
        slices_[index] = {.offset = index * share,
                          .count = whole.count > done ? std::min(share, whole.count - done) : 0};
        if ((all || owner == rank()) && slices_[index].count > 0) {
          visit(whole.offset + done, slices_[index].offset, slices_[index].count);
        }
      }
    };
    const auto copy = [](auto& to, std::size_t to_offset, const auto& from, std::size_t from_offset,
                         std::size_t count) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(from_offset), count,
                  to.begin() + static_cast<std::ptrdiff_t>(to_offset));
    };
    for_each_part(task.phases != RingPhases::all_gather, [&](std::size_t at, std::size_t staged, std::size_t count) {
      copy(staging, staged, data, at, count);
    });
    carry_out_in_place(staging.first(share * slices_.size()), buffers<T>(), address, task);
    for_each_part(
        task.phases != RingPhases::reduce_scatter,
        [&](std::size_t at, std::size_t staged, std::size_t count) { copy(data, at, staging, staged, count); });
  }
}

template <class T>
void TwoLevelCommunicator::carry_out_in_place(std::span<T> data, const std::vector<T*>& buffers, std::uint64_t address,
                                              const Task& task) {
  const CollectiveCall here{
      .operation = task.operation, .element_bytes = sizeof(T), .count = data.size(), .address = address};
  group_.barrier(here);  // all terms are written
  const bool helped = group_.size() > rings_ && task.phases != RingPhases::all_gather;
  if constexpr (!std::is_same_v<T, std::byte>) {
    if (helped) {
      const Slice piece = piece_of<T>(data.size(), group_.position(), group_.size());
      const std::span<T* const> all(buffers);
      sum_into(all.first(static_cast<std::size_t>(rings_)), all, piece.offset, piece.offset + piece.count);
      group_.barrier(here);  // all sums are written
    }
  }
  if (ring_) run_ring(data, buffers, helped, task);
  group_.barrier(here);  // all results are written
}

template <class T>
void TwoLevelCommunicator::run_ring(std::span<T> data, const std::vector<T*>& buffers, bool summed, const Task& task) {
  divide_among_machines<T>();
  MachineHandler<T> handler(group_, buffers, slices_, task.phases, summed);
  if (ring_->size() == 1) {
    for (const Slice& part : parts_.of(0)) handler.load(part), handler.unload(part);
  } else {
    const RingWork work{.phases = task.phases, .schedule = task.schedule, .operation = task.operation};
    if constexpr (std::is_same_v<T, float>) {
      ring_->run(data, parts_, task.wire, handler, work);
    } else {
      ring_->run(data, parts_, handler, work);
    }
  }
}

template <class T>
void TwoLevelCommunicator::divide_among_machines() {
  parts_.clear();
  for (const auto& ranks : machines_) {
    Slice run;  // merges the slices of consecutive ranks into one range
    const auto end_run = [&] {
      const Slice piece = piece_of<T>(run.count, group_.position(), rings_);
      if (piece.count > 0) parts_.add({.offset = run.offset + piece.offset, .count = piece.count});
    };
    for (const int owner : ranks) {
      const Slice& slice = slices_[static_cast<std::size_t>(owner)];
      if (slice.count == 0) continue;
      if (run.count > 0 && run.offset + run.count == slice.offset) {
        run.count += slice.count;
      } else {
        end_run();
        run = slice;
      }
    }
    end_run();
    parts_.end_position();
  }
}

// Memory --------------------------------------------------------------------------------------------------------------

std::unique_ptr<ReductionMemory> TwoLevelCommunicator::take_memory(std::size_t bytes) {
  std::string error;
  auto memory = group_.take_memory(bytes, error);
  double failures = memory ? 0 : 1;
  sum_small(std::span(&failures, 1), Collective::memory);
  if (failures == 0) return memory;
  using Text = std::array<char, 600>;
  Text own{};
  error.copy(own.data(), own.size() - 1);
  std::vector<Text> all(static_cast<std::size_t>(size()));
  exchange_bytes(detector().state(), std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)),
                 detector().deadline_seconds());
  for (const Text& text : all) {
    if (text[0] != '\0') throw ConsensusError(text.data());
  }
  throw ConsensusError("a machine has no memory to share");
}

}  // namespace lockstep::comm
