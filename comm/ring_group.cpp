#include "comm/ring_group.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "comm/mpi_state.hpp"
#include "comm/ring_journey.hpp"
#include "comm/summation.hpp"

namespace lockstep::comm {
namespace {

constexpr int kSmallTag = 3;

}  // namespace

RingGroup::RingGroup(PeerWatch& watch, std::vector<int> ranks)
    : watch_(watch),
      ranks_(std::move(ranks)),
      position_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), watch.state().rank) - ranks_.begin())),
      small_terms_(ranks_.size() * kSmallBytes) {}

void RingGroup::travel(std::span<float> data, const RingParts& parts, RingTrip trip, const Wire& wire,
                       RingStation& station, Collective operation) {
  if (wire.bf16 && trip != RingTrip::all_gather) {
    travel_as<float, Bf16>(data, wire.residual, parts, trip, station, operation);
  } else {
    travel_as<float, float>(data, {}, parts, trip, station, operation);
  }
}

void RingGroup::travel(std::span<double> data, const RingParts& parts, RingTrip trip, RingStation& station,
                       Collective operation) {
  travel_as<double, double>(data, {}, parts, trip, station, operation);
}

template <typename T, typename OnWire>
void RingGroup::travel_as(std::span<T> data, std::span<float> residual, const RingParts& parts, RingTrip trip,
                          RingStation& station, Collective operation) {
  using Journey = RingJourney<T, OnWire>;
  if (size() == 1) return;
  if (staging_.size() < Journey::kStagingBytes) staging_.resize(Journey::kStagingBytes);
  const RingPlace place{
      .size = size(), .position = position_, .previous = rank_at(position_ - 1), .following = rank_at(position_ + 1)};
  Journey journey(place, watch_.state(), data, residual, parts, station, trip, staging_);
  try {
    watch_.wait_until_done(operation, [&] {
      const bool progress = journey.advance();
      return journey.done() ? Progress::done : progress ? Progress::some : Progress::none;
    });
  } catch (const LengthError& error) {
    watch_.diverged(operation, place.previous, error.got, error.expected);
  }
}

void RingGroup::sum_small(std::span<float> data, Collective operation) { sum_small_of(data, operation); }
void RingGroup::sum_small(std::span<double> data, Collective operation) { sum_small_of(data, operation); }

template <typename T>
void RingGroup::sum_small_of(std::span<T> data, Collective operation) {
  // After the round of distance d, the first 2d places hold the terms of positions position_, position_ + 1, …
  MpiSession::State& state = watch_.state();
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
    watch_.wait_for(requests, operation, static_cast<std::int64_t>(block));
  }
  for (int term = 0; term < size() && bytes > 0; ++term) {
    const int place = (term - position_ + size()) % size();
    const auto* const values =
        reinterpret_cast<const T*>(small_terms_.data() + bytes * static_cast<std::size_t>(place));
    if (term == 0) {
      std::memcpy(data.data(), values, bytes);
    } else {
      add_to(data.data(), values, data.size());
    }
  }
}

}  // namespace lockstep::comm
