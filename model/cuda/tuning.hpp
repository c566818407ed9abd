/// \file
/// Chooses among the algorithms that a library proposes for a shape, and measures enqueued work.
#pragma once

#include <functional>

#include <cuda_runtime_api.h>

namespace lockstep::model::cuda {

enum class Tuning {
  first,  ///< the first acceptable one: cheap and deterministic
  timed,  ///< fastest of a few, measured at a shape's first use; runs may differ
};

/// True if work for this stream is being recorded. It cannot be timed then.
bool is_recorded(cudaStream_t stream);
/// Returns the milliseconds of `rounds` calls of `enqueue`, which enqueues work on the stream. The work is recorded and
/// replayed. Synchronises.
float time_of(cudaStream_t stream, int rounds, const std::function<void()>& enqueue);

}  // namespace lockstep::model::cuda
