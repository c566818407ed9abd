/// \file
/// A stack that is too small ends a process with a segmentation fault, which says nothing.
#pragma once

namespace lockstep::app {

/// For the first line of main. Returns where the stack may grow far enough for this program, its threads and libraries.
/// Where only the soft limit (ulimit -s) is too small, raises it and starts the program again, with the same words:
/// threads of libraries have their stacks already. Else says so and ends the process with exit code 1.
void require_stack(char** argv);

}  // namespace lockstep::app
