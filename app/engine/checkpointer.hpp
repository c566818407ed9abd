/// \file
/// Checkpoints beside the training: the state is copied, then a thread writes the copy while the next steps change the
/// original.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>

#include "app/engine/snapshot.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/communicator.hpp"
#include "io/background_work.hpp"
#include "io/checkpoint.hpp"

namespace lockstep::app {

/// A checkpoint that lies on the disk.
struct WrittenCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path file = {};
  double seconds = 0;  ///< from the beginning of the copy until it was safe
  double stall = 0;    ///< seconds that this rank stood still for it: the copy, and waits for its end
};

/// One checkpoint: wait() for the one before, take(), then write() on rank 0. It is written when poll() says so.
class Checkpointer {
 public:
  /// A file system that has not taken a checkpoint after so many seconds is given up.
  static constexpr double kPatience = 600;

  /// What is saved; all of it must outlive the checkpointer.
  struct Parts {
    comm::Communicator& communicator;  ///< between host memories
    model::Training& training;
    std::span<const comm::Slice> buckets;  ///< in which ranks that share the update do so
    std::int64_t sequences = 0;            ///< of the global batch, where the network carries state
    std::pmr::memory_resource* memory;     ///< of the host, for the copy; pinned where a device fills it
  };
  /// Collective. Takes the memory of the copy on rank 0. Throws comm::AgreedError where there is too little.
  explicit Checkpointer(const Parts& parts);

  /// Rank 0, once, before the first write().
  void open(io::CheckpointWriterOptions options);

  /// Collective. Copies the state. Nothing may be written any more.
  void take();
  /// Rank 0, after take(): begins to write the copy.
  void write(const io::TrainingRecord& record);

  bool under_way() const noexcept { return work_.under_way(); }
  /// Waits for the checkpoint under way, if there is one; inside a long operation (Communicator). Throws io::FileError
  /// when its file system does not answer for kPatience.
  void wait();
  /// The checkpoint that was under way and is written now; never waits. Rethrows what went wrong with it.
  std::optional<WrittenCheckpoint> poll();

 private:
  Parts parts_;
  std::shared_ptr<Snapshot> snapshot_;
  std::shared_ptr<io::CheckpointWriter> writer_;
  std::shared_ptr<WrittenCheckpoint> written_;  ///< the one under way; its thread fills in file and seconds
  StopWatch since_taken_;
  double stall_ = 0;  ///< of the one under way
  io::BackgroundWork work_{kPatience};
};

}  // namespace lockstep::app
