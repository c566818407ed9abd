/// \file
/// Which parts of the arenas one model updates, where several share the work: the sharded optimiser (Rajbhandari et al.
/// 2020, "ZeRO", stage 1; before it Xu et al. 2020). Whoever owns a part keeps the optimiser's state of it, and of it
/// alone: state arenas hold the owned parts one behind the other, each from a multiple of 64 elements on (256 bytes of
/// fp32). Parts cut through parameters as they like: rules that look at each element alone do not mind.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

class OwnedParts {
 public:
  struct Part {
    Slice range;
    std::size_t state_offset = 0;     ///< where its state is
    std::size_t trained = 0;          ///< its first elements belong to weights, the others to statistics
    std::vector<UpdateSlice> slices;  ///< what lies in it of each parameter, counted from its beginning
  };

  /// `ranges`: ascending and disjoint, some may be empty; no ranges: all of the arenas, state in their own layout.
  /// Throws std::invalid_argument.
  OwnedParts(const ParameterTable& table, std::span<const Slice> ranges);

  /// One for each range, also for those that hold nothing.
  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool whole() const noexcept { return whole_; }
  /// What a state arena takes, with padding.
  std::size_t state_elements() const noexcept { return state_elements_; }
  /// The same before anything is made.
  static std::size_t state_elements(const ParameterTable& table, std::span<const Slice> ranges);
  /// Where the state of `range` is; nothing when it is not all within one part.
  std::optional<std::size_t> state_offset(const Slice& range) const noexcept;

 private:
  std::vector<Part> parts_;
  bool whole_;
  std::size_t state_elements_;
};

}  // namespace lockstep::model
