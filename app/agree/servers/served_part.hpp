/// \file
/// A server's part of the parameters and of the optimiser's state, with the updates that change it.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string_view>
#include <vector>

#include "app/agree/agreement.hpp"
#include "app/agree/servers/servers.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "comm/servers/changed_blocks.hpp"
#include "comm/servers/host_window.hpp"
#include "model/backend.hpp"
#include "model/state/parameter_state.hpp"
#include "model/state/step_status_buffer.hpp"
#include "model/training/optimizer.hpp"
#include "model/training/schedule.hpp"

namespace lockstep::app {

/// Each update increments the version of the weights. Readers on the same host see the version in the window.
class ServedPart {
 public:
  /// Creates the part of server `index`. `weights`: memory for all weights; nullptr: the heap. `updates_per_step`:
  /// number of updates in a step. `plan`, `window` and the memory must outlive this object.
  ServedPart(const Plan& plan, const Servers& servers, int index, comm::HostWindow& window,
             std::pmr::memory_resource* weights, std::int64_t updates_per_step);

  void load(const model::ParameterState& from, const Standing& course);
  /// The slice of this part in the array of updated weights.
  const comm::Slice& slice() const noexcept { return slice_; }
  /// Number of updates made.
  std::int64_t version() const noexcept { return version_; }
  std::int64_t step() const noexcept { return version_ / updates_per_step_; }
  /// All weights that training updates; only this part is valid.
  std::span<float> all_weights() { return state_.weight_elements(model::Weights::current); }
  std::span<float> weights() { return all_weights().subspan(slice_.offset, slice_.count); }
  /// The gradient for the next update; the caller fills it.
  std::span<float> gradients() { return state_.gradient_elements().subspan(slice_.offset, slice_.count); }
  /// Copies this part of a state group into the same part of `out`, a whole arena.
  void download(std::string_view group, std::span<float> out) const { state_.download_group(group, out); }

  /// Adds L2 to gradients() and returns the sum of their squares.
  double gradient_squares();
  /// The learning rate of the next update.
  double learning_rate() const;
  /// Updates the weights. `squares`: sum of the squares of the gradients of all parts.
  void update(double rate, double squares);
  /// Increments the version but changes no weights.
  void pass();

  /// Begins to record for since() which weights change.
  void watch_changes();
  /// Fills `blocks` with the indices of the blocks (comm::ChangedBlocks) that changed after `version`. Returns false if
  /// they are not known.
  bool since(std::int64_t version, std::vector<std::uint32_t>& blocks) const { return changed_.since(version, blocks); }

 private:
  const Plan& plan_;
  comm::HostWindow& window_;
  std::int64_t updates_per_step_;
  comm::Slice slice_;
  std::unique_ptr<model::Backend> backend_;
  model::ParameterState state_;
  model::StepStatusBuffer status_;
  model::Optimizer optimizer_;
  model::LearningRateSchedule schedule_;
  std::int64_t version_ = 0;
  std::int64_t updates_ahead_ = 0;  ///< updates by the optimiser's state, less versions
  comm::ChangedBlocks changed_;
};

}  // namespace lockstep::app
