/// \file
/// The streams of a backend's queues (Queue in operation_types.hpp), and the order that events make between them.
#pragma once

#include <array>

#include <cuda_runtime_api.h>

#include "model/cuda/handles.hpp"
#include "model/operation_types.hpp"

namespace lockstep::model::cuda {

class StreamQueues {
 public:
  /// The main stream must outlive the queues. `side_streams` false: all queues are that stream.
  StreamQueues(cudaStream_t main, bool side_streams);

  std::array<cudaStream_t, kSideQueues> side_streams() const noexcept { return {streams_[1], streams_[2]}; }
  /// Backend::order. While the stream of `before` is recorded, that of `after` becomes part of the recording.
  void order(Queue before, Queue after);
  /// Waits for all of them; a failure is reported by who waits for results.
  void drain() const noexcept;

 private:
  std::array<Stream, kSideQueues> owned_;
  std::array<cudaStream_t, 1 + kSideQueues> streams_;  ///< by queue
  /// By queue that others wait for. A wait is for what was recorded when it was enqueued, so one event each will do.
  std::array<Event, 1 + kSideQueues> reached_;
};

}  // namespace lockstep::model::cuda
