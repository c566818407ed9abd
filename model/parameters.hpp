/// \file
/// The parameter table: name -> slice of the arenas. Parameters, gradients, optimiser state and averages share one
/// layout: slices in REVERSE order of declaration (the order in which backward finishes gradients), each starting at
/// a multiple of 64 elements (256 bytes of fp32); the padding stays zero for ever, so that one pass over the whole
/// array (norm, update, reduce) needs no table. Checkpoints hold parameters alone, so they know of no padding.
///
/// Statistics (running means and variances of batch norm) are slices, too, behind all weights. Their "gradient" is this
/// step's value, summed over the ranks like any gradient, each rank's weighted with its share of the global batch; the
/// update moves them towards it. So they are the same on all ranks, travel at no extra message, are stored and resumed
/// like weights, and a step that fails leaves them alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/initialize.hpp"
#include "model/slice.hpp"

namespace lockstep::model {

/// What L2 and weight decay apply to. Biases, scales and the like are not decayed.
enum class Decay : bool { no, yes };
/// Who changes it: the optimiser, or what passes see (see above). Statistics are never decayed.
enum class Role : bool { weight, statistic };

struct ParameterSpec {
  std::string name;                 ///< "dense_1/weight": unique, stable, the name in checkpoints
  std::vector<std::int64_t> shape;  ///< logical shape, row-major
  Initializer initializer;
  std::int64_t fan_in = 1;
  std::int64_t fan_out = 1;
  Decay decay = Decay::yes;
  Role role = Role::weight;
  /// Elements of padding at least behind it: room for a view of more rows than it has (Pass::weight).
  std::int64_t padding = 0;
};

struct Parameter : ParameterSpec {
  std::size_t offset = 0;  ///< elements from the start of the arena
  std::size_t count = 0;   ///< elements
  Slice slice() const noexcept { return {offset, count}; }
  std::size_t end() const noexcept;  ///< of the slice with its padding
};

class ParameterTable {
 public:
  /// Index of the new parameter. Throws std::invalid_argument on a duplicate name, an empty or non-positive shape.
  std::size_t add(ParameterSpec spec);
  /// Another one for a parameter that was added; also after freeze(): layout and signature stay.
  void set_initializer(std::size_t index, const Initializer& initializer) {
    parameters_.at(index).initializer = initializer;
  }
  /// Assigns the offsets. No add afterwards.
  void freeze();

  const std::vector<Parameter>& all() const noexcept { return parameters_; }  ///< declaration (layer) order
  const Parameter& operator[](std::size_t index) const { return parameters_.at(index); }
  std::size_t arena_elements() const noexcept { return arena_elements_; }  ///< with padding
  std::size_t trained_elements() const noexcept {
    return trained_elements_;
  }                                               ///< of those, the weights: they come first
  std::int64_t parameter_count() const noexcept;  ///< without padding and statistics
  /// Ends of the slices in arena order, ascending; the last equals arena_elements(). For the bucket schedule.
  std::vector<std::size_t> slice_ends() const;
  std::size_t slice_end(std::size_t index) const { return parameters_.at(index).end(); }
  /// Text that two equal tables share: names, shapes, offsets. For the fingerprint and the checkpoint.
  std::string signature() const;

 private:
  std::vector<Parameter> parameters_;
  std::size_t arena_elements_ = 0, trained_elements_ = 0;
  bool frozen_ = false;
};

}  // namespace lockstep::model
