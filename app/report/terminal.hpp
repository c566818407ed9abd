/// \file
/// The destination of the output: a terminal, or a file or pipe.
#pragma once

namespace lockstep::app {

struct Terminal {
  bool interactive = false;  ///< true if a person watches: lines may be redrawn
  int columns = 80;          ///< width; 80 if unknown
  /// True if the terminal shows colours according to its name (TERM), and the user has not set NO_COLOR.
  bool coloured = false;
};

/// Examines file descriptor `descriptor` (usually 1). Under Open MPI's mpirun, a rank's stdout is a pseudo-terminal
/// even if mpirun's own output goes to a file. Then it examines the stdout of mpirun, an ancestor process, instead. If
/// that is a daemon on another host, the result is "not interactive". Makes a few system calls: fast enough for every
/// redraw.
Terminal terminal_at(int descriptor);

}  // namespace lockstep::app
