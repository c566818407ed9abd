/// \file
/// Tells peers on the same machine which signal ends this process.
#pragma once

#include <string>

namespace lockstep::comm {

struct SharedControl;

/// "SIGINT", for signals that stop a training; "signal 11" for others.
std::string signal_name(int signal);

/// note_ending_signal() shows the signal on this page, too, until the page goes. At most eight pages.
void show_ending_signal_on(SharedControl& own) noexcept;
void forget_ending_signal_on(SharedControl& own) noexcept;

/// `signal` is about to end this process. For signal handlers.
void note_ending_signal(int signal) noexcept;

}  // namespace lockstep::comm
