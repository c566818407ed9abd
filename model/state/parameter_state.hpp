/// \file
/// Parameters and everything kept for each of them: gradients, the optimiser's state, an average. Every group has an
/// arena of its own, in the layout of the parameter table; nothing is allocated after construction.
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
  /// Determines the number of state arenas, and whether there is an average.
  OptimizerOptions optimizer = {};
  /// In evaluation there are no gradients and no optimiser state; the average stays, if asked for.
  Purpose purpose = Purpose::training;
  /// Memory of the gradients (which collectives reduce in place); nullptr: the backend's memory.
  std::pmr::memory_resource* gradient_memory = nullptr;
  /// Memory of the parameters; nullptr as above: for ranks that share the update and gather the parameters.
  std::pmr::memory_resource* parameter_memory = nullptr;
  /// The parts of the arenas that are updated here, with their optimiser state; empty: all.
  std::vector<Slice> owned = {};
};

/// A named piece of the state, for checkpoints: the same order and names on every rank.
struct StateTensor {
  std::string group;  ///< "parameters", "velocity", "first_moment", "second_moment", "average"
  std::string name;   ///< parameter name
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< elements, within the group's arena
  std::size_t count = 0;
};

class ParameterState {
 public:
  /// backend and table must outlive the state.
  ParameterState(Backend& backend, const ParameterTable& table, const ParameterStateOptions& options);

  const ParameterTable& table() const noexcept { return table_; }
  std::size_t elements() const noexcept {
    return table_.arena_elements();
  }  ///< size of the parameters and their average
  /// Size of the gradients and the optimiser's state: parameters beyond never change.
  std::size_t updated_elements() const noexcept { return table_.updated_elements(); }
  /// Size of a group (state_groups()).
  std::size_t group_elements(std::string_view group) const noexcept;
  const OwnedParts& owned() const noexcept { return owned_; }
  /// Initial state of training: weights drawn, the optimiser's state zero.
  void initialize(std::uint64_t seed);
  void reset_optimizer_state();

  /// In the master type; gradients() throws if there are none.
  const Tensor& parameters() const noexcept { return parameters_.tensor(); }
  const Tensor& gradients() const;
  bool has_gradients() const noexcept { return !gradients_.empty(); }
  /// The parameters or their average in the compute type, as GEMMs read them. If that differs from the master type
  /// there is one copy, which holds the values of the last refresh_compute_copy(). Throws if there is no average.
  const Tensor& in_compute_type(Weights weights) const;
  void refresh_compute_copy(Weights weights);
  /// The arenas of an update of one owned part; the caller provides the norms.
  UpdateArenas part_of_arenas(const OwnedParts::Part& part) const;

  /// The elements that updates change as float32 in the backend's memory, updated_elements() long, for collectives;
  /// throws if they are not float32. Code that writes to the current weights calls refresh_compute_copy() afterwards.
  std::span<float> gradient_elements();
  std::span<float> weight_elements(Weights weights);

  /// All state in a checkpoint.
  std::vector<StateTensor> state_tensors() const;
  std::vector<std::string> state_groups() const;
  /// Copies one group's arena to float32 host memory, group_elements() long, and back. Uploading "parameters" sets the
  /// average to the same values (as initialize does): upload "average" after it. Only the owned parts of the
  /// optimiser's state are copied.
  void download_group(std::string_view group, std::span<float> out) const;
  void upload_group(std::string_view group, std::span<const float> in);
  /// `out` = `range` of a group's arena; for the optimiser's state all of it must be in one owned part.
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
