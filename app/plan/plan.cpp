#include "app/plan/plan.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "app/options/choices.hpp"
#include "app/plan/agreement.hpp"
#include "app/plan/foreign_data.hpp"
#include "app/plan/sharding.hpp"
#include "app/plan/training_text.hpp"
#include "app/report/figures.hpp"
#include "app/report/result_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace {

/// How gradients travel, where it is not as they are.
std::string wire_text(const ExecutionOptions& options, const Place& place, const comm::Communicator& communicator) {
  if (options.wire == comm::WireFormat::fp32 || communicator.size() == 1) return "";
  if (place.gpu || communicator.uses_network()) return fmt::format(" in {}", word_of(options.wire));
  return fmt::format(" (--wire {} is for other hosts: nothing travels here)", word_of(options.wire));
}

}  // namespace

Plan complete_plan(const comm::Communicator& communicator, TrainOptions settings, Workload workload,
                   const Place& place) {
  const ExecutionOptions& execution = settings.execution;
  check_sharding(execution, place);
  model::LearningRateSchedule schedule = learning_rate_schedule(settings, workload.work);
  std::vector<comm::Slice> buckets = gradient_buckets(execution, *workload.network, place, communicator);
  model::MemoryPlan memory = model::plan_memory(
      *workload.network, workload.model,
      {.optimizer = workload.optimizer, .owned = most_owned_ranges(execution, buckets, communicator.size())},
      memory_types(place));
  const int writers = checkpoint_writers(settings, communicator.size());
  memory.snapshot /= static_cast<std::size_t>(writers);
  memory.snapshot +=
      static_cast<std::size_t>(workload.work.global_batch * workload.network->recurrent_state().elements_per_sample()) *
      sizeof(float);
  return {.settings = std::move(settings),
          .workload = std::move(workload),
          .place = place,
          .schedule = std::move(schedule),
          .buckets = std::move(buckets),
          .memory = memory,
          .checkpoint_writers = writers};
}

Plan make_plan(comm::Communicator& communicator, const TrainOptions& options, const RunStart& start) {
  TrainOptions begun = options;
  begun.run.folder = start.folder;
  begun.run.force = options.run.force || start.takes_folder_over;
  if (start.record != nullptr && !options.was_set("batch") && !options.was_set("global-batch")) {
    begun.work.global_batch = train_options_from_ini(start.record->configuration).work.global_batch;
  }
  inspect_foreign_data(communicator, begun);
  Workload workload;
  all_succeed_or_usage(communicator, [&] { workload = prepare_workload(begun, communicator.size(), start.deadline); });
  const Place place =
      options.dry_run ? plan_place(communicator, options.execution) : find_place(communicator, options.execution);
  TrainOptions settings = decided_settings(begun, workload);
  return complete_plan(communicator, std::move(settings), std::move(workload), place);
}

