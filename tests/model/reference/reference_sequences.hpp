/// \file
/// The reference operations on sequences: float64, a simple loop each.
#pragma once

#include "model/sequence_operations.hpp"

namespace lockstep::model {

class ReferenceSequences final : public SequenceOperations {
 public:
  ReferenceSequences() : SequenceOperations({ElementType::float64, ElementType::float64}) {}

 private:
  LOCKSTEP_SEQUENCE_OPERATIONS(void, override)
};

}  // namespace lockstep::model
