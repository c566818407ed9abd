#include "app/evaluate/evaluate.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "app/engine/engine.hpp"
#include "app/engine/evaluation.hpp"
#include "app/engine/file_watch.hpp"
#include "app/engine/snapshot.hpp"
#include "app/plan/agreement.hpp"
#include "app/plan/host_memory.hpp"
#include "app/plan/placement.hpp"
#include "app/plan/workload.hpp"
#include "app/report/console.hpp"
#include "app/report/result_file.hpp"
#include "comm/agreement.hpp"

namespace lockstep::app {

int run_eval(comm::MpiSession& session, const EvalOptions& options) {
  const ExecutionOptions& execution = options.execution;
  const auto communicator =
      comm::make_communicator(session, {.transport = execution.transport,
                                        .deadline_seconds = execution.deadline,
                                        .excuse_seconds = execution.io_deadline + execution.deadline});
  io::IoDeadline io_deadline = watch_files(session, *communicator, execution.io_deadline);
  Console console(communicator->rank() == 0);
  ResultFile json(*communicator, options.json);

  // Rank 0 reads the checkpoint; the others learn from it which network and which data.
  CheckpointOnRank0 source(*communicator, options.checkpoint, &io_deadline);
  TrainOptions trained = train_options_from_ini(source.record().configuration);
  if (options.evaluation_batch > 0) trained.validation.batch = options.evaluation_batch;
  const bool average = options.average_set ? options.average : trained.validation.average;
  for (const std::string& warning : source.warnings()) console.warn(warning);

  std::unique_ptr<io::Dataset> dataset;
  std::unique_ptr<model::Network> network;
  model::ModelOptions model_options;
  std::optional<Task> task;
  all_succeed_or_usage(*communicator, [&] {
    if (!options.data.empty()) {
      trained.data.path = options.data;
      trained.data.validation.clear();
      const DataPaths found = resolve_data_paths(trained.data);
      trained.data.validation = found.validation.empty() ? found.training : found.validation;
    }
    const std::filesystem::path& path = trained.data.validation;
    if (path.empty()) throw UsageError("the run had no validation data: name the data with --data");
    if (average && trained.optimizer.average_decay == 0) {
      throw UsageError("--average: the run kept no average of its weights (its --average-decay was 0)");
    }
    if (communicator->rank() != 0) return;
    const comm::LongOperation inspecting(*communicator, "inspecting the data");
    inspect_data(data_format(trained), path);
  });
  all_succeed_or_usage(*communicator, [&] {
    const std::filesystem::path& path = trained.data.validation;
    dataset = open_dataset(data_format(trained), path, &io_deadline);
    const io::NetworkIdentity& trained_on = source.record().network;
    const io::DatasetInfo& info = dataset->info();
    require_labels(info, path);
    const model::LossKind loss = loss_kind(trained.loss, info);
    const std::optional<model::Augmentation> spec = augmentation(trained.data, info);
    model::SampleShape shape = sample_shape(info, spec);
    const bool outputs_fit = info.labels_are_classes && !shape.tokens ? shape.outputs <= trained_on.outputs
                                                                      : shape.outputs == trained_on.outputs;
    if (shape.features != trained_on.features || !outputs_fit) {
      throw UsageError(
          fmt::format("{} does not fit the network: samples of {} numbers and {} outputs against {} and {}",
                      path.string(), shape.features, shape.outputs, trained_on.features, trained_on.outputs));
    }
    shape.outputs = trained_on.outputs;
    network = model::make_network(trained.network, shape);
    model_options = {.loss = loss,
                     .augmentation = spec,
                     .max_batch = std::min(trained.validation.batch, info.samples),
                     .sample_type = element_type(dataset->x_type())};
    if (!shape.tokens) model_options.input_transform = input_transform(trained.data.normalize, info);
    task.emplace(loss, *network, info.tokens ? info.tokens->bytes_per_token : 0);
  });
  comm::require_equal(*communicator, std::vector<comm::FingerprintItem>{{"program", program_version()},
                                                                        {"data", dataset->fingerprint()}});
  for (const std::string& warning : gather_said(*communicator, join_lines(dataset->warnings()))) console.warn(warning);

  const Place place = find_place(*communicator, options.execution);
  const model::ParameterStateOptions state_options{.optimizer = trained.optimizer,
                                                   .purpose = model::Purpose::evaluation};
  const auto plan_for = [&](std::int64_t batch) {
    model::ModelOptions with = model_options;
    with.max_batch = batch;
    return model::plan_memory(*network, with, state_options, memory_types(place));
  };
  const std::int64_t batch = model_options.max_batch;
  require_host_memory(*communicator, evaluation_memory(place, plan_for(batch), *dataset, batch));
  require_gpu_memory(*communicator, place, plan_for(batch), batch, plan_for);
  if (!place.note.empty()) console.info(place.note);
  const auto backend = make_agreed_backend(*communicator, place, options.execution);
  std::optional<model::ParameterState> parameters;
  std::optional<model::Model> model;
  comm::all_succeed(*communicator, [&] {
    parameters.emplace(*backend, network->parameters(), state_options);
    model.emplace(*backend, *network, *parameters, model_options);
  });
  source.restore(*parameters);
  const Score result =
      evaluate(*model, *dataset, *communicator, average ? model::Weights::average : model::Weights::current,
               trained.validation.batch, *task);
  console.info(fmt::format("{} (step {}{}): {}", source.file().string(), source.record().step,
                           average ? ", averaged weights" : "", task->format_evaluation(result)));
  io::MetricRecord record{{"kind", "evaluation"},
                          {"checkpoint", source.file().string()},
                          {"step", source.record().step},
                          {"data", trained.data.validation.string()},
                          {"weights", std::string(average ? "average" : "current")}};
  for (auto& entry : task->record(result)) record.push_back(std::move(entry));
  record.emplace_back("samples", result.samples);
  json.write_record(record);
  require_output(*communicator, console);
  return 0;
}

}  // namespace lockstep::app
