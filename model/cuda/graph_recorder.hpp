/// \file
/// Records repeated work once and replays it with one call: CUDA graphs.
///
/// A new key runs its work directly: libraries choose their plans, connect and allocate then, which they must not do
/// while a stream is recorded. At the second call everything that the work enqueues is recorded instead of run, on the
/// stream and on those that fork from it by events and join it again, and the recording is launched. From then on there
/// is only the launch: the work's host code does not run again, so values that change from step to step must lie in
/// device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/cuda/handles.hpp"

namespace lockstep::model::cuda {

class GraphRecorder {
 public:
  /// Largest number of recordings: further keys are never recorded, their work runs directly.
  static constexpr std::size_t kMaxRecordings = 32;

  /// `enabled` false: all work runs directly. The stream must outlive the recorder.
  GraphRecorder(cudaStream_t stream, bool enabled) : stream_(stream), enabled_(enabled) {}

  /// Inside a recording (a repeat within a repeat), work becomes part of that recording.
  void repeat(std::span<const std::int64_t> key, const std::function<void()>& work);
  bool recording() const noexcept { return recording_; }
  bool enabled() const noexcept { return enabled_; }
  /// Drops all recordings and forgets all keys. A recording that contains a communicator's kernels must be dropped
  /// before the communicator.
  void forget() noexcept { entries_.clear(); }

 private:
  struct Entry {
    std::vector<std::int64_t> key;
    GraphExec graph;  ///< null after the first call
  };
  GraphExec record(const std::function<void()>& work);

  cudaStream_t stream_;
  bool enabled_;
  bool recording_ = false;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::model::cuda
