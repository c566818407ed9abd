#include "comm/host/ring_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/host/ring_schedule.hpp"
#include "comm/host/summation.hpp"
#include "comm/session/mpi_state.hpp"

namespace lockstep::comm {
namespace {

constexpr int kSmallTag = 3;

}  // namespace

RingGroup::RingGroup(FailureDetector& detector, std::vector<int> ranks)
    : detector_(detector),
      ranks_(std::move(ranks)),
      position_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), detector.state().rank) - ranks_.begin())),
      small_terms_(ranks_.size() * kSmallBytes) {}

void RingGroup::run(std::span<float> data, const RingParts& parts, RingPhases phases, const Wire& wire,
                    SegmentHandler& handler, Collective operation) {
  switch (wire.format) {
    case WireFormat::fp32:
      return run_as<float, float>(data, {}, parts, phases, handler, operation);
    case WireFormat::bf16:
    case WireFormat::bf16_feedback:
      return run_as<float, Bf16>(data, wire.residual, parts, phases, handler, operation);
    case WireFormat::int8_feedback:
      return run_as<float, Int8Blocks>(data, wire.residual, parts, phases, handler, operation);
  }
}

void RingGroup::run(std::span<double> data, const RingParts& parts, RingPhases phases, SegmentHandler& handler,
                    Collective operation) {
  run_as<double, double>(data, {}, parts, phases, handler, operation);
}

void RingGroup::run(std::span<std::byte> data, const RingParts& parts, SegmentHandler& handler) {
  run_as<std::byte, std::byte>(data, {}, parts, RingPhases::all_gather, handler, Collective::all_gather);
}

template <class T, class OnWire>
void RingGroup::run_as(std::span<T> data, std::span<float> residual, const RingParts& parts, RingPhases phases,
                       SegmentHandler& handler, Collective operation) {
  using Schedule = RingSchedule<T, OnWire>;
  if (size() == 1) return;
  if (staging_.size() < Schedule::kStagingBytes) staging_.resize(Schedule::kStagingBytes);
  const RingPosition ring{
      .size = size(), .position = position_, .previous = rank_at(position_ - 1), .following = rank_at(position_ + 1)};
  Schedule schedule(ring, detector_.state(), data, residual, parts, handler, phases, staging_);
  try {
    detector_.wait_until_done(operation, [&] {
      const bool progress = schedule.advance();
      return schedule.done() ? Progress::done : progress ? Progress::some : Progress::none;
    });
  } catch (const LengthError& error) {
    detector_.diverged(operation, ring.previous, error.got, error.expected);
  }
}

void RingGroup::sum_small(std::span<float> data, Collective operation) { sum_small_of(data, operation); }
void RingGroup::sum_small(std::span<double> data, Collective operation) { sum_small_of(data, operation); }

template <class T>
void RingGroup::sum_small_of(std::span<T> data, Collective operation) {
  // After the round of distance d, the first 2d entries hold the terms of positions position_, position_ + 1, …
  MpiSession::State& state = detector_.state();
  const std::size_t bytes = data.size_bytes();
  if (bytes > 0) std::memcpy(small_terms_.data(), data.data(), bytes);
  for (int distance = 1; distance < size(); distance *= 2) {
    const std::size_t block = bytes * static_cast<std::size_t>(std::min(distance, size() - distance));
    const int to = rank_at(position_ - distance), from = rank_at(position_ + distance);
    std::array<MPI_Request, 2> requests{};
    check(MPI_Isend(small_terms_.data(), static_cast<int>(block), MPI_BYTE, to, kSmallTag, state.data, &requests[0]),
          "MPI_Isend", state, to);
    check(MPI_Irecv(small_terms_.data() + bytes * static_cast<std::size_t>(distance), static_cast<int>(block), MPI_BYTE,
                    from, kSmallTag, state.data, &requests[1]),
          "MPI_Irecv", state, from);
    detector_.wait_for(requests, operation, static_cast<std::int64_t>(block));
  }
  for (int term = 0; term < size() && bytes > 0; ++term) {
    const int entry = (term - position_ + size()) % size();
    const auto* const values =
        reinterpret_cast<const T*>(small_terms_.data() + bytes * static_cast<std::size_t>(entry));
    if (term == 0) {
      std::memcpy(data.data(), values, bytes);
    } else {
      add_to(data.data(), values, data.size());
    }
  }
}

}  // namespace lockstep::comm
