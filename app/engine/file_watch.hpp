/// \file
/// Files that do not come back, as the ranks of a job meet them: --io-deadline.
#pragma once

#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// An I/O deadline whose waits the peers hear of (Communicator::note_wait), and which ends the job with a sentence when
/// one is over (MpiSession::end_in_failure). Both arguments outlive it.
io::IoDeadline watch_files(comm::MpiSession& session, comm::Communicator& communicator, double seconds);

}  // namespace lockstep::app
