/// \file
/// One sum by doubling; comm/session/doubling.hpp defines the partners.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "comm/host/ring_group.hpp"
#include "comm/host/sum_in_rounds.hpp"
#include "comm/host/summation.hpp"
#include "comm/session/doubling.hpp"

namespace lockstep::comm {

template <class T>
class DoublingSum final : public SumInRounds {
 public:
  /// `ranks`: on the ring, in its order; `rounds`: doubling_rounds() of this position. `data`: this rank's terms, then
  /// the sums. All arguments outlive this.
  DoublingSum(std::span<const int> ranks, std::span<const DoublingRound> rounds, std::span<T> data, RoundMemory& memory,
              MessageExchange& exchange, Collective operation)
      : SumInRounds(ranks, exchange, operation), rounds_(rounds), data_(data), memory_(memory) {
    memory_.in.resize(data.size_bytes());
  }

 private:
  bool done() const override { return round_ == rounds_.size(); }
  void begin_round() override {
    const DoublingRound& round = rounds_[round_];
    std::ranges::transform(round.receiving(), to_.begin(), [this](int position) { return rank_at(position); });
    start({.out = std::as_bytes(data_),
           .to = std::span(to_).first(round.receiving().size()),
           .in = memory_.in,
           .from = rank_at(round.from)});
  }
  void end_round() override {
    add_to(data_.data(), reinterpret_cast<const T*>(memory_.in.data()), data_.size());
    ++round_;
  }

  std::span<const DoublingRound> rounds_;
  std::span<T> data_;
  RoundMemory& memory_;
  std::size_t round_ = 0;
  std::array<int, 2> to_{};
};

}  // namespace lockstep::comm
