#include "model/cuda/graph_recorder.hpp"

#include <algorithm>

namespace lockstep::model::cuda {

void GraphRecorder::repeat(std::span<const std::int64_t> key, const std::function<void()>& work) {
  if (!enabled_ || recording_) return work();
  auto entry = std::ranges::find_if(entries_, [&](const Entry& each) { return std::ranges::equal(each.key, key); });
  if (entry == entries_.end()) {
    work();
    if (entries_.size() < kMaxRecordings) entries_.push_back({{key.begin(), key.end()}, nullptr});
    return;
  }
  if (entry->graph == nullptr) {
    entry->graph = record(work);
    check(cudaGraphUpload(entry->graph.get(), stream_), "uploading recorded work");
  }
  check(cudaGraphLaunch(entry->graph.get(), stream_), "launching recorded work");
}

GraphExec GraphRecorder::record(const std::function<void()>& work) {
  // Thread-local mode: other threads (prefetching, the communicator) may call any CUDA function. They may also enqueue
  // into the recording, as NCCL's thread does, but only the thread that began a recording may end it.
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "beginning to record work");
  recording_ = true;
  cudaGraph_t recorded = nullptr;
  try {
    work();
  } catch (...) {
    recording_ = false;
    static_cast<void>(cudaStreamEndCapture(stream_, &recorded));
    const Graph drop(recorded);
    static_cast<void>(cudaGetLastError());
    throw;
  }
  recording_ = false;
  const cudaError_t ended = cudaStreamEndCapture(stream_, &recorded);
  const Graph graph(recorded);
  check(ended, "recording work (it runs unrecorded with --no-graph)");
  cudaGraphExec_t executable = nullptr;
  // With this flag, collectives keep the high priority of their stream.
  check(cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority),
        "preparing recorded work (it runs unrecorded with --no-graph)");
  return GraphExec(executable);
}

}  // namespace lockstep::model::cuda
