/// \file
/// Implements --io-deadline: the reaction of a job to file operations that do not return.
#pragma once

#include "comm/communicator.hpp"
#include "comm/session/mpi_session.hpp"
#include "io/files/io_deadline.hpp"

namespace lockstep::app {

/// Returns an I/O deadline that reports waits to the peers (Communicator::note_wait). When it expires, it ends the job
/// with a message (MpiSession::end_in_failure). A wait of a tenth of the deadline, or of half a minute, causes a
/// warning on stderr. Later waits cause a warning only if they are longer than all earlier ones. `session` and
/// `communicator` must outlive it.
io::IoDeadline watch_files(comm::MpiSession& session, comm::Communicator& communicator, double seconds);

}  // namespace lockstep::app
