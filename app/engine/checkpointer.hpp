/// \file
/// Writes checkpoints concurrently with training: copies the state, then a thread writes the copy while the next steps
/// change the original. Either one rank writes everything, or several ranks write one part each and rank 0 writes the
/// file that joins them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

#include "app/engine/snapshot.hpp"
#include "app/report/stop_watch.hpp"
#include "comm/communicator.hpp"
#include "io/checkpoints/checkpoint.hpp"
#include "io/files/background_work.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// A complete checkpoint on the file system.
struct WrittenCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path file = {};
  std::filesystem::path best = {};  ///< best checkpoint of the run so far; empty: no checkpoint was validated
  double seconds = 0;               ///< seconds from the beginning of the copy until the checkpoint was complete
  /// Seconds that training on this rank waited: for the copy, and for the end of writing.
  double stall = 0;
};

/// For each checkpoint: wait() for the previous one, take(), then write(). poll() returns the checkpoint once it is
/// written. Until then call advance() after every step.
class Checkpointer {
 public:
  /// The saved objects; all must outlive the checkpointer.
  struct Context {
    comm::Communicator& communicator;  ///< between host memories
    comm::Communicator& sharing;       ///< between the host memories of the ranks that share the update, if any
    model::Training& training;
    std::span<const comm::Slice> buckets;    ///< buckets of ranks that share the update
    SequenceShare sequences = {};            ///< sequences of a network with recurrent state
    int writers = 1;                         ///< number of ranks that write
    std::vector<CarriedGroup> carried = {};  ///< further state; only with one writer
    std::pmr::memory_resource* memory;       ///< host memory for the copy; pinned if a device fills it
    double patience = 600;                   ///< seconds beyond the estimate for the number of bytes
  };
  /// Collective. Allocates the copy on the ranks that write. Throws comm::ConsensusError if there is too little memory.
  explicit Checkpointer(const Context& context);

  /// Call once on every rank, before the first write(). Rank 0 takes over the folder from earlier writers. `deadline`
  /// limits writing to the longest expected time for the bytes plus the deadline itself; it must outlive this object.
  void open(io::CheckpointWriterOptions options, io::IoDeadline* deadline = nullptr);

  /// See CheckpointWriter::validated(). Call on any rank, after open().
  void validated(std::int64_t step, double metric, double loss) {
    if (writer_) writer_->validated(step, metric, loss);
  }

  /// Collective. Copies the state. No checkpoint may be in progress.
  void take();
  /// Call on every rank, after take(). Starts writing the copy on ranks that are writers. Only rank 0's `record` is
  /// written.
  void write(const io::TrainingRecord& record);

  /// True while a checkpoint is being written, as far as this rank knows.
  bool under_way() const noexcept { return parts_are_written_ || work_.under_way(); }
  /// Collective if several ranks write. When the last part is written, starts to join the parts on rank 0 without
  /// waiting. Throws comm::ConsensusError if a part could not be written.
  void advance();
  /// Collective if several ranks write. Waits for the checkpoint in progress, if any; peers see this as a long
  /// operation (Communicator). Throws io::FileError if the file system does not respond in time, and
  /// comm::ConsensusError like advance().
  void wait();
  /// Rank 0: returns the checkpoint completed since the last call, without waiting. Rethrows the error of writing it.
  std::optional<WrittenCheckpoint> poll();

 private:
  /// Runs `work` concurrently with training, under the deadline.
  void start(std::function<void()> work);
  void write_part();
  void wait_for_work();
  void join_parts();

  Context context_;
  std::shared_ptr<Snapshot> snapshot_;
  SnapshotShare share_;
  double seconds_to_write_ = 0;  ///< longest expected time
  std::filesystem::path folder_;
  io::IoDeadline* deadline_ = nullptr;
  std::shared_ptr<io::CheckpointWriter> writer_;  ///< rank 0
  io::TrainingRecord record_;                     ///< record of the checkpoint in progress
  std::string attempt_;                         ///< name of the attempt, the same on all ranks; used with several parts
  bool parts_are_written_ = false;              ///< the same on all ranks
  std::shared_ptr<io::WrittenPart> part_;       ///< this rank's part; the writing thread fills it in
  std::shared_ptr<WrittenCheckpoint> written_;  ///< filled in by the writing thread
  StopWatch since_taken_;
  double stall_ = 0;  ///< stall of the checkpoint in progress, in seconds
  io::BackgroundWork work_;
};

}  // namespace lockstep::app
