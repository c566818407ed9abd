/// \file
/// A process above a rank, so that a death is named.
///
/// Hydra, MPICH's launcher, kills all ranks of a job as soon as it hears that one has died, and then names one of them,
/// often one that it has killed itself. So under Hydra a rank runs as the child of the process that Hydra has started.
/// That process hears first how the rank has ended. It gives the others time to say who has died, as they do under any
/// launcher, before Hydra hears of it.
#pragma once

namespace lockstep::comm {

/// Under Hydra: returns in the child, which is the rank from here on. The parent passes signals on, ends as the rank
/// ends, and never returns. Under other launchers, and where no process can be made, nothing happens. Before MPI is up,
/// and before this process has started threads that matter.
void run_under_supervisor();

}  // namespace lockstep::comm
