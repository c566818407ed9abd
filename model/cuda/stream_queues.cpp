#include "model/cuda/stream_queues.hpp"

namespace lockstep::model::cuda {

StreamQueues::StreamQueues(cudaStream_t main, bool side_streams) {
  streams_.fill(main);
  for (Event& event : reached_) event = make_event();
  if (!side_streams) return;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    owned_[i] = make_stream();
    streams_[1 + i] = owned_[i].get();
  }
}

void StreamQueues::order(Queue before, Queue after) {
  const auto from = static_cast<std::size_t>(before), to = static_cast<std::size_t>(after);
  if (streams_[from] == streams_[to]) return;
  check(cudaEventRecord(reached_[from].get(), streams_[from]), "marking a place in a queue");
  check(cudaStreamWaitEvent(streams_[to], reached_[from].get(), 0), "waiting for another queue");
}

void StreamQueues::drain() const noexcept {
  for (const cudaStream_t stream : streams_) static_cast<void>(cudaStreamSynchronize(stream));
}

}  // namespace lockstep::model::cuda
