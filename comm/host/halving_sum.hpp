/// \file
/// One collective by halving. halving_rounds.hpp defines blocks and partners, ring_group.hpp the rounding. Private to
/// ring_group.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "comm/host/halving_rounds.hpp"
#include "comm/host/ring_group.hpp"
#include "comm/host/ring_sum.hpp"
#include "comm/host/sum_in_rounds.hpp"

namespace lockstep::comm {

/// Elements T travel as OnWire, as in RingSum.
template <class T, class OnWire>
class HalvingSum final : public SumInRounds {
 public:
  using Code = WireCode<OnWire>;
  static constexpr bool kRounds = !std::is_same_v<T, OnWire>;

  /// `ranks`: on the ring, in its order; `rounds`: halving_rounds() for their number. All arguments outlive this.
  HalvingSum(std::span<const int> ranks, std::span<const HalvingRound> rounds, int position, std::span<T> data,
             std::span<float> residual, const RingParts& parts, SegmentHandler& handler, RoundMemory& memory,
             MessageExchange& exchange, const RingWork& work)
      : SumInRounds(ranks, exchange, work.operation),
        rounds_(rounds),
        position_(position),
        data_(data),
        residual_(residual),
        parts_(parts),
        handler_(handler),
        memory_(memory),
        round_(work.phases == RingPhases::all_gather ? rounds.size() : 0),
        last_(work.phases == RingPhases::reduce_scatter ? rounds.size() : 2 * rounds.size()),
        loaded_(size()) {}

 private:
  bool done() const override { return round_ == last_; }
  bool reduces() const { return round_ < rounds_.size(); }
  /// The present round; the all-gather runs the rounds in reverse.
  const HalvingRound& round() const { return rounds_[reduces() ? round_ : 2 * rounds_.size() - 1 - round_]; }

  void begin_round() override {
    if constexpr (!std::is_same_v<T, std::byte>) {
      if (reduces()) {
        load_from(std::min(round().skip, loaded_));
        exchange(round().skip, round().skip, 0, round().blocks, [&](Slice slice) { return errors(slice); });
        return load_from(0);  // uses the time of the transfer
      }
    }
    if (gathers_only() && round_ == rounds_.size()) {
      for_each_slice(0, 1, [&](Slice slice) { handler_.load(slice); });
      for_each_slice(0, 1, [&](Slice slice) { handler_.unload(slice); });
    }
    exchange(-round().skip, 0, round().skip, round().blocks, [](Slice) -> float* { return nullptr; });
  }

  void end_round() override {
    const std::byte* from = memory_.in.data();
    if (!reduces()) {
      for_each_slice(round().skip, round().blocks, [&](Slice slice) {
        from = take(slice, from);
        handler_.unload(slice);
      });
      ++round_;
      return;
    }
    if constexpr (!std::is_same_v<T, std::byte>) {
      for_each_slice(0, round().blocks, [&](Slice slice) { from = add(slice, from); });
    }
    if (++round_ == rounds_.size()) end_reduction();
  }

  /// Finishes the reduction: the own block has the terms of all.
  void end_reduction() {
    if constexpr (kRounds) {
      const bool goes_on = !done();  // it will be gathered, so its owner keeps the rounded values
      for_each_slice(0, 1, [&](Slice slice) {
        if (goes_on) {
          Code::round_in_place(&data_[slice.offset], errors(slice), slice.count);
        } else if (float* const none = errors(slice)) {
          std::fill_n(none, slice.count, 0.0f);
        }
      });
    }
    for_each_slice(0, 1, [&](Slice slice) { handler_.unload(slice); });
  }

  bool gathers_only() const { return loaded_ == size(); }
  /// Loads blocks from `first` on with this rank's terms.
  void load_from(int first) {
    for_each_slice(first, loaded_ - first, [&](Slice slice) { load(slice); });
    loaded_ = std::min(loaded_, first);
  }

  /// Sends `blocks` blocks from `outgoing` on to the rank `distance` positions ahead, and receives as many for the
  /// blocks from `incoming` on.
  template <class Errors>
  void exchange(int distance, int outgoing, int incoming, int blocks, Errors errors) {
    memory_.out.resize(bytes_of(outgoing, blocks));
    memory_.in.resize(bytes_of(incoming, blocks));
    std::byte* to = memory_.out.data();
    for_each_slice(outgoing, blocks, [&](Slice slice) { to = pack(to, slice, errors(slice)); });
    to_ = rank_at(position_ + distance);
    start({.out = memory_.out, .to = {&to_, 1}, .in = memory_.in, .from = rank_at(position_ - distance)});
  }

  std::byte* pack(std::byte* to, Slice slice, [[maybe_unused]] float* errors) {
    if constexpr (kRounds) {
      Code::round(reinterpret_cast<OnWire*>(to), &data_[slice.offset], errors, slice.count);
    } else {
      std::memcpy(to, &data_[slice.offset], slice.count * sizeof(T));
    }
    return to + Code::bytes(slice.count);
  }

  const std::byte* add(Slice slice, const std::byte* from) {
    if constexpr (kRounds) {
      Code::add_to(&data_[slice.offset], reinterpret_cast<const OnWire*>(from), slice.count);
    } else {
      add_to(&data_[slice.offset], reinterpret_cast<const T*>(from), slice.count);
    }
    return from + Code::bytes(slice.count);
  }

  const std::byte* take(Slice slice, const std::byte* from) {
    if constexpr (kRounds) {
      Code::widen(&data_[slice.offset], reinterpret_cast<const OnWire*>(from), slice.count);
    } else {
      std::memcpy(&data_[slice.offset], from, slice.count * sizeof(T));
    }
    return from + Code::bytes(slice.count);
  }

  /// Loads data[slice] with this rank's term.
  void load(Slice slice) {
    handler_.load(slice);
    if constexpr (kRounds) {
      if (!residual_.empty()) add_to(&data_[slice.offset], errors(slice), slice.count);
    }
  }

  float* errors(Slice slice) const { return residual_.empty() ? nullptr : &residual_[slice.offset]; }

  /// Calls visit for blocks counted from this position's own. Skips empty slices.
  template <class Visit>
  void for_each_slice(int first, int blocks, Visit visit) const {
    for (int block = first; block < first + blocks; ++block) {
      for (const Slice& slice : parts_.of((position_ + block) % size())) {
        if (slice.count > 0) visit(slice);
      }
    }
  }
  std::size_t bytes_of(int first, int blocks) const {
    std::size_t bytes = 0;
    for_each_slice(first, blocks, [&](Slice slice) { bytes += Code::bytes(slice.count); });
    return bytes;
  }

  std::span<const HalvingRound> rounds_;
  int position_;
  std::span<T> data_;
  std::span<float> residual_;
  const RingParts& parts_;
  SegmentHandler& handler_;
  RoundMemory& memory_;
  std::size_t round_, last_;  ///< number of the round: first those of the sums, then those of the gathering
  int loaded_;                ///< first block that holds this rank's terms
  int to_ = 0;
};

}  // namespace lockstep::comm
