#include "app/plan/origin.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kRollBack = "roll_back";
constexpr const char* kNewOptimizer = "new_optimizer_state";
constexpr const char* kUpdates = "updates";
constexpr const char* kGlobalBatch = "global_batch";

/// Returns a value of the newest record of this kind; `otherwise` if there is none.
double newest(std::string_view history, const char* kind, const char* key, double otherwise) {
  const auto numbers = io::numbers_by_step(history, kind, key);
  return numbers.empty() ? otherwise : numbers.rbegin()->second;
}

/// Versions that wrote no such records took the number of workers at hand, whatever it was before.
UpdateClock updates_of(const io::TrainingRecord& record) {
  const std::string_view history = record.metrics;
  const bool async = record.configuration.find("\nagree = async\n") != std::string::npos;
  UpdateClock clock{.step = static_cast<std::int64_t>(newest(history, kUpdates, "step", 1)) - 1,
                    .updates = static_cast<std::int64_t>(newest(history, kUpdates, "updates", 0)),
                    .per_step = static_cast<std::int64_t>(newest(history, kUpdates, "per_step", async ? 0 : 1))};
  const auto new_state = static_cast<std::int64_t>(newest(history, kNewOptimizer, "step", 1)) - 1;
  if (new_state > clock.step) clock = {.step = new_state, .updates = 0, .per_step = clock.per_step};
  return clock;
}

}  // namespace

Standing standing_of(const io::TrainingRecord& record) {
  const std::string_view history = record.metrics;
  return {.step = record.step,
          .cursor = {.epoch = record.epoch, .position = record.position},
          .roll_backs = static_cast<std::int64_t>(newest(history, kRollBack, "count", 0)),
          .rate_factor = newest(history, kRollBack, "rate_factor", 1),
          .updates = updates_of(record),
          .clock = {.step = static_cast<std::int64_t>(newest(history, kGlobalBatch, "step", 1)) - 1,
                    .at = newest(history, kGlobalBatch, "schedule_step", 0),
                    .per_step = newest(history, kGlobalBatch, "schedule_per_step", 1)}};
}

io::MetricRecord roll_back_record(std::int64_t step, const RollBack& roll_back) {
  return {{"kind", kRollBack},
          {"step", step + 1},
          {"failed_step", roll_back.failed_step},
          {"count", roll_back.count},
          {"rate_factor", roll_back.rate_factor}};
}

std::optional<RollBack> last_roll_back(std::string_view lines, std::int64_t step) {
  const auto number = [&](const char* key) {
    const auto numbers = io::numbers_by_step(lines, kRollBack, key);
    const auto found = numbers.find(step + 1);
    return found == numbers.end() ? std::optional<double>() : found->second;
  };
  const auto count = number("count"), factor = number("rate_factor"), failed = number("failed_step");
  if (!count || !factor || !failed) return std::nullopt;
  return RollBack{.failed_step = static_cast<std::int64_t>(*failed),
                  .count = static_cast<std::int64_t>(*count),
                  .rate_factor = *factor};
}

io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer) {
  return {{"kind", kNewOptimizer}, {"step", step + 1}, {"optimizer", optimizer}};
}

io::MetricRecord updates_record(const UpdateClock& updates) {
  return {{"kind", kUpdates}, {"step", updates.step + 1}, {"updates", updates.updates}, {"per_step", updates.per_step}};
}

io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock) {
  return {{"kind", kGlobalBatch},
          {"step", clock.step + 1},
          {"global_batch", global_batch},
          {"schedule_step", clock.at},
          {"schedule_per_step", clock.per_step}};
}

}  // namespace lockstep::app
