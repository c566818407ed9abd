#include "app/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory_resource>
#include <numeric>
#include <vector>

#include "app/console.hpp"
#include "app/engine.hpp"
#include "app/figures.hpp"
#include "app/placement.hpp"
#include "app/report.hpp"
#include "app/snapshot.hpp"
#include "app/start.hpp"
#include "app/workload.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

namespace {

/// Reads chunks of consecutive samples into buffers that are reused.
class ChunkReader {
 public:
  ChunkReader(const io::ShardedDataset& dataset, std::int64_t chunk, std::pmr::memory_resource* memory)
      : dataset_(dataset),
        x_(static_cast<std::size_t>(chunk) * dataset.x_bytes(), memory),
        y_(static_cast<std::size_t>(chunk) * dataset.y_bytes(), memory) {}

  model::Batch read(std::int64_t first, std::int64_t count) {
    samples_.resize(static_cast<std::size_t>(count));
    std::iota(samples_.begin(), samples_.end(), first);
    const auto samples = static_cast<std::size_t>(count);
    dataset_.read(samples_, std::span(x_).first(samples * dataset_.x_bytes()),
                  std::span(y_).first(samples * dataset_.y_bytes()));
    return {.x = x_.data(), .x_type = element_type(dataset_.x_type()), .y = y_.data(), .count = count};
  }

 private:
  const io::ShardedDataset& dataset_;
  std::pmr::vector<std::byte> x_, y_;
  std::vector<std::int64_t> samples_;
};

}  // namespace

Evaluation evaluate(model::Model& model, const io::ShardedDataset& dataset, comm::Communicator& communicator,
                    model::Weights weights, std::int64_t chunk) {
  const std::int64_t samples = dataset.info().samples;
  const std::int64_t chunks = (samples + chunk - 1) / chunk;
  std::vector<double> sums(static_cast<std::size_t>(2 * chunks),
                           0.0);  // each filled by one rank, zero elsewhere: adding is exact
  comm::all_succeed(communicator, [&] {
    ChunkReader reader(dataset, std::min(chunk, samples), model.host_memory());
    for (std::int64_t k = communicator.rank(); k < chunks; k += communicator.size()) {
      const model::Batch batch = reader.read(k * chunk, std::min(chunk, samples - k * chunk));
      const model::LossSums part = model.evaluate(batch, weights);
      sums[static_cast<std::size_t>(2 * k)] = part.loss;
      sums[static_cast<std::size_t>(2 * k + 1)] = part.metric;
    }
  });
  communicator.all_reduce_sum(std::span<double>(sums));
  Evaluation result{.samples = samples};
  for (std::size_t i = 0; i < sums.size(); i += 2) {
    result.loss += sums[i];
    result.metric += sums[i + 1];
  }
  result.loss /= static_cast<double>(samples);
  result.metric /= static_cast<double>(samples);
  return result;
}

std::string format_evaluation(const Evaluation& evaluation, model::LossKind loss) {
  return loss == model::LossKind::softmax_cross_entropy
             ? fmt::format("loss {:.6g}  accuracy {:.2f} %  ({})", evaluation.loss, 100 * evaluation.metric,
                           counted(evaluation.samples, "sample"))
             : fmt::format("loss {:.6g}  mean absolute error {:.6g}  ({})", evaluation.loss, evaluation.metric,
                           counted(evaluation.samples, "sample"));
}

const char* metric_key(model::LossKind loss) noexcept {
  return loss == model::LossKind::softmax_cross_entropy ? "accuracy" : "mean_absolute_error";
}

