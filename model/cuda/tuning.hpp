/// \file
/// Chooses among the algorithms that a library proposes for a shape, and measures enqueued work.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace lockstep::model::cuda {

enum class Tuning {
  first,  ///< first acceptable one: cheap, and a run repeats
  timed,  ///< quickest of a few, measured at a shape's first use: two runs may choose differently
};

/// True if work for this stream is being recorded: then nothing can be timed.
bool is_recorded(cudaStream_t stream);
/// Milliseconds of `rounds` calls of `enqueue`, whose work goes to the stream, recorded and replayed. Waits for it.
float time_of(cudaStream_t stream, int rounds, const std::function<void()>& enqueue);

}  // namespace lockstep::model::cuda
