/// \file
/// What peers on the same machine are told by a process that a signal ends: which one it was.
#pragma once

#include <string>

namespace lockstep::comm {

struct SharedControl;

/// "SIGINT", of those that stop a training; of others "signal 11".
std::string signal_name(int signal);

/// From here on note_ending_signal() shows it on this page, too, until the page goes. There is room for eight pages.
void show_ending_signal_on(SharedControl& own) noexcept;
void forget_ending_signal_on(SharedControl& own) noexcept;

/// `signal` is about to end this process. From a signal handler.
void note_ending_signal(int signal) noexcept;

}  // namespace lockstep::comm
