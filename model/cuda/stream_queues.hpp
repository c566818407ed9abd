/// \file
/// The streams of a backend's queues (Queue in operation_types.hpp), ordered by events.
#pragma once

#include <array>

#include <cuda_runtime_api.h>

#include "model/cuda/handles.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cuda {

class StreamQueues {
 public:
  /// The main stream must outlive the queues. side_streams false: all queues use the main stream.
  StreamQueues(cudaStream_t main, bool side_streams);

  std::array<cudaStream_t, kSideQueues> side_streams() const noexcept { return {streams_[1], streams_[2]}; }
  /// Implements Backend::order. If the stream of `before` is being recorded, the stream of `after` becomes part of the
  /// recording.
  void order(Queue before, Queue after);
  /// Waits for all streams. Ignores failures, which the next wait for results reports.
  void drain() const noexcept;

 private:
  std::array<Stream, kSideQueues> owned_;
  std::array<cudaStream_t, 1 + kSideQueues> streams_;  ///< by queue
  /// By queue: event for which other queues wait. A wait refers to the last record at the time when it is enqueued, so
  /// one event per queue suffices.
  std::array<Event, 1 + kSideQueues> reached_;
};

}  // namespace lockstep::model::cuda
