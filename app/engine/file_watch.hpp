/// \file
/// Files that do not come back, as the ranks of a job meet them: --io-deadline.
#pragma once

#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// An I/O deadline whose waits the peers hear of (Communicator::note_wait), and which ends the job with a sentence when
/// one is over (MpiSession::end_in_failure). A wait of a tenth of that, or of half a minute, is a warning on stderr; of
/// later waits only one that lasts longer than those before. Both arguments outlive it.
io::IoDeadline watch_files(comm::MpiSession& session, comm::Communicator& communicator, double seconds);

}  // namespace lockstep::app
