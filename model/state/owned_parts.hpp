/// \file
/// The parts of the arenas that one model updates when several share the work: the sharded optimiser (Rajbhandari et
/// al. 2020, "ZeRO", stage 1; before it Xu et al. 2020). The owner of a part keeps its optimiser state, and no other:
/// state arenas hold the owned parts one behind the other, each from a multiple of 64 elements on (256 bytes of fp32).
/// Parts may cut through parameters, because elementwise rules do not depend on the boundaries.
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
    std::size_t state_offset = 0;  ///< offset of its state
    std::size_t trained = 0;       ///< number of its first elements that belong to weights; the others are statistics
    std::vector<UpdateSlice> slices;  ///< pieces of parameters within the part, counted from its beginning
  };

  /// `ranges`: ascending and disjoint, some may be empty; no ranges: all of the arenas, state in their own layout.
  /// Throws std::invalid_argument.
  OwnedParts(const ParameterTable& table, std::span<const Slice> ranges);

  /// One for each range, even for empty ones.
  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool whole() const noexcept { return whole_; }
  /// Size of a state arena, with padding.
  std::size_t state_elements() const noexcept { return state_elements_; }
  /// The same before any object exists.
  static std::size_t state_elements(const ParameterTable& table, std::span<const Slice> ranges);
  /// The offset of the state of `range`; nullopt unless it is all within one part.
  std::optional<std::size_t> state_offset(const Slice& range) const noexcept;

 private:
  std::vector<Part> parts_;
  bool whole_;
  std::size_t state_elements_;
};

}  // namespace lockstep::model
