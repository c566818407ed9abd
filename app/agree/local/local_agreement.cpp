#include "app/agree/local/local_agreement.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "app/agree/local/local_rounds.hpp"
#include "app/plan/plan.hpp"
#include "app/report/figures.hpp"

namespace lockstep::app {

LocalAgreement::LocalAgreement(Islands islands, const AgreeOptions& options)
    : Agreement({.training_ranks = islands.ranks(), .groups = true, .owner_of_most = islands.last_of_smallest()}),
      islands_(std::move(islands)),
      all_at_first_(options.after > 0) {
  if (options.fragments > options.local_steps) {
    throw UsageError(fmt::format("--fragments {} of --agree local={}: each needs a step of its own to end its turn",
                                 options.fragments, options.local_steps));
  }
  if (options.delay >= options.local_steps / options.fragments) {
    throw UsageError(
        fmt::format("--delay {} of --agree local={} --fragments {}: it must be below {}, the steps of a turn",
                    options.delay, options.local_steps, options.fragments, options.local_steps / options.fragments));
  }
}

StepGroup LocalAgreement::group_of(int rank) const {
  const int island = islands_.of(rank), size = islands_.size(island);
  return {.first = islands_.first_rank(island), .size = size, .largest = all_at_first_ ? islands_.ranks() : size};
}

void LocalAgreement::add_memory(const Plan& plan, const comm::Communicator& /*communicator*/,
                                const model::ModelOptions& options, model::MemoryPlan& memory) const {
  const model::Network& network = *plan.workload.network;
  const AgreeOptions& agree = plan.settings.agree;
  const auto islands = static_cast<std::size_t>(islands_.count());
  const std::size_t arena = network.parameters().updated_elements() * sizeof(float);
  const std::size_t velocity = model::has_velocity(agree.outer) ? arena : 0;
  const std::size_t inner_state =
      model::plan_memory(network, options, {.optimizer = plan.workload.optimizer}, memory_types(plan.place)).optimizer;
  memory.snapshot += velocity + inner_state * (islands - 1);
  memory.optimizer += 2 * arena + velocity;  // the anchor and the differences from it
  if (!agree.streams()) return;
  memory.snapshot += arena * islands;
  memory.optimizer += agree.delay > 0 ? 2 * arena : arena;  // the island's weights and those in transit
}

std::string LocalAgreement::describe(const AgreeOptions& options, std::size_t elements) const {
  const std::string outer = model::has_velocity(options.outer)
                                ? fmt::format("{}, rate {}, momentum {}", model::name_of(options.outer.kind),
                                              options.outer.rate, options.outer.momentum)
                                : "the mean of their weights";
  constexpr std::string_view kEnd = "checkpoints, validations and stops wait for the end of a round";
  const std::string begin =
      options.after > 0 ? fmt::format("all ranks in every step up to step {}, then ", options.after) : std::string();
  if (islands_.count() == 1) {
    return fmt::format(
        "agreement: {}1 island of all ranks, whose weights pass through an outer step ({}) after every {}; {}\n", begin,
        outer, counted(options.local_steps, "step"), kEnd);
  }
  const std::string turns =
      (options.fragments > 1 ? fmt::format(", on {} in turns", counted(options.fragments, "fragment"))
                             : std::string()) +
      (options.delay > 0 ? fmt::format(", while they make the next {}", counted(options.delay, "step"))
                         : std::string());
  return fmt::format(
      "agreement: {}{} make {} by themselves, each with its own optimiser, then agree ({}){}; {} between them per "
      "round. Other weights than a sum in every step would give; {}\n",
      begin, counted(islands_.count(), "island"), counted(options.local_steps, "step"), outer, turns,
      format_bytes(elements * sizeof(float)), kEnd);
}

std::unique_ptr<AgreementRounds> LocalAgreement::make_rounds(const RoundsContext& context) const {
  return std::make_unique<LocalRounds>(context, islands_);
}

}  // namespace lockstep::app
