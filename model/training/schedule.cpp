#include "model/training/schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace lockstep::model {

namespace {

using Kind = ScheduleOptions::Kind;

constexpr std::array<std::pair<Kind, std::string_view>, 5> kNames{{{Kind::constant, "constant"},
                                                                   {Kind::exponential, "exponential"},
                                                                   {Kind::step, "step"},
                                                                   {Kind::cosine, "cosine"},
                                                                   {Kind::polynomial, "polynomial"}}};

void require(bool condition, const char* text) {
  if (!condition) throw std::invalid_argument(fmt::format("learning-rate schedule: {}", text));
}

}  // namespace

Kind parse_schedule(std::string_view name) {
  for (const auto& [kind, text] : kNames) {
    if (text == name) return kind;
  }
  std::string valid;
  for (const auto& [kind, text] : kNames) valid += fmt::format("{}{}", valid.empty() ? "" : ", ", text);
  throw std::invalid_argument(fmt::format("unknown learning-rate schedule '{}'; valid: {}", name, valid));
}

std::string_view name_of(Kind kind) noexcept {
  for (const auto& [known, text] : kNames) {
    if (known == kind) return text;
  }
  return "unknown";
}

LearningRateSchedule::LearningRateSchedule(ScheduleOptions options) : options_(std::move(options)) {
  const ScheduleOptions& o = options_;
  require(std::isfinite(o.base) && o.base >= 0, "the base rate must be a number >= 0");
  require(std::isfinite(o.final_rate) && o.final_rate >= 0, "the final rate must be a number >= 0");
  require(o.warmup_steps >= 0, "warm-up steps must not be negative");
  const bool decays = o.kind == Kind::exponential || o.kind == Kind::step;
  require(!decays || (std::isfinite(o.decay_rate) && o.decay_rate > 0), "the decay rate must be positive");
  require(o.kind != Kind::exponential || o.decay_steps > 0, "decay steps must be positive");
  require(o.kind != Kind::step || !o.boundaries.empty(), "step needs at least one boundary");
  for (std::size_t i = 0; i < o.boundaries.size(); ++i) {
    require(o.boundaries[i] > (i == 0 ? -1 : o.boundaries[i - 1]), "boundaries must be ascending and not negative");
  }
  const bool ends = o.kind == Kind::cosine || o.kind == Kind::polynomial;
  require(!ends || o.total_steps > 0, "cosine and polynomial need the total number of steps");
  require(!ends || o.warmup_steps < o.total_steps, "the warm-up must be shorter than the run");
  require(o.kind != Kind::polynomial || (std::isfinite(o.power) && o.power > 0), "the power must be positive");
}

double LearningRateSchedule::at(std::int64_t steps) const noexcept {
  const ScheduleOptions& o = options_;
  const double step = o.clock.after(steps);
  const auto warmup = static_cast<double>(o.warmup_steps);
  if (step < warmup) return o.base * std::min(step + 1, warmup) / warmup;
  const double s = step - warmup;
  const double progress =
      std::min(1.0, s / static_cast<double>(std::max<std::int64_t>(1, o.total_steps - o.warmup_steps)));
  switch (o.kind) {
    case Kind::constant:
      return o.base;
    case Kind::exponential: {
      const double exponent = s / static_cast<double>(o.decay_steps);
      return o.base * std::pow(o.decay_rate, o.staircase ? std::floor(exponent) : exponent);
    }
    case Kind::step: {
      const auto passed = std::ranges::count_if(
          o.boundaries, [&](std::int64_t boundary) { return static_cast<double>(boundary) <= step; });
      return o.base * std::pow(o.decay_rate, static_cast<double>(passed));
    }
    case Kind::cosine:
      return o.final_rate + (o.base - o.final_rate) * (1 + std::cos(std::numbers::pi * progress)) / 2;
    case Kind::polynomial:
      return o.final_rate + (o.base - o.final_rate) * std::pow(1 - progress, o.power);
  }
  return o.base;
}

LearningRateSchedule LearningRateSchedule::scaled(double factor) const {
  ScheduleOptions options = options_;
  options.base *= factor;
  options.final_rate *= factor;
  return LearningRateSchedule(std::move(options));
}

double scale_rate(double rate, std::int64_t global_batch, std::int64_t reference_batch) {
  if (global_batch <= 0 || reference_batch <= 0) {
    throw std::invalid_argument("the linear scaling rule needs positive batch sizes");
  }
  return rate * static_cast<double>(global_batch) / static_cast<double>(reference_batch);
}

}  // namespace lockstep::model
