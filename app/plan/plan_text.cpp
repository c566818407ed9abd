#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "app/data/network_input.hpp"
#include "app/options/all_reduce_option.hpp"
#include "app/options/choices.hpp"
#include "app/plan/host_memory.hpp"
#include "app/plan/network_text.hpp"
#include "app/plan/plan.hpp"
#include "app/plan/training_text.hpp"
#include "app/report/figures.hpp"
#include "comm/device_communicator.hpp"
#include "comm/session/network_interfaces.hpp"

namespace lockstep::app {

namespace {

/// Returns the format of gradients on the wire; "" for fp32.
std::string wire_text(comm::WireFormat wire, const Place& place, const comm::Communicator& communicator) {
  if (wire == comm::WireFormat::fp32 || communicator.size() == 1) return "";
  if (place.gpu || communicator.uses_network()) return fmt::format(" in {}", word_of(wire));
  return fmt::format(" (--wire {} is for other hosts: nothing travels here)", word_of(wire));
}

/// Describes a field, and how it would be read otherwise if its order is ambiguous.
std::string field_text(const io::DatasetInfo& info) {
  const std::vector<std::int64_t>& shape = info.y.sample_shape;
  const bool is_plane = info.field.size() == 2 && shape.size() == 2;
  return fields_text(info.field, info.target_count()) +
         (is_plane
              ? fmt::format(" (--layout {}=nlc: of {} with {})", info.y.name, shape[0], counted(shape[1], "channel"))
              : "");
}

/// Returns a note whether sums over GPUs repeat bit for bit; "" without such sums.
std::string nvls_text(const ExecutionOptions& execution, const Place& place, const comm::Communicator& communicator) {
  if (!place.gpu || communicator.size() == 1) return "";
  const bool ring = execution.ring || place.gpus_are_shared;
  return !ring && comm::nccl_may_use_nvls(execution.nvls) ? " (with NVLS: runs may differ in the last bits)"
                                                          : " (without NVLS, whose sums do not repeat bit for bit)";
}

/// Describes checkpoints at times that do not depend on steps, and their effect on the run.
std::string format_when_saved(const Plan& plan, const comm::Communicator& communicator) {
  const RunOptions& run = plan.settings.run;
  std::string text;
  if (run.checkpoint_every.seconds > 0) {
    text += fmt::format("  one every {}{}\n", format_duration(run.checkpoint_every.seconds),
                        run.keep_best > 0 && plan.workload.validation
                            ? ", and one after each validation that is the best so far (--keep-best)"
                            : "");
  }
  if (!plan.place.gpu && comm::keeps_errors(communicator.wire_format())) {
    text +=
        fmt::format("  with each, what {} has kept back is forgotten: a resumed run repeats this one bit for bit, {}\n",
                    word_of(communicator.wire_format()),
                    run.checkpoint_every.seconds > 0
                        ? "but a second run, which saves in other steps, differs in the last bits"
                        : "unless a checkpoint is asked for (SIGUSR2, checkpoint-now), which changes the last bits");
  }
  return text;
}

/// Describes the summation of gradients.
std::string format_sums(const Plan& plan, const comm::Communicator& communicator) {
  const std::vector<comm::Slice>& buckets = plan.buckets;
  const std::string_view transport = comm::name_of(transport_of(plan.place, communicator));
  std::string text = fmt::format(
      "{}: {}{}{}, {} per step ({}):", plan.shards_optimizer ? "reduce-scatter and all-gather" : "all-reduce",
      transport, wire_text(plan.settings.execution.wire, plan.place, communicator),
      nvls_text(plan.settings.execution, plan.place, communicator), counted(buckets.size(), "bucket"),
      plan.bucket_rule.text());
  constexpr std::size_t most_shown = 8;
  for (std::size_t i = 0; i < std::min(buckets.size(), most_shown); ++i) {
    text += fmt::format(" {}", format_bytes(buckets[i].count * sizeof(float)));
  }
  text += buckets.size() > most_shown ? " ...\n" : "\n";
  if (const auto limits = communicator.all_reduce_limits(); limits && !plan.place.gpu) {
    text += fmt::format("  sums between hosts: {} (--all-reduce {})\n", to_text(*limits),
                        all_reduce_word(plan.settings.execution.all_reduce));
  }
  if (transport_of(plan.place, communicator) == comm::Transport::mpi) {
    text += "  the MPI library decides the order of the additions: a run repeats bit for bit where that is fixed\n";
  }
  return text;
}

}  // namespace

std::string format_plan(const Plan& plan, const comm::Communicator& communicator) {
  const Workload& workload = plan.workload;
  const std::vector<comm::Slice>& buckets = plan.buckets;
  const WorkPlan& work = workload.work;
  const io::DatasetInfo& info = workload.training->info();
  const NetworkText network = describe_network(*workload.network);
  std::string text = "network\n" + network.table;
  const model::MemoryPlan& memory = plan.memory;
  text += fmt::format("  {} parameters, {} per step over all ranks\n", with_commas(network.parameters),
                      format_flops(network.flops * static_cast<double>(work.global_batch)));
  const auto bytes = [](std::size_t count) { return format_bytes(count); };
  text += fmt::format(
      "memory per rank: {} = parameters {} + gradients {} + optimiser {} + average {} + activations {}{}{}\n",
      bytes(memory.total()), bytes(memory.parameters), bytes(memory.gradients), bytes(memory.optimizer),
      bytes(memory.average), bytes(memory.activations),
      memory.input > 0 ? fmt::format(" + input {}", bytes(memory.input)) : "", beside_arenas(memory));
  constexpr std::uint64_t kWorthALine = std::uint64_t{1} << 20;
  const int sharing = communicator.ranks_sharing_memory();
  const std::uint64_t tables = page_table_bytes(static_cast<std::uint64_t>(sharing) * memory.gradients);
  if (sharing > 1 && !plan.place.gpu && tables >= kWorthALine) {
    text += fmt::format("  page tables per rank: up to {}, for each maps the gradients of {} ranks\n", bytes(tables),
                        sharing);
  }
  const auto recurrent = work.global_batch * workload.network->recurrent_state().elements_per_sample();
  const std::string copy = bytes(memory.snapshot / static_cast<std::size_t>(plan.checkpoint_writers) +
                                 static_cast<std::size_t>(recurrent) * sizeof(float));
  text +=
      plan.checkpoint_writers == 1
          ? fmt::format("checkpoints: rank 0 keeps a copy of the state, {}, and writes it beside the training\n", copy)
          : fmt::format(
                "checkpoints: {} ranks keep a copy of a part of the state each, {}, and write it beside the "
                "training\n",
                plan.checkpoint_writers, copy);
  text += format_when_saved(plan, communicator);
  text += format_training(plan);
  if (plan.agreement->roles().updates_here) text += format_sums(plan, communicator);
  text += plan.agreement->describe(plan.settings.agree, buckets.back().offset + buckets.back().count);
  text += fmt::format(
      "data: {} in {}, {}", counted(info.samples, "sample"), counted(workload.training->shards().size(), "file"),
      info.labels_are_classes                                        ? counted(info.classes, "class")
      : workload.model.loss == model::LossKind::soft_cross_entropy   ? counted(info.y.elements(), "class")
      : workload.model.loss == model::LossKind::binary_cross_entropy ? counted(info.y.elements(), "label")
      : !info.field.empty()                                          ? field_text(info)
                                                                     : counted(info.y.elements(), "target"));
  text += workload.validation
              ? fmt::format("; validation: {}\n", counted(workload.validation->info().samples, "sample"))
              : std::string("; no validation data\n");
  if (workload.constant_score) {
    text +=
        fmt::format("  to beat: {}\n", format_constant(workload.constant, *workload.constant_score, *workload.task));
  }
  text += fmt::format("work: {} of {} ({} x {}{}), {} per epoch", counted(work.total_steps, "step"),
                      counted(work.global_batch, "sample"), counted(plan.agreement->roles().training_ranks, "rank"),
                      with_commas(work.largest_part),
                      work.virtual_ranks > 0 ? fmt::format(" in {} virtual ranks", work.virtual_ranks)
                      : work.accumulate > 1  ? fmt::format(" x {}", counted(work.accumulate, "micro-step"))
                                             : "",
                      counted(work.steps_per_epoch, "step"));
  return text;
}

}  // namespace lockstep::app
