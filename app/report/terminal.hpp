/// \file
/// Where our output ends: at somebody's terminal, or in a file or pipe.
#pragma once

namespace lockstep::app {

struct Terminal {
  bool interactive = false;  ///< a person watches: lines may be redrawn
  int columns = 80;          ///< width; 80 where nobody knows
  /// It shows colours, as far as its name (TERM) tells, and the user has not set NO_COLOR.
  bool coloured = false;
};

/// Looks at file descriptor `descriptor` (usually 1). Under Open MPI's mpirun a rank's stdout is a pseudo-terminal even
/// when mpirun's own output goes to a file, so there the parent process (mpirun) is asked instead; where that is a
/// daemon on another host, the answer is "not interactive". A few system calls; cheap enough to ask at every redraw.
Terminal terminal_at(int descriptor);

}  // namespace lockstep::app
