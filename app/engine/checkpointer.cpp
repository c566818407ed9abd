#include "app/engine/checkpointer.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "comm/agreement.hpp"
#include "comm/host/memory_limit.hpp"

namespace lockstep::app {

Checkpointer::Checkpointer(const Parts& parts) : parts_(parts) {
  comm::all_succeed(parts.communicator, [&] {
    const SnapshotOptions options{.keeps_all = parts.communicator.rank() == 0, .sequences = parts.sequences};
    const std::size_t bytes = Snapshot::bytes(parts.training, parts.buckets, options);
    const std::string shortage = comm::memory_shortage(bytes, 1, comm::read_meminfo());
    if (!shortage.empty()) throw std::runtime_error("the copy that checkpoints are written from: " + shortage);
    snapshot_ = std::make_shared<Snapshot>(parts.training, parts.buckets, options, parts.memory);
  });
}

void Checkpointer::open(io::CheckpointWriterOptions options) {
  writer_ = std::make_shared<io::CheckpointWriter>(std::move(options));
}

void Checkpointer::take() {
  if (!work_.wait(0)) throw std::logic_error("a checkpoint is being written from the copy that would be replaced");
  since_taken_.lap();
  snapshot_->take(parts_.communicator, parts_.training);
  stall_ = since_taken_.seconds();
}

void Checkpointer::write(const io::TrainingRecord& record) {
  written_ = std::make_shared<WrittenCheckpoint>(WrittenCheckpoint{.step = record.step});
  work_.start([record, writer = writer_, snapshot = snapshot_, written = written_, watch = since_taken_] {
    written->file = writer->write(record, snapshot->tensors());
    written->seconds = watch.seconds();
  });
  stall_ = since_taken_.seconds();
}

void Checkpointer::wait() {
  if (!under_way()) return;
  const StopWatch watch;
  const comm::LongOperation writing(parts_.communicator, "writing a checkpoint");
  const bool done = work_.wait(kPatience);
  stall_ += watch.seconds();
  if (done) return;
  throw io::FileError(
      fmt::format("the checkpoint of step {} is not written after {:.0f} s: its file system does not answer. The "
                  "checkpoint before it is intact",
                  written_->step, since_taken_.seconds()));
}

std::optional<WrittenCheckpoint> Checkpointer::poll() {
  if (!work_.collect()) return std::nullopt;
  written_->stall = stall_;
  return *written_;
}

}  // namespace lockstep::app
