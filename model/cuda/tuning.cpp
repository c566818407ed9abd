#include "model/cuda/tuning.hpp"

#include "model/cuda/graph_recorder.hpp"
#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

bool is_recorded(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "asking whether work is being recorded");
  return capture != cudaStreamCaptureStatusNone;
}

float time_of(cudaStream_t stream, int rounds, const std::function<void()>& enqueue) {
  const Event begin = make_timing_event(), end = make_timing_event();
  // Uses a recording, as a step does: without one, the host takes longer to enqueue a short product than the GPU takes
  // to run it.
  GraphRecorder recorder(stream, true);
  const auto all = [&] {
    for (int round = 0; round < rounds; ++round) enqueue();
  };
  for (int i = 0; i < 2; ++i) recorder.repeat({}, all);  // runs directly, then records
  check(cudaEventRecord(begin.get(), stream), "taking the time");
  recorder.repeat({}, all);
  check(cudaEventRecord(end.get(), stream), "taking the time");
  check(cudaEventSynchronize(end.get()), "timing algorithms");
  float time = 0;
  check(cudaEventElapsedTime(&time, begin.get(), end.get()), "taking the time");
  return time;
}

}  // namespace lockstep::model::cuda
