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

/// Reads samples into buffers that are reused.
class Reader {
 public:
  Reader(const io::Dataset& dataset, std::int64_t most, std::pmr::memory_resource* memory)
      : dataset_(dataset),
        x_(static_cast<std::size_t>(most) * dataset.x_bytes(), memory),
        y_(static_cast<std::size_t>(most) * dataset.y_bytes(), memory) {}

  model::Batch read(std::span<const std::int64_t> samples) {
    dataset_.read(samples, io::kNoEpoch, std::span(x_).first(samples.size() * dataset_.x_bytes()),
                  std::span(y_).first(samples.size() * dataset_.y_bytes()));
    return {.x = x_.data(),
            .x_type = element_type(dataset_.x_type()),
            .y = y_.data(),
            .count = static_cast<std::int64_t>(samples.size())};
  }

 private:
  const io::Dataset& dataset_;
  std::pmr::vector<std::byte> x_, y_;
};

void add(const model::LossSums& part, model::LossSums& sums) {
  sums.loss += part.loss;
  sums.metric += part.metric;
  sums.top5 += part.top5;
}

/// Samples [first, first + count) at once.
model::LossSums evaluate_block(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                               std::int64_t count) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(count));
  std::iota(samples.begin(), samples.end(), first);
  return model.evaluate(reader.read(samples), weights);
}

/// Samples [first, first + count) in lanes of consecutive ones, the longer lanes first: lane l of a step that only the
/// first k lanes still have is among them.
model::LossSums evaluate_lanes(model::Model& model, model::Weights weights, Reader& reader, std::int64_t first,
                               std::int64_t count, std::int64_t most_lanes) {
  const std::int64_t lanes = std::min(most_lanes, count);
  model::LossSums sums;
  std::vector<std::int64_t> samples;
  for (std::int64_t step = 0; lanes > 0 && step * lanes < count; ++step) {
    samples.clear();
    for (std::int64_t lane = 0, begin = first; lane < lanes; ++lane) {
      const std::int64_t length = count / lanes + (lane < count % lanes ? 1 : 0);
      if (step < length) samples.push_back(begin + step);
      begin += length;
    }
    model::Batch batch = reader.read(samples);
    batch.begins = step == 0;
    add(model.evaluate(batch, weights), sums);
  }
  return sums;
}

}  // namespace

Score evaluate(model::Model& model, const io::Dataset& dataset, comm::Communicator& communicator,
               model::Weights weights, std::int64_t chunk, const Task& task) {
  const std::int64_t samples = dataset.info().samples;
  const bool streams = takes_streams(model.network());
  const std::int64_t chunks = streams ? std::min(kSections, samples) : (samples + chunk - 1) / chunk;
  constexpr std::size_t kSums = 3;
  std::vector<double> sums(kSums * static_cast<std::size_t>(chunks),
                           0.0);  // each filled by one rank, zero elsewhere: adding is exact
  comm::all_succeed(communicator, [&] {
    Reader reader(dataset, std::min(chunk, samples), model.host_memory());
    for (std::int64_t k = communicator.rank(); k < chunks; k += communicator.size()) {
      const std::int64_t first = streams ? samples * k / chunks : k * chunk;
      const std::int64_t end = streams ? samples * (k + 1) / chunks : std::min(samples, first + chunk);
      const model::LossSums part = streams ? evaluate_lanes(model, weights, reader, first, end - first, chunk)
                                           : evaluate_block(model, weights, reader, first, end - first);
      const auto at = sums.begin() + static_cast<std::ptrdiff_t>(kSums) * k;
      at[0] = part.loss;
      at[1] = part.metric;
      at[2] = part.top5;
    }
  });
  communicator.all_reduce_sum(std::span<double>(sums));
  model::LossSums total;
  for (std::size_t i = 0; i < sums.size(); i += kSums) {
    add({.loss = sums[i], .metric = sums[i + 1], .top5 = sums[i + 2]}, total);
  }
  return task.score(total, static_cast<double>(samples), false);
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

  std::unique_ptr<io::Dataset> dataset;
  std::unique_ptr<model::Network> network;
  model::ModelOptions model_options;
  std::optional<Task> task;
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
    dataset = open_dataset(trained, path);
    const model::SampleShape trained_on = shape_of_identity(source.record().network);
    const io::DatasetInfo& info = dataset->info();
    require_labels(info, path);
    const model::LossKind loss = loss_kind(trained, info);
    model::SampleShape shape = sample_shape(trained, info);
    const bool outputs_fit = info.labels_are_classes && !shape.tokens ? shape.outputs <= trained_on.outputs
                                                                      : shape.outputs == trained_on.outputs;
    if (shape.features != trained_on.features || !outputs_fit) {
      throw UsageError(
          fmt::format("{} does not fit the network: samples of {} numbers and {} outputs against {} and {}",
                      path.string(), shape.features, shape.outputs, trained_on.features, trained_on.outputs));
    }
    shape.outputs = trained_on.outputs;
    network = model::make_network(network_options(trained), shape);
    model_options = {.loss = loss,
                     .augmentation = augmentation(trained, info),
                     .optimizer = optimizer_options(trained),
                     .max_batch = std::min(trained.evaluation_batch, info.samples),
                     .sample_type = element_type(dataset->x_type()),
                     .training = false};
    if (!shape.tokens) model_options.input_transform = input_transform(trained, info);
    task.emplace(loss, *network, info.tokens ? info.tokens->bytes_per_token : 0);
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
  const Score result =
      evaluate(*model, *dataset, *communicator, average ? model::Weights::average : model::Weights::current,
               trained.evaluation_batch, *task);
  console.info(fmt::format("{} (step {}{}): {}", source.file().string(), source.record().step,
                           average ? ", averaged weights" : "", task->format_evaluation(result)));
  io::MetricRecord record{{"kind", std::string("evaluation")},
                          {"checkpoint", source.file().string()},
                          {"step", source.record().step},
                          {"data", trained.validation.string()},
                          {"weights", std::string(average ? "average" : "current")}};
  for (auto& entry : task->record(result)) record.push_back(std::move(entry));
  record.emplace_back("samples", result.samples);
  write_json(*communicator, options.json, record);
  return 0;
}

}  // namespace lockstep::app
