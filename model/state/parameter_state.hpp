/// \file
/// Parameters, gradients, optimiser state and average. Each group has its own arena, in the layout of the parameter
/// table. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/parameters.hpp"
#include "model/state/arena.hpp"
#include "model/state/owned_parts.hpp"
#include "model/update_rule.hpp"

namespace lockstep::model {

enum class Weights { current, average };

struct ParameterStateOptions {
  /// Determines the number of state arenas, and if there is an average.
  OptimizerOptions optimizer = {};
  /// Evaluation has no gradients and no optimiser state, but may have an average.
  Purpose purpose = Purpose::training;
  /// Memory of the gradients (which collectives reduce in place); nullptr: the backend's memory.
  std::pmr::memory_resource* gradient_memory = nullptr;
  /// Memory of the parameters, for ranks that share the update and gather the parameters; nullptr: the backend's
  /// memory.
  std::pmr::memory_resource* parameter_memory = nullptr;
  /// Ranges of the arenas that this rank updates and keeps optimiser state for; empty: all.
  std::vector<Slice> owned = {};
};

/// A named part of the state, for checkpoints. Order and names are equal on every rank.
struct StateTensor {
  std::string group;  ///< "parameters", "velocity", "first_moment", "second_moment", "average"
  std::string name;   ///< parameter name
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< in elements, within the group's arena
  std::size_t count = 0;
};

class ParameterState {
 public:
  /// backend and table must outlive the state.
  ParameterState(Backend& backend, const ParameterTable& table, const ParameterStateOptions& options);

  const ParameterTable& table() const noexcept { return table_; }
  std::size_t elements() const noexcept {
    return table_.arena_elements();
  }  ///< length of the parameters and their average
  /// Length of the gradients and of optimiser state that is not shared. Later parameters are frozen.
  std::size_t updated_elements() const noexcept { return table_.updated_elements(); }
  /// Length of a group's arena (state_groups()).
  std::size_t group_elements(std::string_view group) const noexcept;
  const OwnedParts& owned() const noexcept { return owned_; }
  /// Sets the initial state of training: draws the weights, and zeroes the optimiser state.
  void initialize(std::uint64_t seed);
  void reset_optimizer_state();

  /// In the master type. gradients() throws if there are none.
  const Tensor& parameters() const noexcept { return parameters_.tensor(); }
  const Tensor& gradients() const;
  bool has_gradients() const noexcept { return !gradients_.empty(); }
  /// Returns the parameters or their average in the compute type, as GEMMs read them. If this differs from the master
  /// type, there is one copy, with the values of the last refresh_compute_copy(). Throws if there is no average.
  const Tensor& in_compute_type(Weights weights) const;
  void refresh_compute_copy(Weights weights);
  /// Returns the arenas for the update of one owned part, without UpdateArenas::norms.
  UpdateArenas part_of_arenas(const OwnedParts::Part& part) const;

  /// The elements that updates change, in the backend's memory, for collectives; length updated_elements(). Throws if
  /// they are not float32. Call refresh_compute_copy() after writing to the current weights.
  std::span<float> gradient_elements();
  std::span<float> weight_elements(Weights weights);

  /// All state that a checkpoint stores.
  std::vector<StateTensor> state_tensors() const;
  std::vector<std::string> state_groups() const;
  /// Copy one group's arena to float32 host memory of length group_elements(), and back. Uploading "parameters" also
  /// sets the average to these values, so upload "average" after it. Of optimiser state, only owned parts are copied.
  void download_group(std::string_view group, std::span<float> out) const;
  void upload_group(std::string_view group, std::span<const float> in);
  /// Copies `range` of a group's arena to `out`. A range of optimiser state must lie in one owned part.
  void download_range(std::string_view group, const Slice& range, std::span<float> out) const;
  void download_gradients(std::span<float> out) const { backend_.download(gradients(), out); }

 private:
  const Arena& group(std::string_view name) const;
  std::span<float> float_elements(const Arena& arena, const char* what) const;
  void require_arena(std::string_view group, std::size_t elements) const;

  Backend& backend_;
  const ParameterTable& table_;
  OptimizerOptions optimizer_;
  OwnedParts owned_;
  Arena parameters_, compute_copy_, gradients_, state1_, state2_, average_;
};

}  // namespace lockstep::model
