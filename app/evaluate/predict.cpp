#include "app/evaluate/predict.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "app/engine/file_watch.hpp"
#include "app/evaluate/trained_model.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/result_file.hpp"
#include "comm/agreement.hpp"
#include "io/runs/prediction_file.hpp"

namespace lockstep::app {

namespace {

/// exp(s_i - max) / sum, in float64.
void softmax(std::span<float> scores, std::vector<double>& powers) {
  const double greatest = *std::max_element(scores.begin(), scores.end());
  powers.clear();
  for (const float score : scores) powers.push_back(std::exp(score - greatest));
  const double sum = std::accumulate(powers.begin(), powers.end(), 0.0);
  std::transform(powers.begin(), powers.end(), scores.begin(),
                 [sum](double power) { return static_cast<float>(power / sum); });
}

/// Predictions of the data, a chunk of `chunk` samples for each rank in each round; the cuts do not depend on the
/// ranks.
class Rounds {
 public:
  Rounds(TrainedModel& subject, comm::Communicator& communicator)
      : subject_(subject),
        communicator_(communicator),
        data_(subject.dataset()),
        chunk_(std::min(subject.trained().validation.batch, data_.info().samples)),
        block_(chunk_ * kChunksInARound),
        outputs_(subject.source().record().network.outputs),
        has_targets_(!data_.info().y.name.empty()),
        // The slices of a gather are whole cache lines.
        score_stride_(aligned(static_cast<std::size_t>(block_ * outputs_))),
        target_stride_(aligned(static_cast<std::size_t>(block_) * data_.y_bytes() / sizeof(float))),
        x_(static_cast<std::size_t>(chunk_) * data_.x_bytes(), subject.model().host_memory()),
        y_(std::max(target_stride_ * sizeof(float), static_cast<std::size_t>(chunk_ * outputs_) * sizeof(float)),
           subject.model().host_memory()),
        memory_(communicator.reduction_memory((score_stride_ + target_stride_) * ranks() * sizeof(float) + 512,
                                              comm::MemoryUse::gathered)),
        scores_(score_stride_ * ranks(), memory_.get()),
        targets_(target_stride_ * ranks(), memory_.get()) {}

  /// Collective. All samples from `begin` on, where an earlier round ended; rank 0 writes.
  void run(std::int64_t begin, io::PredictionWriter* writer, io::IoDeadline& deadline,
           const std::filesystem::path& out) {
    const std::int64_t samples = data_.info().samples;
    std::exception_ptr error;
    while (begin < samples) {
      comm::all_succeed(communicator_, [&] {
        if (error) std::rethrow_exception(error);
        predict_block(begin + communicator_.rank() * block_);
      });
      communicator_.all_gather(std::span<float>(scores_));
      if (has_targets_) communicator_.all_gather(std::span<float>(targets_));
      communicator_.wait("gathering predictions");
      if (writer != nullptr) {
        try {
          const comm::LongOperation writing(communicator_, "writing predictions");
          const io::IoDeadline::Operation operation(&deadline, io::IoDeadline::Kind::writing, out);
          write(begin, *writer);
        } catch (...) {
          error = std::current_exception();
        }
      }
      begin += block_ * communicator_.size();
    }
    comm::all_succeed(communicator_, [&] {
      if (error) std::rethrow_exception(error);
    });
  }

 private:
  static std::size_t aligned(std::size_t elements) { return (elements + 15) / 16 * 16; }
  std::size_t ranks() const { return static_cast<std::size_t>(communicator_.size()); }
  std::int64_t count_from(std::int64_t first) const {
    return std::clamp<std::int64_t>(data_.info().samples - first, 0, block_);
  }

  /// This rank's block into its slices.
  void predict_block(std::int64_t first) {
    const std::int64_t end = first + count_from(first);
    const auto rank = static_cast<std::size_t>(communicator_.rank());
    const std::span<float> scores = std::span<float>(scores_).subspan(rank * score_stride_, score_stride_);
    const std::span<std::byte> targets =
        std::as_writable_bytes(std::span<float>(targets_).subspan(rank * target_stride_, target_stride_));
    for (std::int64_t begin = first; begin < end; begin += chunk_) {
      const auto behind = static_cast<std::size_t>(begin - first),
                 count = static_cast<std::size_t>(std::min(chunk_, end - begin));
      const auto outputs = static_cast<std::size_t>(outputs_);
      predict_chunk(begin, scores.subspan(behind * outputs, count * outputs),
                    targets.subspan(behind * data_.y_bytes(), count * data_.y_bytes()));
    }
  }

