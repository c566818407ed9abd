/// \file
/// One sum by doubling; comm/session/doubling.hpp defines the partners.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "comm/host/message_exchange.hpp"
#include "comm/host/ring_group.hpp"
#include "comm/host/summation.hpp"
#include "comm/session/doubling.hpp"

namespace lockstep::comm {

template <class T>
class DoublingSum {
 public:
  /// `ranks`: on the ring, in its order; `rounds`: doubling_rounds() of this position. `data`: this rank's terms, then
  /// the sums. All arguments outlive this.
  DoublingSum(std::span<const int> ranks, std::span<const DoublingRound> rounds, std::span<T> data, RoundMemory& memory,
              MessageExchange& exchange, Collective operation)
      : ranks_(ranks), rounds_(rounds), data_(data), memory_(memory), exchange_(exchange), operation_(operation) {
    memory_.in.resize(data.size_bytes());
  }

  /// After an error receives may still be posted, so this cancels them.
  ~DoublingSum() { exchange_.call_back(); }
  DoublingSum(const DoublingSum&) = delete;
  DoublingSum& operator=(const DoublingSum&) = delete;

  bool done() const { return round_ == rounds_.size(); }

  /// Does all work that needs no waiting; true if there was any.
  bool advance() {
    bool progress = false;
    while (!done()) {
      if (!std::exchange(under_way_, true)) begin_round();
      const Progress made = exchange_.advance(operation_);
      if (made != Progress::done) return progress || made == Progress::some;
      add_to(data_.data(), reinterpret_cast<const T*>(memory_.in.data()), data_.size());
      ++round_;
      under_way_ = false;
      progress = true;
    }
    return progress;
  }

 private:
  void begin_round() {
    const DoublingRound& round = rounds_[round_];
    std::ranges::transform(round.receiving(), to_.begin(), [this](int position) { return rank_at(position); });
    exchange_.start({.out = std::as_bytes(data_),
                     .to = std::span(to_).first(round.receiving().size()),
                     .in = memory_.in,
                     .from = rank_at(round.from)});
  }
  int rank_at(int position) const { return ranks_[static_cast<std::size_t>(position)]; }

  std::span<const int> ranks_;
  std::span<const DoublingRound> rounds_;
  std::span<T> data_;
  RoundMemory& memory_;
  MessageExchange& exchange_;
  Collective operation_;
  std::size_t round_ = 0;
  bool under_way_ = false;  ///< a round is under way
  std::array<int, 2> to_{};
};

}  // namespace lockstep::comm
