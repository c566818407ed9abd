/// \file
/// A server's part of the parameters and of the optimiser's state, and the updates that change it.
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

/// Each update gives the weights their next version. Readers of this host see that in the window.
class ServedPart {
 public:
  /// The part of the server `index`. `weights`: memory for all weights; nullptr: the heap. A step has so many updates.
  /// `plan`, `window` and that memory outlive this.
  ServedPart(const Plan& plan, const Servers& servers, int index, comm::HostWindow& window,
             std::pmr::memory_resource* weights, std::int64_t updates_per_step);

  void load(const model::ParameterState& from, const Standing& course);
  /// The part's slice of all updated weights.
  const comm::Slice& slice() const noexcept { return slice_; }
  /// Updates made.
  std::int64_t version() const noexcept { return version_; }
  std::int64_t step() const noexcept { return version_ / updates_per_step_; }
  /// All updated ones, of which the part is its own.
  std::span<float> all_weights() { return state_.weight_elements(model::Weights::current); }
  std::span<float> weights() { return all_weights().subspan(slice_.offset, slice_.count); }
  /// Content of the next update.
  std::span<float> gradients() { return state_.gradient_elements().subspan(slice_.offset, slice_.count); }
  /// out = the part of a group; `out` is an arena.
  void download(std::string_view group, std::span<float> out) const { state_.download_group(group, out); }

  /// The sum of the squares of gradients().
  double gradient_squares();
  /// The learning rate of the next update.
  double learning_rate() const;
  /// `squares`: of the gradients of all parts.
  void update(double rate, double squares);
  /// The next version is as this one.
  void pass();

  /// From here on since() knows which weights change.
  void watch_changes();
  /// The numbers of the blocks (comm::ChangedBlocks) that have changed since a version. False: not known.
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
  std::int64_t optimizer_since_ = 0;  ///< updates
  comm::ChangedBlocks changed_;
};

}  // namespace lockstep::app
