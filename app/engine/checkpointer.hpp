/// \file
/// Checkpoints beside the training: the state is copied, then a thread writes the copy while the next steps change the
/// original. One rank writes all of it, or several a part each, and rank 0 the file that joins them.
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

/// A checkpoint that lies on the disk.
struct WrittenCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path file = {};
  std::filesystem::path best = {};  ///< of the run, by now; empty: none was validated
  double seconds = 0;               ///< from the beginning of the copy until it was safe
  double stall = 0;                 ///< seconds that this rank stood still for it: the copy, and waits for its end
};

/// One checkpoint: wait() for the one before, take(), then write(). It is written when poll() says so; until then
/// advance() is called after every step.
class Checkpointer {
 public:
  /// What is saved; all of it must outlive the checkpointer.
  struct Parts {
    comm::Communicator& communicator;  ///< between host memories
    comm::Communicator& sharing;       ///< between those of ranks that share the update, where some do
    model::Training& training;
    std::span<const comm::Slice> buckets;    ///< in which ranks that share the update do so
    SequenceShare sequences = {};            ///< where the network carries state
    int writers = 1;                         ///< ranks that write
    std::vector<CarriedGroup> carried = {};  ///< of one writer
    std::pmr::memory_resource* memory;       ///< of the host, for the copy; pinned where a device fills it
    double patience = 600;                   ///< seconds beyond those that so many bytes may take
  };
  /// Collective. Takes the memory of the copy on the ranks that write. Throws comm::AgreedError where there is too
  /// little.
  explicit Checkpointer(const Parts& parts);

  /// On every rank, once, before the first write(); rank 0 takes the folder over from earlier writers. `deadline`,
  /// which outlives this, is that of writing: for as long as the bytes may take at the slowest, and the deadline
  /// itself.
  void open(io::CheckpointWriterOptions options, io::IoDeadline* deadline = nullptr);

  /// As CheckpointWriter's; on any rank, after open().
  void validated(std::int64_t step, double metric, double loss) {
    if (writer_) writer_->validated(step, metric, loss);
  }

  /// Collective. Copies the state. Nothing may be written any more.
  void take();
  /// On every rank, after take(): begins to write the copy where this rank is to. `record`: rank 0's counts.
  void write(const io::TrainingRecord& record);

  /// A checkpoint is on its way, as far as this rank is concerned.
  bool under_way() const noexcept { return parts_are_written_ || work_.under_way(); }
  /// Collective where several ranks write. When the last part is written rank 0 begins to join them; never waits for
  /// that. Throws comm::AgreedError where a part could not be written.
  void advance();
  /// Collective where several ranks write. Waits for the checkpoint under way, if there is one; inside a long operation
  /// (Communicator). Throws io::FileError when its file system does not answer for so long, comm::AgreedError as
  /// advance().
  void wait();
  /// Rank 0: the checkpoint that was under way and is written now; never waits. Rethrows what went wrong with it.
  std::optional<WrittenCheckpoint> poll();

 private:
  /// `work` beside the training, under the deadline.
  void start(std::function<void()> work);
  void write_part();
  void wait_for_work();
  void join_parts();

  Parts parts_;
  std::shared_ptr<Snapshot> snapshot_;
  SnapshotShare share_;
  double seconds_to_write_ = 0;  ///< at the slowest
  std::filesystem::path folder_;
  io::IoDeadline* deadline_ = nullptr;
  std::shared_ptr<io::CheckpointWriter> writer_;  ///< rank 0
  io::TrainingRecord record_;                     ///< of the checkpoint under way
  std::string attempt_;                           ///< its name, the same on all ranks, where there are parts
  bool parts_are_written_ = false;                ///< the same on all ranks
  std::shared_ptr<io::WrittenPart> part_;         ///< this rank's; its thread fills it in
  std::shared_ptr<WrittenCheckpoint> written_;    ///< likewise
  StopWatch since_taken_;
  double stall_ = 0;  ///< of the one under way
  io::BackgroundWork work_;
};

}  // namespace lockstep::app
