#include "app/evaluate/predict.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "app/engine/answer_metric.hpp"
#include "app/engine/file_watch.hpp"
#include "app/evaluate/scorer.hpp"
#include "app/evaluate/trained_model.hpp"
#include "app/place/placement.hpp"
#include "app/plan/work_plan.hpp"
#include "app/report/console.hpp"
#include "app/report/figures.hpp"
#include "app/report/program_build.hpp"
#include "app/report/result_file.hpp"
#include "comm/consensus.hpp"
#include "io/runs/prediction_file.hpp"

namespace lockstep::app {

namespace {

/// Predicts the data in rounds. In each round every rank computes a block of chunks, and the ranks send their blocks to
/// rank 0 one after the other. A rank holds two blocks, at any number of ranks. Blocks become smaller towards the end,
/// so that the ranks share the last chunks evenly. The cuts between chunks do not depend on the ranks.
class Rounds {
 public:
  Rounds(TrainedModel& subject, comm::Communicator& communicator)
      : communicator_(communicator),
        data_(subject.dataset()),
        chunk_(std::min(subject.batch(), data_.info().samples)),
        scorer_(subject, chunk_),
        is_of_masks_(subject.task().has_masks()),
        answers_(is_of_masks_ ? scorer_.positions() : scorer_.outputs()),
        sample_bytes_(answers_ * sizeof(float) + scorer_.target_bytes()),
        scores_(is_of_masks_ ? static_cast<std::size_t>(chunk_) * scorer_.outputs() : 0),
        most_chunks_(std::clamp<std::int64_t>(
            kBlockBytes / std::max<std::int64_t>(1, chunk_ * static_cast<std::int64_t>(sample_bytes_)), 1, kMaxChunks)),
        own_(static_cast<std::size_t>(most_chunks_ * chunk_) * sample_bytes_),
        of_another_(communicator.size() > 1 ? own_.size() : 0) {}

  /// Collective. Predicts all samples from `begin` on, where an earlier call ended; rank 0 writes them.
  void run(std::int64_t begin, io::PredictionWriter* writer, io::IoDeadline& deadline,
           const std::filesystem::path& out) {
    const std::int64_t samples = data_.info().samples, ranks = communicator_.size();
    std::exception_ptr error;
    while (begin < samples) {
      const std::int64_t chunks = divide_up(samples - begin, chunk_);
      const std::int64_t block = chunk_ * std::min(most_chunks_, divide_up(chunks, ranks));
      comm::all_succeed(communicator_, [&] {
        if (error) std::rethrow_exception(error);
        predict_block(begin + communicator_.rank() * block, block);
      });
      for (int rank = 0; rank < communicator_.size(); ++rank) {
        const std::int64_t count = count_from(begin + rank * block, block);
        if (count == 0) break;
        const Block computed(rank == communicator_.rank() ? own_ : of_another_, count, answers_, sample_bytes_);
        communicator_.broadcast(computed.bytes, rank);
        communicator_.wait("gathering predictions");
        if (writer == nullptr || error) continue;
        try {
          const comm::LongOperation writing(communicator_, "writing predictions");
          const io::IoDeadline::Operation operation(&deadline, io::IoDeadline::Kind::writing, out);
          if (is_of_masks_) {
            writer->write_masks(computed.classes, computed.targets);
          } else {
            writer->write(computed.scores, computed.targets);
          }
        } catch (...) {
          error = std::current_exception();
        }
      }
      begin += block * ranks;
    }
    comm::all_succeed(communicator_, [&] {
      if (error) std::rethrow_exception(error);
    });
  }

 private:
  /// Scores of samples, or classes of the positions of masks, followed by the targets.
  struct Block {
    Block(std::vector<std::byte>& memory, std::int64_t count, std::size_t answers, std::size_t sample_bytes)
        : bytes(std::span(memory).first(static_cast<std::size_t>(count) * sample_bytes)),
          scores(reinterpret_cast<float*>(memory.data()), static_cast<std::size_t>(count) * answers),
          classes(reinterpret_cast<std::int32_t*>(memory.data()), scores.size()),
          targets(bytes.subspan(scores.size_bytes())) {}
    std::span<std::byte> bytes;
    std::span<float> scores;
    std::span<std::int32_t> classes;
    std::span<std::byte> targets;
  };

  std::int64_t count_from(std::int64_t first, std::int64_t block) const {
    return std::clamp<std::int64_t>(data_.info().samples - first, 0, block);
  }

  /// Computes this rank's block.
  void predict_block(std::int64_t first, std::int64_t block) {
    const std::int64_t samples = count_from(first, block);
    if (samples == 0) return;
    const Block own(own_, samples, answers_, sample_bytes_);
    const std::size_t target_bytes = scorer_.target_bytes();
    for (std::int64_t begin = 0; begin < samples; begin += chunk_) {
      const auto behind = static_cast<std::size_t>(begin),
                 count = static_cast<std::size_t>(std::min(chunk_, samples - begin));
      const std::span<std::byte> targets = own.targets.subspan(behind * target_bytes, count * target_bytes);
      if (!is_of_masks_) {
        scorer_.score(first + begin, own.scores.subspan(behind * answers_, count * answers_), targets);
        continue;
      }
      const std::span<float> scores = std::span(scores_).first(count * scorer_.outputs());
      scorer_.score(first + begin, scores, targets);
      choose_classes(scores, own.classes.subspan(behind * answers_, count * answers_));
    }
  }

