/// \file
/// Tells peers on the same machine which signal ends this process.
#pragma once

#include <string>

namespace lockstep::comm {

struct SharedControl;

/// Returns "SIGINT" and the like for signals that stop a training, "signal 11" and the like for others.
std::string signal_name(int signal);

/// note_ending_signal() also shows the signal on this page, until forget_ending_signal_on(). At most eight pages.
void show_ending_signal_on(SharedControl& own) noexcept;
void forget_ending_signal_on(SharedControl& own) noexcept;

/// Notes that `signal` is about to end this process. Signal handlers may call it.
void note_ending_signal(int signal) noexcept;

}  // namespace lockstep::comm
