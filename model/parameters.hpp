/// \file
/// The parameter table: name -> slice of the arenas. Parameters, gradients, optimiser state and averages share one
/// layout: slices in REVERSE order of declaration (the order in which backward finishes gradients), each starting at a
/// multiple of 64 elements (256 bytes of fp32); the padding is always zero, so one pass over the whole array (norm,
/// update, reduce) needs no table. Checkpoints store parameters without padding.
///
/// Statistics (running means and variances of batch norm) are slices, too. They follow all weights. Their "gradient" is
/// the value of this step, weighted with the rank's share of the global batch and summed over the ranks like any
/// gradient; the update moves the statistic towards it. So statistics are equal on all ranks, need no extra message,
/// are stored and resumed like weights, and do not change in a failed step.
///
/// Frozen parameters never change and come last. Gradients, optimiser state and buckets therefore end before them, at
/// updated_elements(). Parameters and their average have arena_elements().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "model/initialize.hpp"
#include "model/slice.hpp"

namespace lockstep::model {

/// Selects whether L2 and weight decay apply. They do not apply to biases and scales.
enum class Decay : bool { no, yes };
/// Selects how a slice changes: by the optimiser, or as a statistic (see above). Statistics are never decayed.
enum class Role : bool { weight, statistic };

struct ParameterSpec {
  std::string name;                 ///< "dense_1/weight": unique, stable, the name in checkpoints
  std::vector<std::int64_t> shape;  ///< logical shape, row-major
  Initializer initializer;
  std::int64_t fan_in = 1;
  std::int64_t fan_out = 1;
  Decay decay = Decay::yes;
  Role role = Role::weight;
  /// Minimum number of padding elements after it. They allow views with more rows (Pass::weight).
  std::int64_t padding = 0;
  /// Index of a parameter that must be frozen together with this one: a batch normalisation is frozen as a whole.
  std::optional<std::size_t> frozen_with = {};
};

struct Parameter : ParameterSpec {
  std::size_t offset = 0;  ///< elements from the start of the arena
  std::size_t count = 0;   ///< elements
  bool frozen = false;     ///< never changes
  float rate_scale = 1;    ///< multiplies the schedule's learning rate
  Slice slice() const noexcept { return {offset, count}; }
  std::size_t end() const noexcept;  ///< end of the slice with its padding
};

class ParameterTable {
 public:
  static constexpr std::size_t kMaxParameterElements = std::size_t{1} << 40;

  /// Adds a parameter and returns its index. Throws std::invalid_argument for a duplicate name, an empty or
  /// non-positive shape, and more than kMaxParameterElements.
  std::size_t add(ParameterSpec spec);
  /// Replaces the initializer of a parameter. Allowed after lay_out(): layout and signature do not change.
  void set_initializer(std::size_t index, const Initializer& initializer) {
    parameters_.at(index).initializer = initializer;
  }
  /// Assigns the offsets. Do not call add() afterwards.
  void lay_out();
  /// Freezes parameters. Call it after lay_out(); it changes offsets. Throws std::invalid_argument if nothing is left
  /// to train, or if only one of a Parameter::frozen_with pair is frozen.
  void freeze(std::span<const std::size_t> indices);
  /// Sets Parameter::rate_scale of a weight that is not frozen. Throws std::invalid_argument unless the scale is finite
  /// and positive.
  void set_rate_scale(std::size_t index, double scale);

  const std::vector<Parameter>& all() const noexcept { return parameters_; }  ///< declaration (layer) order
  const Parameter& operator[](std::size_t index) const { return parameters_.at(index); }
  std::size_t arena_elements() const noexcept { return arena_elements_; }  ///< with padding
  /// Elements that training changes: trained weights and their statistics. Equals the length of the gradients.
  std::size_t updated_elements() const noexcept { return updated_elements_; }
  /// Elements of trained weights; they come first.
  std::size_t trained_elements() const noexcept { return trained_elements_; }
  std::int64_t parameter_count() const noexcept;  ///< without padding and statistics
  std::int64_t trained_count() const noexcept;    ///< parameter_count() without frozen parameters
  bool has_frozen() const noexcept { return updated_elements_ < arena_elements_; }
  /// True if a weight declared before `index` is trained: only then a layer with first parameter `index` needs the
  /// gradient of its input.
  bool trains_below(std::size_t index) const noexcept { return first_trained_ < index; }
  /// Returns the end of the range [0, end) of gradients that is final once all parameters from index `first` on have
  /// final gradients; 0 if none of their weights is trained.
  std::size_t gradients_end(std::size_t first) const noexcept;
  /// Ends of the slices that training changes, ascending; the last equals updated_elements(). For the bucket schedule.
  std::vector<std::size_t> slice_ends() const;
  std::size_t slice_end(std::size_t index) const { return parameters_.at(index).end(); }
  /// Identifies the table: names, shapes, offsets. For the fingerprint and the checkpoint.
  std::string signature() const;

 private:
  std::vector<Parameter> parameters_;
  std::set<std::string> names_;
  std::size_t arena_elements_ = 0, updated_elements_ = 0, trained_elements_ = 0;
  std::size_t first_trained_ = 0;  ///< in the order of declaration
  bool laid_out_ = false;
};

}  // namespace lockstep::model
