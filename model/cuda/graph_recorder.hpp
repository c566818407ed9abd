/// \file
/// Records repeated work once and replays it with one call: CUDA graphs.
///
/// The first call with a key runs the work directly: libraries then choose their plans, connect and allocate, which
/// they must not do while a stream is recorded. The second call records what the work enqueues, on the stream and on
/// streams that fork from it by events and join it again, and launches the recording. Later calls only launch it. The
/// host code of the work does not run again, so values that change from step to step must be in device memory.
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
  /// Largest number of recordings. Work with further keys always runs directly.
  static constexpr std::size_t kMaxRecordings = 32;

  /// enabled false: all work runs directly. The stream must outlive the recorder.
  GraphRecorder(cudaStream_t stream, bool enabled) : stream_(stream), enabled_(enabled) {}

  /// A call within work that is being recorded becomes part of that recording.
  void repeat(std::span<const std::int64_t> key, const std::function<void()>& work);
  bool recording() const noexcept { return recording_; }
  bool enabled() const noexcept { return enabled_; }
  /// Deletes all recordings and keys. Recordings that contain kernels of a communicator must be deleted before the
  /// communicator.
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
