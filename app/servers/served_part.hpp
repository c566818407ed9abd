/// \file
/// A server's part of the parameters and of the optimiser's state, and the updates that change it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "model/backend.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/step_status_buffer.hpp"
#include "model/training/optimizer.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// The position of a run that servers take over.
struct ServedCourse {
  std::int64_t steps = 0;            ///< done
  double rate_factor = 1;            ///< factor of the learning rate, after roll-backs
  std::int64_t optimizer_since = 0;  ///< the step after which the optimiser's state began
};

/// Each update gives the weights their next version.
class ServedPart {
 public:
  /// The part of server number `index`. A step has so many updates. `plan` outlives this.
  ServedPart(const Plan& plan, int index, std::int64_t updates_per_step);

  void load(const model::ParameterState& from, const ServedCourse& course);
  /// The part's place among all updated weights.
  const comm::Slice& place() const noexcept { return place_; }
  /// Updates made.
  std::int64_t version() const noexcept { return version_; }
  std::int64_t step() const noexcept { return version_ / updates_per_step_; }
  std::span<const float> weights() {
    return state_.weight_elements(model::Weights::current).subspan(place_.offset, place_.count);
  }
  /// The gradients for the next update.
  std::span<float> gradients() { return state_.gradient_elements().subspan(place_.offset, place_.count); }
  /// out = the part of a group; `out` is an arena.
  void download(std::string_view group, std::span<float> out) const { state_.download_group(group, out); }

  /// The sum of the squares of gradients().
  double gradient_squares();
  /// The learning rate of the next update.
  double learning_rate() const;
  /// `squares`: of the gradients of all parts.
  void update(double rate, double squares);
  /// The next version is as this one.
  void pass() noexcept { ++version_; }

 private:
  const Plan& plan_;
  std::int64_t updates_per_step_;
  comm::Slice place_;
  std::unique_ptr<model::Backend> backend_;
  model::ParameterState state_;
  model::StepStatusBuffer status_;
  model::Optimizer optimizer_;
  model::LearningRateSchedule schedule_;
  std::int64_t version_ = 0;
  std::int64_t optimizer_since_ = 0;  ///< updates
};

}  // namespace lockstep::app
