/// \file
/// One round of a sum in few rounds: sends a message to one or two ranks while another message arrives from one rank.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>
#include <vector>

#include "comm/failure/failure_detector.hpp"

namespace lockstep::comm {

/// The bytes of a message travel in pieces that need no rendezvous (ring_group.hpp has the reason). An empty message is
/// one empty piece, so that it is awaited, too.
class MessageExchange {
 public:
  /// `detector` outlives this; all messages have the tag `tag`.
  MessageExchange(FailureDetector& detector, int tag) : detector_(detector), tag_(tag) {}

  /// The message to every rank of `to`, and the message from rank `from`; -1: none. Both buffers must stay unchanged
  /// until the round is done or cancelled.
  struct Round {
    std::span<const std::byte> out = {};
    std::span<const int> to = {};
    std::span<std::byte> in = {};
    int from = -1;
  };
  void start(const Round& round);
  /// Does all work that needs no waiting; done when all messages have arrived and left. Throws PeerError. `operation`:
  /// the present collective, for messages.
  Progress advance(Collective operation);
  /// After an error, receives are still posted into the memory of the round.
  void call_back() noexcept {
    const std::lock_guard lock(*detector_.state().mpi);
    comm::call_back(receives_);
  }

 private:
  /// Takes the next pieces that have arrived, in their order; true if there were any.
  bool take_received(Collective operation);
  bool take_sent();

  FailureDetector& detector_;
  int tag_;
  int from_ = -1;
  std::vector<std::size_t> lengths_;  ///< length of each incoming piece
  std::vector<MPI_Request> receives_, sends_;
  std::size_t received_ = 0, sent_ = 0;  ///< number of pieces
};

}  // namespace lockstep::comm