int run_eval(comm::MpiSession& session, const EvalOptions& options) {
  const auto communicator = comm::make_communicator(session, {.transport = parse_transport(options.execution.transport),
                                                              .deadline_seconds = options.execution.deadline});
  Console console(communicator->rank() == 0);

  // Rank 0 reads the checkpoint; the others learn from it which network and which data.
  CheckpointOnRank0 source(*communicator, options.checkpoint);
  TrainOptions trained = train_options_from_ini(source.record().configuration);
  if (options.evaluation_batch > 0) trained.evaluation_batch = options.evaluation_batch;
  const bool average = options.average_set ? options.average : trained.evaluate_average;
  for (const std::string& warning : source.warnings()) console.warn(warning);

  std::unique_ptr<io::ShardedDataset> dataset;
  std::unique_ptr<model::Network> network;
  model::ModelOptions model_options;
  all_succeed_or_usage(*communicator, [&] {
    if (!options.data.empty()) {
      trained.data = options.data;
      trained.validation.clear();
      const DataPaths found = resolve_data_paths(trained);
      trained.validation = found.validation.empty() ? found.training : found.validation;
    }
    const std::filesystem::path& path = trained.validation;
    if (path.empty()) throw UsageError("the run had no validation data: name the data with --data");
    if (average && trained.average_decay == 0) {
      throw UsageError("--average: the run kept no average of its weights (its --average-decay was 0)");
    }
    dataset = std::make_unique<io::ShardedDataset>(io::DatasetOptions{.path = path, .x = trained.x, .y = trained.y});
    const model::SampleShape shape = shape_of_identity(source.record().network);
    const io::DatasetInfo& info = dataset->info();
    require_labels(info, path);
    const model::LossKind loss = loss_kind(trained, info);
    const bool outputs_fit =
        info.labels_are_classes ? info.classes <= shape.outputs : info.y.elements() == shape.outputs;
    if (info.x.elements() != shape.features || !outputs_fit) {
      throw UsageError(
          fmt::format("{} does not fit the network: samples of {} numbers and {} outputs against {} and {}",
                      path.string(), info.x.elements(), sample_shape(info).outputs, shape.features, shape.outputs));
    }
    network = model::make_network(network_options(trained), shape);
    model_options = {.loss = loss,
                     .input_transform = input_transform(trained, info),
                     .optimizer = optimizer_options(trained),
                     .max_batch = std::min(trained.evaluation_batch, info.samples),
                     .sample_type = element_type(dataset->x_type()),
                     .training = false};
  });
  comm::require_equal(*communicator, std::vector<comm::FingerprintItem>{{"program", program_version()},
                                                                        {"data", dataset->fingerprint()}});
  for (const std::string& warning : gather_said(*communicator, join_lines(dataset->warnings()))) console.warn(warning);

  const Place place = find_place(*communicator, options.execution);
  const auto plan_for = [&](std::int64_t batch) {
    model::ModelOptions with = model_options;
    with.max_batch = batch;
    return model::plan_memory(*network, with, memory_types(place));
  };
  require_memory(*communicator, place, plan_for(model_options.max_batch), model_options.max_batch, plan_for);
  if (!place.note.empty()) console.info(place.note);
  const auto backend = make_agreed_backend(*communicator, place, options.execution);
  std::unique_ptr<model::Model> model;
  comm::all_succeed(*communicator, [&] { model = std::make_unique<model::Model>(*backend, *network, model_options); });
  source.restore(*model);
  const Evaluation result =
      evaluate(*model, *dataset, *communicator, average ? model::Weights::average : model::Weights::current,
               trained.evaluation_batch);
  console.info(fmt::format("{} (step {}{}): {}", source.file().string(), source.record().step,
                           average ? ", averaged weights" : "", format_evaluation(result, model_options.loss)));
  write_json(*communicator, options.json,
             {{"kind", std::string("evaluation")},
              {"checkpoint", source.file().string()},
              {"step", source.record().step},
              {"data", trained.validation.string()},
              {"weights", std::string(average ? "average" : "current")},
              {"loss", result.loss},
              {metric_key(model_options.loss), result.metric},
              {"samples", result.samples}});
  return 0;
}

}  // namespace lockstep::app
