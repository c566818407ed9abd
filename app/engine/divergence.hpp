/// \file
/// The exception for diverged training.
#pragma once

#include <cstdint>
#include <string>

#include "comm/consensus.hpp"

namespace lockstep::app {

/// The weights have diverged, and training cannot continue from them. Every rank throws it, after all enqueued work is
/// complete. Training may continue from a restored checkpoint.
class Divergence : public comm::ConsensusError {
 public:
  /// The divergence appeared in `step`; `good_step` is the last step without a sign of it.
  Divergence(std::int64_t step, std::int64_t good_step, const std::string& text)
      : comm::ConsensusError(text), step_(step), good_step_(good_step) {}
  std::int64_t step() const noexcept { return step_; }
  std::int64_t good_step() const noexcept { return good_step_; }

 private:
  std::int64_t step_, good_step_;
};

}  // namespace lockstep::app