  comm::Communicator& communicator_;
  const io::Dataset& data_;
  static constexpr std::int64_t kMaxChunks = 8;  // ranks wait for each other once per block
  static constexpr std::int64_t kBlockBytes = 32 << 20;
  std::int64_t chunk_;  ///< samples per chunk
  Scorer scorer_;
  bool is_of_masks_;
  std::size_t answers_;        ///< scores per sample, or classes of a mask
  std::size_t sample_bytes_;   ///< size of a sample's answers and target
  std::vector<float> scores_;  ///< masks: scores of a chunk
  std::int64_t most_chunks_;   ///< chunks per block: at most kMaxChunks, and at most kBlockBytes unless it is one chunk
  std::vector<std::byte> own_, of_another_;
};

io::PredictionContent content_of(const TrainedModel& subject) {
  const io::DatasetInfo& info = subject.dataset().info();
  const io::TrainingRecord& record = subject.source().record();
  const bool classes = model::chooses_class(subject.loss());
  const io::Dataset& data = subject.dataset();
  const bool is_field = !subject.field_shape().empty();
  return {
      .samples = info.samples,
      .outputs = is_field ? record.network.outputs * subject.network().positions() : record.network.outputs,
      .classes = classes,
      .targets = !info.y.name.empty(),
      .mask = is_field ? std::vector<std::int64_t>{} : subject.network().sample_shape().grid,
      .field = subject.field_shape(),
      .class_names =
          info.class_names.empty() && subject.trained_on() ? subject.trained_on()->class_names : info.class_names,
      .target_names = classes ? std::vector<std::string>{} : subject.target_names(),
      .id_name = info.id ? info.id->name : "",
      .id_bytes = info.id ? info.id->bytes : 0,
      .read_ids =
          [&data](std::int64_t first, std::span<std::byte> ids) {
            std::vector<std::int64_t> samples(ids.size() / static_cast<std::size_t>(data.info().id->bytes));
            std::iota(samples.begin(), samples.end(), first);
            data.read_ids(samples, ids);
          },
      .row_of = subject.part() ? [&subject](std::int64_t sample) { return subject.part()->validation_sample(sample); }
                               : std::function<std::int64_t(std::int64_t)>(),
      .about = {
          {"program", fmt::format("lockstep {} on a {} in {}", program_version(),
                                  subject.backend().is_host() ? "cpu" : "gpu", model::name_of(subject.precision()))},
          {"trained_by", "lockstep " + record.program_version},
          {"checkpoint", subject.source().file().filename().string()},
          {"checkpoint_checksum", subject.source().checksum()},
          {"network", io::to_text(record.network)},
          {"normalization", to_text(subject.normalization())},
          {"weights", subject.average() ? "average" : "current"},
          {"samples_at_once", fmt::format("{}", subject.batch())},
          {"part", subject.is_part() ? "validation" : "all"},
          {"data", subject.dataset().fingerprint()}}};
}

}  // namespace

int run_predict(comm::MpiSession& session, const PredictOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto communicator = communicator_of(session, execution);
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  const Console::Watch watched(console, io_deadline);
  TrainedModel subject(*communicator, console, options, TrainedModel::Labels::as_they_come, execution, io_deadline);
  if (subject.source().record().network.tokens) {
    throw UsageError(
        "predict is for samples, and this network reads tokens: `lockstep generate` writes text with it, "
        "`lockstep eval` tells its perplexity");
  }
  if (subject.target_scale().needs_double()) {
    console.warn(
        "predictions are float32, which does not tell such numbers apart as finely as the network does: their "
        "errors are those of `lockstep eval --report`");
  }
  if (!options.csv.empty() && !subject.network().sample_shape().grid.empty()) {
    throw UsageError(
        fmt::format("--csv writes a line for each sample, and predictions are {} here: --out holds them as arrays",
                    subject.task().has_masks() ? "masks" : "fields"));
  }
  std::optional<io::PredictionWriter> writer;
  std::int64_t begin = 0;
  comm::all_succeed(*communicator, [&] {
    if (communicator->rank() != 0) return;
    using Existing = io::PredictionOutput::Existing;
    const comm::LongOperation creating(*communicator, "making room for predictions");
    writer.emplace(io::PredictionOutput{.file = options.out,
                                        .csv = options.csv,
                                        .existing = options.force ? Existing::replace : Existing::refuse,
                                        .deadline = &io_deadline},
                   content_of(subject));
    begin = writer->done();
  });
  communicator->broadcast(std::as_writable_bytes(std::span(&begin, 1)), 0);
  communicator->wait();
  const std::int64_t samples = subject.dataset().info().samples;
  if (writer && !writer->refused().empty()) console.info(writer->refused());
  if (begin > 0) {
    console.info(fmt::format("going on behind the {} that an earlier job has left in {}.partial",
                             counted(begin, "sample"), options.out.string()));
  }
  Rounds rounds(subject, *communicator);
  rounds.run(begin, writer ? &*writer : nullptr, io_deadline, options.out);
  comm::all_succeed(*communicator, [&] {
    if (!writer) return;
    const comm::LongOperation finishing(*communicator, "writing predictions");
    writer->finish();
  });
  console.info(fmt::format("{}: {} for {}, written to {}", subject.description(),
                           counted(static_cast<std::size_t>(samples), "prediction"), subject.data().string(),
                           options.out.string()));
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
