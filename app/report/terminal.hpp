/// \file
/// Destination of the output: a terminal, or a file or pipe.
#pragma once

namespace lockstep::app {

struct Terminal {
  bool interactive = false;  ///< true if a person watches: lines may be redrawn
  int columns = 80;          ///< width; 80 if unknown
  /// True if it shows colours, according to its name (TERM), and the user has not set NO_COLOR.
  bool coloured = false;
};

/// Examines file descriptor `descriptor` (usually 1). Under Open MPI's mpirun a rank's stdout is a pseudo-terminal even
/// if mpirun's own output goes to a file, so there it examines the parent process (mpirun) instead; if that is a daemon
/// on another host, the result is "not interactive". A few system calls; cheap enough for every redraw.
Terminal terminal_at(int descriptor);

}  // namespace lockstep::app
