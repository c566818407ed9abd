#include "app/engine/checkpointer.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "comm/consensus.hpp"
#include "comm/host/memory_limit.hpp"
#include "comm/messages.hpp"
#include "io/files/durable_file.hpp"

namespace lockstep::app {

namespace {

/// Text form of a part for rank 0: "CHECKSUM FILE".
std::string to_text(const io::WrittenPart& part) { return fmt::format("{:016x} {}", part.checksum, part.file); }
io::WrittenPart part_from(std::string_view text) {
  io::WrittenPart part{.file = std::string(text.substr(17)), .checksum = 0};
  std::from_chars(text.data(), text.data() + 16, part.checksum, 16);
  return part;
}

}  // namespace

Checkpointer::Checkpointer(const Context& context) : context_(context), work_(context.patience) {
  comm::all_succeed(context.communicator, [&] {
    share_ = snapshot_share(context.training.parameters, context.buckets, context.communicator, context.sharing,
                            context.writers);
    const Snapshot::Options options{.share = share_, .sequences = context.sequences, .carried = context.carried};
    const std::size_t bytes = Snapshot::bytes(context.training, context.buckets, options);
    const std::string shortage = comm::memory_shortage(bytes, 1, comm::read_meminfo());
    if (!shortage.empty()) throw std::runtime_error("the copy that checkpoints are written from: " + shortage);
    seconds_to_write_ = io::IoDeadline::seconds_for(bytes);
    snapshot_ = std::make_shared<Snapshot>(context.training, context.buckets, options, context.memory);
  });
}

void Checkpointer::open(io::CheckpointWriterOptions options, io::IoDeadline* deadline) {
  folder_ = options.folder;
  deadline_ = deadline;
  if (context_.communicator.rank() != 0) return;
  const io::IoDeadline::Operation looking(deadline, io::IoDeadline::Kind::reading, folder_);
  writer_ = std::make_shared<io::CheckpointWriter>(std::move(options));
}

void Checkpointer::take() {
  if (parts_are_written_ || !work_.wait(0)) {
    throw std::logic_error("a checkpoint is being written from the copy that would be replaced");
  }
  since_taken_.lap();
  if (context_.writers > 1) {
    attempt_ = context_.communicator.rank() == 0 ? io::random_token().substr(0, 8) : "";
    attempt_ = broadcast_text(context_.communicator, attempt_);
    parts_are_written_ = true;
    part_.reset();
  }
  snapshot_->take(context_.communicator, context_.sharing, context_.training);
  stall_ = since_taken_.seconds();
}

void Checkpointer::write(const io::TrainingRecord& record) {
  written_ = std::make_shared<WrittenCheckpoint>(WrittenCheckpoint{.step = record.step});
  if (context_.writers > 1) {
    record_ = record;
    if (share_.writer >= 0) write_part();
  } else if (writer_) {
    start([record, folder = folder_, writer = writer_, snapshot = snapshot_, written = written_, watch = since_taken_] {
      written->file = writer->write(record, snapshot->tensors());
      written->best = io::best_checkpoint(folder);
      written->seconds = watch.seconds();
    });
  }
  stall_ = since_taken_.seconds();
}

void Checkpointer::start(std::function<void()> work) {
  work_.start([work = std::move(work), folder = folder_, deadline = deadline_, seconds = seconds_to_write_] {
    const io::IoDeadline::Operation writing(deadline, io::IoDeadline::Kind::writing, folder, seconds);
    work();
  });
}

void Checkpointer::write_part() {
  part_ = std::make_shared<io::WrittenPart>();
  const io::PartPlace place{
      .folder = folder_, .step = record_.step, .attempt = attempt_, .index = share_.writer, .count = context_.writers};
  start([place, snapshot = snapshot_, part = part_] { *part = io::write_checkpoint_part(place, snapshot->pieces()); });
}

void Checkpointer::advance() {
  if (!parts_are_written_) return;
  double writing = work_.wait(0) ? 0 : 1;
  context_.communicator.all_reduce(std::span(&writing, 1));
  context_.communicator.wait();
  if (writing == 0) join_parts();
}

/// Collective. Call when this rank's part is written. Joins the parts of all ranks to one checkpoint.
void Checkpointer::join_parts() {
  parts_are_written_ = false;
  comm::all_succeed(context_.communicator, [&] {
    work_.collect();
    if (share_.writer >= 0 && (!part_ || part_->file.empty())) throw std::logic_error("no part was written here");
  });
  io::SplitState split{.tensors = snapshot_->split_tensors(), .parts = {}};
  const std::vector<std::string> said = comm::all_gather_text(context_.communicator, part_ ? to_text(*part_) : "");
  if (!writer_) return;
  for (const std::string& text : said) {
    if (!text.empty()) split.parts.push_back(part_from(text));
  }
  start([record = record_, folder = folder_, writer = writer_, snapshot = snapshot_, written = written_,
         watch = since_taken_, split = std::move(split)] {
    written->file = writer->write(record, snapshot->recurrent(), split);
    written->best = io::best_checkpoint(folder);
    written->seconds = watch.seconds();
  });
}

void Checkpointer::wait() {
  if (!under_way()) return;
  const StopWatch watch;
  wait_for_work();
  if (parts_are_written_) {
    join_parts();
    wait_for_work();
  }
  stall_ += watch.seconds();
}

void Checkpointer::wait_for_work() {
  const comm::LongOperation writing(context_.communicator, "writing a checkpoint");
  if (work_.wait(context_.patience + seconds_to_write_)) return;
  work_.give_up();
  throw io::FileError(
      fmt::format("the checkpoint of step {} is not written after {:.0f} s: its file system does not answer. The "
                  "checkpoint before it is intact",
                  written_->step, since_taken_.seconds()));
}

std::optional<WrittenCheckpoint> Checkpointer::poll() {
  if (parts_are_written_ || !work_.collect()) return std::nullopt;
  written_->stall = std::min(stall_, written_->seconds);  // a rank that waits wakes up after the end of writing
  return *written_;
}

}  // namespace lockstep::app
