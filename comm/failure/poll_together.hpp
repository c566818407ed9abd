/// \file
/// Waits collectively for work that completes only when all ranks have done their part. Without this, the others would
/// wait for ever for a rank that fails.
#pragma once

#include <functional>
#include <string_view>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective. Calls `ready` on every rank until it has returned true on all of them; a rank on which it was true is
/// not asked again. It must not block and not communicate. If it throws on any rank, or some rank is not ready after
/// `deadline_seconds`, every rank throws ConsensusError within about kPollRoundSeconds, with each distinct text and the
/// ranks it came from; `what` completes "… is not ready after 60 s". The caller must then undo the work that it has
/// started.
void poll_together(Communicator& communicator, double deadline_seconds, std::string_view what,
                   const std::function<bool()>& ready);

/// Time that a rank polls before it asks the others about their state.
inline constexpr double kPollRoundSeconds = 0.1;

}  // namespace lockstep::comm
