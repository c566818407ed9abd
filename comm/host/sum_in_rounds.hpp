/// \file
/// A sum in few rounds (halving, doubling). In each round a message leaves while another arrives.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "comm/host/message_exchange.hpp"
#include "comm/host/stepwise_sum.hpp"

namespace lockstep::comm {

class SumInRounds : public StepwiseSum {
 public:
  Progress advance() final {
    bool progress = false;
    while (!done()) {
      if (!std::exchange(under_way_, true)) begin_round();
      const Progress made = exchange_.advance(operation_);
      if (made != Progress::done) return progress ? Progress::some : made;
      end_round();
      under_way_ = false;
      progress = true;
    }
    return Progress::done;
  }

 protected:
  /// `ranks`: on the ring, in its order. All arguments outlive this.
  SumInRounds(std::span<const int> ranks, MessageExchange& exchange, Collective operation)
      : ranks_(ranks), exchange_(exchange), operation_(operation) {}
  ~SumInRounds() override { exchange_.call_back(); }

  void start(const MessageExchange::Round& round) { exchange_.start(round); }
  int size() const { return static_cast<int>(ranks_.size()); }
  int rank_at(int position) const { return ranks_[static_cast<std::size_t>((position + size()) % size())]; }

 private:
  virtual bool done() const = 0;
  /// Starts the messages of a round.
  virtual void begin_round() = 0;
  /// All messages have arrived and left.
  virtual void end_round() = 0;

  std::span<const int> ranks_;
  MessageExchange& exchange_;
  Collective operation_;
  bool under_way_ = false;  ///< a round is under way
};

}  // namespace lockstep::comm
