/// \file
/// One round of a sum that takes few rounds: a message goes to a rank or two while another comes from somebody else.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "comm/failure/failure_detector.hpp"

namespace lockstep::comm {

/// The bytes of a message travel in pieces, which go without asking first (ring_group.hpp has why). An empty message is
/// one empty piece, so that it, too, is waited for.
class MessageExchange {
 public:
  /// `detector` outlives this; `tag` is that of all messages.
  MessageExchange(FailureDetector& detector, int tag) : detector_(detector), tag_(tag) {}

  /// What goes to every rank of `to`, and what comes from rank `from`; -1: nothing comes. Both memories stay as they
  /// are until the round is done, or called back.
  struct Round {
    std::span<const std::byte> out = {};
    std::span<const int> to = {};
    std::span<std::byte> in = {};
    int from = -1;
  };
  void start(const Round& round);
  /// Does what can be done without waiting; done when everything has come and gone. Throws PeerError. `operation`: what
  /// the rank is in, for messages.
  Progress advance(Collective operation);
  /// After an error, receives are still posted into the memory of the round.
  void call_back() noexcept { comm::call_back(receives_); }

 private:
  /// The next pieces that have come, in their order; true: there were some.
  bool take_received(Collective operation);
  bool take_sent();

  FailureDetector& detector_;
  int tag_;
  int from_ = -1;
  std::vector<std::size_t> lengths_;  ///< of what comes, piece by piece
  std::vector<MPI_Request> receives_, sends_;
  std::size_t received_ = 0, sent_ = 0;  ///< pieces
};

}  // namespace lockstep::comm
