/// \file
/// How an algorithm is chosen among those that a library proposes for a shape, and the time that enqueued work takes.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace lockstep::model::cuda {

enum class Tuning {
  first,  ///< the first that will do: cheap, and a run repeats
  timed,  ///< the quickest of a few as measured when its shape comes first: two runs may choose differently
};

/// Whether work for this stream is being recorded: then nothing can be timed.
bool is_recorded(cudaStream_t stream);
/// Milliseconds of `rounds` calls of `enqueue`, whose work goes to the stream, recorded and replayed. Waits for it.
float time_of(cudaStream_t stream, int rounds, const std::function<void()>& enqueue);

}  // namespace lockstep::model::cuda