std::string format_plan(const Plan& plan, const comm::Communicator& communicator) {
  const Workload& workload = plan.workload;
  const ExecutionOptions& execution = plan.settings.execution;
  const std::vector<comm::Slice>& buckets = plan.buckets;
  const WorkPlan& work = workload.work;
  const io::DatasetInfo& info = workload.training->info();
  std::string text = "network\n";
  text += fmt::format("  {:<12} {:<34} {:>12} {:>14} {:>22}\n", "layer", "", "parameters", "outputs/sample",
                      "FLOPs/sample fwd+bwd");
  double flops = 0;
  std::int64_t parameters = 0;
  for (const model::LayerPlan& layer : workload.network->plan()) {
    text += fmt::format("  {:<12} {:<34} {:>12} {:>14} {:>22}\n", layer.name, layer.description,
                        with_commas(layer.parameters), with_commas(layer.activation_elements),
                        format_flops(layer.forward_flops + layer.backward_flops));
    flops += layer.forward_flops + layer.backward_flops;
    parameters += layer.parameters;
  }
  const model::MemoryPlan& memory = plan.memory;
  text += fmt::format("  {} parameters, {} per step over all ranks\n", with_commas(parameters),
                      format_flops(flops * static_cast<double>(work.global_batch)));
  const auto bytes = [](std::size_t count) { return format_bytes(static_cast<double>(count)); };
  text +=
      fmt::format("memory per rank: {} = parameters {} + gradients {} + optimiser {} + average {} + activations {}{}\n",
                  bytes(memory.total()), bytes(memory.parameters), bytes(memory.gradients), bytes(memory.optimizer),
                  bytes(memory.average), bytes(memory.activations),
                  memory.input > 0 ? fmt::format(" + input {}", bytes(memory.input)) : "");
  const std::string copy = bytes(memory.snapshot);
  text +=
      plan.checkpoint_writers == 1
          ? fmt::format("checkpoints: rank 0 keeps a copy of the state, {}, and writes it beside the training\n", copy)
          : fmt::format(
                "checkpoints: {} ranks keep a copy of a part of the state each, {}, and write it beside the "
                "training\n",
                plan.checkpoint_writers, copy);
  text += format_training(plan);
  const std::string_view transport = comm::name_of(transport_of(plan.place, communicator));
  text += fmt::format("{}: {}{}, {} per step ({}):",
                      shards_optimizer(execution, communicator.size()) ? "reduce-scatter and all-gather" : "all-reduce",
                      transport, wire_text(execution, plan.place, communicator),
                      counted(static_cast<std::int64_t>(buckets.size()), "bucket"),
                      bucket_rule(execution, plan.place, communicator).text());
  constexpr std::size_t most_shown = 8;
  for (std::size_t i = 0; i < std::min(buckets.size(), most_shown); ++i) {
    text += fmt::format(" {}", format_bytes(static_cast<double>(buckets[i].count * sizeof(float))));
  }
  text += buckets.size() > most_shown ? " ...\n" : "\n";
  text += fmt::format("data: {} in {}, {}", counted(info.samples, "sample"),
                      counted(static_cast<std::int64_t>(workload.training->shards().size()), "file"),
                      info.labels_are_classes
                          ? (info.classes == 1 ? std::string("1 class") : fmt::format("{} classes", info.classes))
                          : counted(info.y.elements(), "target"));
  text += workload.validation
              ? fmt::format("; validation: {}\n", counted(workload.validation->info().samples, "sample"))
              : std::string("; no validation data\n");
  text += fmt::format(
      "work: {} of {} ({} x {}{}), {} per epoch", counted(work.total_steps, "step"),
      counted(work.global_batch, "sample"), counted(communicator.size(), "rank"), with_commas(work.largest_part),
      plan.settings.work.accumulate > 1 ? fmt::format(" x {}", counted(plan.settings.work.accumulate, "micro-step"))
                                        : "",
      counted(work.steps_per_epoch, "step"));
  return text;
}

std::vector<BackwardLayer> backward_plan(const model::Network& network) {
  std::vector<BackwardLayer> layers;
  std::vector<model::LayerPlan> plan = network.plan();
  std::reverse(plan.begin(), plan.end());
  // The arena holds the parameters in reverse order of declaration, a layer's own together: each layer takes its slices
  // from where the one before it ended.
  std::vector<model::Parameter> arena = network.parameters().all();
  std::sort(arena.begin(), arena.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  const std::vector<std::size_t> ends = network.parameters().slice_ends();
  std::size_t next = 0;
  for (model::LayerPlan& layer : plan) {
    BackwardLayer& entry = layers.emplace_back(BackwardLayer{.layer = std::move(layer), .slice_ends = {}});
    for (; next < arena.size() && arena[next].name.starts_with(entry.layer.name + "/") &&
           arena[next].role == model::Role::weight;
         ++next) {
      entry.slice_ends.push_back(ends[next]);
    }
  }
  for (; next < arena.size() && arena[next].role == model::Role::statistic; ++next) {
    layers.back().slice_ends.push_back(ends[next]);
  }
  if (next < arena.size()) {
    throw std::logic_error(fmt::format("the parameter {} belongs to no layer of the plan", arena[next].name));
  }
  return layers;
}

void write_backward_plan(comm::Communicator& communicator, const std::filesystem::path& file,
                         const model::Network& network) {
  std::string text;
  for (const BackwardLayer& entry : backward_plan(network)) {
    const model::LayerPlan& layer = entry.layer;
    const std::string line = io::to_json_line({{"layer", layer.name},
                                               {"description", layer.description},
                                               {"parameters", layer.parameters},
                                               {"outputs", layer.activation_elements},
                                               {"forward_flops", layer.forward_flops},
                                               {"backward_flops", layer.backward_flops}});
    text +=
        fmt::format("{},\"slice_ends\":[{}]}}\n", line.substr(0, line.size() - 1), fmt::join(entry.slice_ends, ","));
  }
  ResultFile(communicator, file).write(text);
}

}  // namespace lockstep::app
