/// \file
/// Something that every rank starts and that is ready on none before all have done their part: the other ranks of one
/// that fails would wait for it for ever.
#pragma once

#include <functional>
#include <string_view>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Collective. Calls `ready` on every rank until it has returned true on all of them, not again on a rank where it did.
/// It must not block and not communicate. When it throws on any rank, or some rank is not ready after
/// `deadline_seconds`, every rank throws AgreedError within about kPollRoundSeconds, with each distinct text and the
/// ranks it came from; `what` completes "… is not ready after 60 s". What was started is the caller's to take back.
void poll_together(Communicator& communicator, double deadline_seconds, std::string_view what,
                   const std::function<bool()>& ready);

/// A rank that is not ready looks this long before it asks the others how they are.
inline constexpr double kPollRoundSeconds = 0.1;

}  // namespace lockstep::comm
