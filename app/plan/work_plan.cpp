#include "app/plan/work_plan.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "app/options/usage_error.hpp"
#include "app/report/figures.hpp"
#include "comm/summation_tree.hpp"
#include "io/datasets/prefetcher.hpp"

namespace lockstep::app {

namespace {

constexpr double kMaxSteps = 9e15;  // a double represents all whole numbers up to here exactly

/// Returns the number of virtual ranks. It does not depend on the number of ranks, so the bits do not either.
std::int64_t virtual_ranks(const WorkOptions& options, std::int64_t global_batch, int world) {
  // 24 is divisible by the usual numbers of ranks: 1, 2, 3, 4, 6, 8, 12.
  constexpr std::int64_t kUsual = 24;
  std::int64_t parts = options.virtual_ranks > 0 ? options.virtual_ranks : kUsual;
  while (options.virtual_ranks == 0 && parts > global_batch) parts /= 2;
  const std::string step = fmt::format("--reproducible: a step of {} in {} on {}", counted(global_batch, "sample"),
                                       counted(parts, "part"), counted(world, "rank"));
  if (parts > global_batch || parts > comm::SummationTree::kMaxTerms) {
    throw UsageError(
        fmt::format("{}: every part needs a sample: give a larger --global-batch or fewer --virtual-ranks", step));
  }
  if (parts < world && world > global_batch) {
    throw UsageError(fmt::format(
        "{}: every rank needs a part, and every part a sample: give a larger --global-batch or fewer ranks", step));
  }
  if (parts < world) {
    throw UsageError(
        fmt::format("{}: every rank needs a part: give fewer ranks, or --virtual-ranks {} to every run that is to have "
                    "the same bits",
                    step, std::min(global_batch, divide_up(world, kUsual) * kUsual)));
  }
  return parts;
}

/// Returns the default number of epochs: more for small data.
double usual_epochs(const WorkFacts& facts, std::int64_t steps_per_epoch) {
  constexpr std::int64_t kFewSteps = 1000, kManyEpochs = 100;
  if (facts.reads_tokens) return 1;
  return static_cast<double>(std::clamp<std::int64_t>(divide_up(kFewSteps, steps_per_epoch), 1, kManyEpochs));
}

/// Returns the default number of samples per step: small data get more and smaller steps.
std::int64_t usual_batch(const WorkFacts& facts, std::int64_t wanted) {
  constexpr std::int64_t kShare = 16, kMin = 16;
  return facts.reads_tokens ? wanted : std::min(wanted, std::max(kMin, facts.samples / kShare));
}

}  // namespace

RankShare share_of(const WorkPlan& work, int rank, int world) {
  const std::int64_t parts = work.virtual_ranks > 0 ? work.virtual_ranks : world;
  const std::int64_t first = parts * rank / world, end = parts * (rank + 1) / world;
  const std::int64_t first_sequence = work.global_batch * first / parts;
  return {.micro_steps = work.virtual_ranks > 0 ? end - first : work.accumulate,
          .first_virtual_rank = first,
          .sequences = {.all = work.global_batch,
                        .first = first_sequence,
                        .count = work.global_batch * end / parts - first_sequence}};
}

std::int64_t steps_per_epoch(std::int64_t samples, std::int64_t global_batch, bool stateful) {
  return divide_up(io::epoch_samples(samples, global_batch, stateful), global_batch);
}

WorkPlan work_plan(const WorkOptions& options, const WorkFacts& facts) {
  const std::int64_t samples = facts.samples;
  const int world = facts.world;
  const bool stateful = facts.recurrent != nullptr;
  WorkPlan work;
  work.accumulate = options.accumulate;
  const std::int64_t parts = work.accumulate * world;
  const std::int64_t wanted = options.global_batch > 0          ? options.global_batch
                              : options.batch > samples / parts ? samples  // the product may exceed 64 bits
                                                                : options.batch * parts;
  if (stateful && wanted > samples) {
    throw UsageError(
        fmt::format("a global batch of {} sequences is wider than the data, which has {} windows: give a smaller "
                    "--batch{}{}",
                    wanted, samples, facts.recurrent->window.empty() ? "" : " or --", facts.recurrent->window));
  }
  // Every micro-step of every rank gets a sample, unless --global-batch says how many a step has.
  const std::int64_t least = options.global_batch > 0 || options.reproducible ? 1 : parts;
  const bool is_chosen = facts.has_batch || options.global_batch > 0;
  const std::int64_t batch = is_chosen ? wanted : usual_batch(facts, wanted);
  work.global_batch = std::min(std::max<std::int64_t>(batch, least), samples);
  work.epoch_samples = io::epoch_samples(samples, work.global_batch, stateful);
  work.most_sequences = divide_up(work.global_batch, world);
  work.largest_part = divide_up(work.most_sequences, work.accumulate);
  if (options.reproducible) {
    if (options.global_batch == 0) {
      throw UsageError(
          "--reproducible needs --global-batch: the samples of a step, which --batch makes depend on the "
          "number of ranks");
    }
    if (work.accumulate > 1) {
      throw UsageError(
          "--accumulate has no meaning with --reproducible: --virtual-ranks says in how many parts a step "
          "is computed");
    }
    work.virtual_ranks = virtual_ranks(options, work.global_batch, world);
    work.accumulate = divide_up(work.virtual_ranks, world);
    work.largest_part = divide_up(work.global_batch, work.virtual_ranks);
    work.most_sequences = 0;
    for (int rank = 0; rank < world; ++rank) {
      work.most_sequences = std::max(work.most_sequences, share_of(work, rank, world).sequences.count);
    }
  }
  work.steps_per_epoch = steps_per_epoch(samples, work.global_batch, stateful);
  work.epochs = options.epochs > 0 ? options.epochs : usual_epochs(facts, work.steps_per_epoch);
  work.given_steps = options.steps;
  const double steps = std::ceil(work.epochs * static_cast<double>(work.steps_per_epoch));
  if (work.given_steps <= 0 && steps > kMaxSteps) {
    throw UsageError(fmt::format("--epochs {:g} are {:g} steps: more than can be counted", work.epochs, steps));
  }
  go_on_at(work, 0, {});
  return work;
}

void add_intervals(const ValidationOptions& validation, const CheckpointEvery& checkpoint, WorkPlan& work) {
  const auto interval = [&](std::int64_t every) {
    return every == 0 ? Interval{.steps = work.steps_per_epoch, .shift = work.epoch_shift, .ends_epochs = true}
                      : Interval{.steps = std::max<std::int64_t>(0, every)};
  };
  work.evaluate_every = interval(validation.every);
  work.checkpoint_every = checkpoint.seconds > 0 ? Interval{} : interval(checkpoint.steps);
}

void go_on_at(WorkPlan& work, std::int64_t step, DataCursor cursor) {
  const std::int64_t left_of_epoch = divide_up(work.epoch_samples - cursor.position, work.global_batch);
  work.epoch_shift = (cursor.epoch + 1) * work.steps_per_epoch - left_of_epoch - step;
  const double steps = std::ceil(work.epochs * static_cast<double>(work.steps_per_epoch));
  work.total_steps =
      work.given_steps > 0 ? work.given_steps : std::max<std::int64_t>(1, std::llround(steps) - work.epoch_shift);
  for (Interval* const every : {&work.evaluate_every, &work.checkpoint_every}) {
    if (every->ends_epochs) every->shift = work.epoch_shift;
  }
}

DataCursor cursor_after(const WorkPlan& work, DataCursor from, std::int64_t steps) {
  if (steps <= 0) return from;
  const std::int64_t first = divide_up(work.epoch_samples - from.position, work.global_batch);
  if (steps <= first) {
    return {from.epoch, std::min(work.epoch_samples, from.position + steps * work.global_batch)};
  }
  const std::int64_t left = steps - first - 1;
  return {from.epoch + 1 + left / work.steps_per_epoch,
          std::min(work.epoch_samples, (left % work.steps_per_epoch + 1) * work.global_batch)};
}

}  // namespace lockstep::app
