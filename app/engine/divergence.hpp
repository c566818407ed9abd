/// \file
/// Training that has come apart.
#pragma once

#include <cstdint>
#include <string>

#include "comm/agreement.hpp"

namespace lockstep::app {

/// Training cannot go on from the weights that it has come to. Thrown by every rank, when all that was enqueued is
/// done: what is restored from a checkpoint may go on.
class Divergence : public comm::AgreedError {
 public:
  /// It showed in `step`; after `good_step` all was well, as far as anybody knows.
  Divergence(std::int64_t step, std::int64_t good_step, const std::string& text)
      : comm::AgreedError(text), step_(step), good_step_(good_step) {}
  std::int64_t step() const noexcept { return step_; }
  std::int64_t good_step() const noexcept { return good_step_; }

 private:
  std::int64_t step_, good_step_;
};

}  // namespace lockstep::app
