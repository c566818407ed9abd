/// \file
/// The parts of the arenas that a rank updates if ranks share the update: the sharded optimiser (Rajbhandari et al.
/// 2020, "ZeRO", stage 1; earlier Xu et al. 2020). A rank keeps optimiser state only for the parts that it owns. State
/// arenas store the owned parts one after the other; each starts at a multiple of 64 elements (256 bytes of fp32). A
/// part may begin or end inside a parameter, since elementwise rules do not depend on the boundaries.
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
    std::size_t state_offset = 0;     ///< offset of its state in a state arena
    std::size_t trained = 0;          ///< elements of weights, which come first; the rest are statistics
    std::vector<UpdateSlice> slices;  ///< parameters within the part, clipped to it; offsets from its start
  };

  /// `ranges`: ascending and disjoint; some may be empty. No ranges: one part with all elements, and state in the
  /// layout of the parameters. Throws std::invalid_argument for invalid ranges.
  OwnedParts(const ParameterTable& table, std::span<const Slice> ranges);

  /// One part for each range, even for an empty one.
  const std::vector<Part>& parts() const noexcept { return parts_; }
  bool whole() const noexcept { return whole_; }
  /// Elements of a state arena, with padding.
  std::size_t state_elements() const noexcept { return state_elements_; }
  /// The same, for planning.
  static std::size_t state_elements(const ParameterTable& table, std::span<const Slice> ranges);
  /// Returns the offset of the state of `range`; nullopt unless one part contains the whole range.
  std::optional<std::size_t> state_offset(const Slice& range) const noexcept;

 private:
  std::vector<Part> parts_;
  bool whole_;
  std::size_t state_elements_;
};

}  // namespace lockstep::model
