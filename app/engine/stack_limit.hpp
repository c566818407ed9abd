/// \file
/// Reports a stack that is too small before it causes a segmentation fault.
#pragma once

namespace lockstep::app {

/// Call in the first line of main. Returns if the stack may grow far enough for this program, its threads and
/// libraries. If only the soft limit (ulimit -s) is too small, raises it and restarts the program with the same
/// arguments, because threads of libraries have their stacks already. Otherwise reports the limit and ends the process
/// with exit code 1.
void require_stack(char** argv);

}  // namespace lockstep::app
