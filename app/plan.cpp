#include "app/plan.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace lockstep::app {

std::string with_commas(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (std::int64_t i = static_cast<std::int64_t>(digits.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} {}", bytes, units[unit]) : fmt::format("{:.1f} {}", bytes, units[unit]);
}

std::string format_flops(double flops) {
  constexpr std::array<const char*, 6> units{"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP"};
  std::size_t unit = 0;
  while (flops >= 1000 && unit + 1 < units.size()) {
    flops /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", flops, units[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto whole = std::llround(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string format_plan(const Workload& workload, const TrainOptions& options, const comm::Communicator& communicator,
                        std::span<const comm::Slice> buckets) {
  const WorkPlan& work = workload.work;
  const io::DatasetInfo& info = workload.training->info();
  std::string text = "network\n";
  text += fmt::format("  {:<12} {:<34} {:>12} {:>14} {:>22}\n", "layer", "", "parameters", "outputs/sample", "FLOPs/sample fwd+bwd");
  double flops = 0;
  std::int64_t parameters = 0;
  for (const model::LayerPlan& layer : workload.network->plan()) {
    text += fmt::format("  {:<12} {:<34} {:>12} {:>14} {:>22}\n", layer.name, layer.description, with_commas(layer.parameters),
                        with_commas(layer.activation_elements), format_flops(layer.forward_flops + layer.backward_flops));
    flops += layer.forward_flops + layer.backward_flops;
    parameters += layer.parameters;
  }
  const model::MemoryPlan memory = model::plan_memory(*workload.network, workload.model, model::ElementType::float32);
  text += fmt::format("  {} parameters, {} per step over all ranks\n", with_commas(parameters),
                      format_flops(flops * static_cast<double>(work.global_batch)));
  text += fmt::format("memory per rank: {} = parameters {} + gradients {} + optimiser {} + average {} + activations {}\n",
                      format_bytes(static_cast<double>(memory.total())), format_bytes(static_cast<double>(memory.parameters)),
                      format_bytes(static_cast<double>(memory.gradients)), format_bytes(static_cast<double>(memory.optimizer)),
                      format_bytes(static_cast<double>(memory.average)), format_bytes(static_cast<double>(memory.activations)));
  text += fmt::format("all-reduce: {}, {} bucket{} per step:", communicator.transport_name(), buckets.size(),
                      buckets.size() == 1 ? "" : "s");
  constexpr std::size_t most_shown = 8;
  for (std::size_t i = 0; i < std::min(buckets.size(), most_shown); ++i) {
    text += fmt::format(" {}", format_bytes(static_cast<double>(buckets[i].count * sizeof(float))));
  }
  text += buckets.size() > most_shown ? " ...\n" : "\n";
  text += fmt::format("data: {} samples in {} file{}, {}", with_commas(info.samples), workload.training->shards().size(),
                      workload.training->shards().size() == 1 ? "" : "s",
                      info.labels_are_classes ? fmt::format("{} classes", info.classes)
                                              : fmt::format("{} target{}", info.y.elements(), info.y.elements() == 1 ? "" : "s"));
  text += workload.validation ? fmt::format("; validation: {} samples\n", with_commas(workload.validation->info().samples))
                              : std::string("; no validation data\n");
  text += fmt::format("work: {} steps of {} samples ({} ranks x {}{}), {} steps per epoch", with_commas(work.total_steps),
                      with_commas(work.global_batch), communicator.size(), with_commas(work.largest_part),
                      options.accumulate > 1 ? fmt::format(" x {} micro-steps", options.accumulate) : "",
                      with_commas(work.steps_per_epoch));
  return text;
}

}  // namespace lockstep::app