  void predict_chunk(std::int64_t first, std::span<float> scores, std::span<std::byte> targets) {
    const auto outputs = static_cast<std::size_t>(outputs_);
    samples_.resize(scores.size() / outputs);
    std::iota(samples_.begin(), samples_.end(), first);
    const std::span<std::byte> y = std::span(y_).first(targets.size());
    data_.read(samples_, io::kNoEpoch, std::span(x_).first(samples_.size() * data_.x_bytes()), y);
    std::copy(y.begin(), y.end(), targets.begin());
    subject_.model().predict({.x = x_.data(),
                              .x_type = element_type(data_.x_type()),
                              .y = y_.data(),
                              .count = static_cast<std::int64_t>(samples_.size())},
                             subject_.weights(), scores);
    if (subject_.loss() != model::LossKind::softmax_cross_entropy) return;
    for (std::size_t row = 0; row < samples_.size(); ++row) softmax(scores.subspan(row * outputs, outputs), powers_);
  }

  /// The blocks of all ranks, in the order of the samples.
  void write(std::int64_t begin, io::PredictionWriter& writer) {
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const std::int64_t count = count_from(begin + static_cast<std::int64_t>(rank) * block_);
      if (count == 0) return;
      const std::span<const std::byte> targets =
          std::as_bytes(std::span<float>(targets_).subspan(rank * target_stride_, target_stride_));
      writer.write(std::span<float>(scores_).subspan(rank * score_stride_, static_cast<std::size_t>(count * outputs_)),
                   targets.first(static_cast<std::size_t>(count) * data_.y_bytes()));
    }
  }

  TrainedModel& subject_;
  comm::Communicator& communicator_;
  const io::Dataset& data_;
  static constexpr std::int64_t kChunksInARound = 8;  // ranks wait for each other once in so many
  std::int64_t chunk_, block_, outputs_;              ///< samples, samples, scores of a sample
  bool has_targets_;
  std::size_t score_stride_, target_stride_;  ///< float32 of a rank's slice
  std::vector<std::int64_t> samples_;
  std::vector<double> powers_;
  std::pmr::vector<std::byte> x_, y_;
  std::unique_ptr<std::pmr::memory_resource> memory_;
  std::pmr::vector<float> scores_, targets_;  ///< of all ranks
};

io::PredictionContent content_of(const TrainedModel& subject) {
  const io::DatasetInfo& info = subject.dataset().info();
  const io::TrainingRecord& record = subject.source().record();
  return {.samples = info.samples,
          .outputs = record.network.outputs,
          .classes = subject.loss() == model::LossKind::softmax_cross_entropy,
          .targets = !info.y.name.empty(),
          .class_names = info.class_names,
          .about = {{"program", "lockstep " + record.program_version},
                    {"checkpoint", subject.source().file().filename().string()},
                    {"checkpoint_checksum", subject.source().checksum()},
                    {"network", io::to_text(record.network)},
                    {"weights", subject.average() ? "average" : "current"},
                    {"samples_at_once", fmt::format("{}", subject.trained().validation.batch)},
                    {"data", subject.dataset().fingerprint()}}};
}

}  // namespace

int run_predict(comm::MpiSession& session, const PredictOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto communicator =
      comm::make_communicator(session, {.transport = execution.transport,
                                        .deadline_seconds = execution.deadline,
                                        .excuse_seconds = execution.io_deadline + execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  TrainedModel subject(*communicator, console,
                       {.checkpoint = options.checkpoint,
                        .data = options.data,
                        .average = options.average,
                        .batch = options.batch,
                        .labels = TrainedModel::Labels::as_they_come},
                       execution, io_deadline);
  if (subject.source().record().network.tokens) {
    throw UsageError(
        "predict is for samples, and this network reads tokens: `lockstep generate` writes text with it, "
        "`lockstep eval` tells its perplexity");
  }
  std::optional<io::PredictionWriter> writer;
  std::int64_t begin = 0;
  comm::all_succeed(*communicator, [&] {
    if (communicator->rank() != 0) return;
    const io::IoDeadline::Operation creating(&io_deadline, io::IoDeadline::Kind::writing, options.out, 60);
    writer.emplace(options.out, content_of(subject),
                   options.force ? io::PredictionWriter::Existing::replace : io::PredictionWriter::Existing::refuse);
    begin = writer->done();
  });
  communicator->broadcast(std::as_writable_bytes(std::span(&begin, 1)), 0);
  communicator->wait();
  const std::int64_t samples = subject.dataset().info().samples;
  if (begin > 0) {
    console.info(fmt::format("going on behind the {} samples that an earlier job has left in {}.partial",
                             with_commas(begin), options.out.string()));
  }
  Rounds rounds(subject, *communicator);
  rounds.run(begin, writer ? &*writer : nullptr, io_deadline, options.out);
  comm::all_succeed(*communicator, [&] {
    if (!writer) return;
    const comm::LongOperation finishing(*communicator, "writing predictions");
    const io::IoDeadline::Operation operation(&io_deadline, io::IoDeadline::Kind::writing, options.out, 60);
    writer->finish();
    if (!options.csv.empty()) io::write_predictions_as_csv(options.out, options.csv);
  });
  console.info(fmt::format("{}: {} for {}, written to {}", subject.description(),
                           counted(static_cast<std::size_t>(samples), "prediction"), subject.data().string(),
                           options.out.string()));
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
