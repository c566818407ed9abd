#include "app/train/course.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "app/train/resume.hpp"

namespace lockstep::app {

namespace {

constexpr const char* kRollBack = "roll_back";
constexpr const char* kNewOptimizer = "new_optimizer_state";
constexpr const char* kGlobalBatch = "global_batch";

/// A value of the newest record of this kind; `otherwise` if there is none.
double newest(std::string_view history, const char* kind, const char* key, double otherwise) {
  const auto numbers = io::numbers_by_step(history, kind, key);
  return numbers.empty() ? otherwise : numbers.rbegin()->second;
}

}  // namespace

void LossWatch::saw(double loss) {
  losses_[static_cast<std::size_t>(steps_ % kWindow)] = loss;
  if (++steps_ < kWindow) return;
  mean_ = std::accumulate(losses_.begin(), losses_.end(), 0.0) / static_cast<double>(kWindow);
  if (steps_ == kWindow) best_ = first_ = mean_;
  best_ = std::min(best_, mean_);
}

bool LossWatch::leaps() const noexcept { return mean_ > 2 * best_ && mean_ - best_ > first_ / 10; }

Course course_of(std::string_view history) {
  return {.roll_backs = static_cast<std::int64_t>(newest(history, kRollBack, "count", 0)),
          .rate_factor = newest(history, kRollBack, "rate_factor", 1),
          .optimizer_since = static_cast<std::int64_t>(newest(history, kNewOptimizer, "step", 1)) - 1,
          .clock = {.step = static_cast<std::int64_t>(newest(history, kGlobalBatch, "step", 1)) - 1,
                    .at = newest(history, kGlobalBatch, "schedule_step", 0),
                    .per_step = newest(history, kGlobalBatch, "schedule_per_step", 1)}};
}

io::MetricRecord roll_back_record(std::int64_t step, std::int64_t failed_step, const Course& course) {
  return {{"kind", kRollBack},
          {"step", step + 1},
          {"failed_step", failed_step},
          {"count", course.roll_backs},
          {"rate_factor", course.rate_factor}};
}

std::optional<RollBack> roll_back_after(std::string_view lines, std::int64_t step) {
  const auto number = [&](const char* key) {
    const auto numbers = io::numbers_by_step(lines, kRollBack, key);
    const auto found = numbers.find(step + 1);
    return found == numbers.end() ? std::optional<double>() : found->second;
  };
  const auto count = number("count"), factor = number("rate_factor"), failed = number("failed_step");
  if (!count || !factor || !failed) return std::nullopt;
  return RollBack{.failed_step = static_cast<std::int64_t>(*failed),
                  .course = {.roll_backs = static_cast<std::int64_t>(*count), .rate_factor = *factor}};
}

io::MetricRecord new_optimizer_record(std::int64_t step, const std::string& optimizer) {
  return {{"kind", kNewOptimizer}, {"step", step + 1}, {"optimizer", optimizer}};
}

io::MetricRecord global_batch_record(std::int64_t global_batch, const model::ScheduleClock& clock) {
  return {{"kind", kGlobalBatch},
          {"step", clock.step + 1},
          {"global_batch", global_batch},
          {"schedule_step", clock.at},
          {"schedule_per_step", clock.per_step}};
}

std::filesystem::path return_to_checkpoint(const std::filesystem::path& folder, const io::TrainingRecord& now,
                                           std::int64_t limit) {
  std::vector<io::FoundCheckpoint> own;  // newest first
  for (const io::FoundCheckpoint& found : io::list_checkpoints(folder)) {
    try {
      if (lies_behind(now, found.step, io::stored_record(found.file).metrics)) own.push_back(found);
    } catch (const io::FileError&) {  // damaged: the one before may be intact
    }
  }
  if (own.empty()) return {};
  const auto good = std::ranges::find_if(own, [&](const io::FoundCheckpoint& found) { return found.step <= limit; });
  const auto chosen = good == own.end() ? std::prev(own.end()) : good;
  for (auto later = own.begin(); later != chosen; ++later) {
    std::error_code error;
    std::filesystem::remove(later->file, error);
    if (error) throw io::FileError(fmt::format("cannot remove {}: {}", later->file.string(), error.message()));
  }
  return chosen->file;
}

}  // namespace lockstep::app
