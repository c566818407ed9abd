/// \file
/// A parent process of a rank, so that a death is reported correctly.
///
/// Hydra, MPICH's launcher, kills all ranks of a job as soon as it hears of a death. It then names one of them, often
/// one that it has killed itself. Under Hydra a rank therefore runs as a child of the process that Hydra has started.
/// The parent learns first how the rank has ended. Before Hydra hears of it, the parent gives the other ranks time to
/// name the dead one, as they do under any launcher.
#pragma once

namespace lockstep::comm {

/// Under Hydra: returns in the child, which is the rank from here on. The parent passes signals on, ends like the rank,
/// and never returns. Does nothing under other launchers, or if no process can be created. Call it before MPI is up,
/// and before this process has started threads that matter.
void run_under_supervisor();

}  // namespace lockstep::comm
