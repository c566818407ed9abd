/// \file
/// The launcher of this process, by the environment, before MPI is up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// This process's rank; nullopt: started without a launcher.
std::optional<int> launched_rank();

/// Number of processes started for this program; 1: started without a launcher, or unknown.
int launched_size();

/// True if MPICH's mpirun has started this process together with others.
bool launched_by_hydra();

/// It lets the others live when a rank dies: of Open MPI, where it was told to (orte_enable_recovery).
bool launcher_spares_survivors();

/// There is something to find peers by. Without it every MPI makes a world of one.
bool launcher_offers_peers();

/// The nearest launcher's variable for the number of its processes, if it has one: "PMI_SIZE".
std::optional<std::string> launched_size_variable();

/// Message for the processes counted in `variable` that cannot find each other. `mpi`: the library of this program,
/// "Open MPI v4.1.4".
std::string each_alone(std::string_view variable, std::string_view mpi);

/// The variable that tells this MPI library which network interfaces it may use: "OMPI_MCA_btl_tcp_if_include".
std::string_view interface_variable(std::string_view mpi);

/// The number in `variable`; 0 if it is not set.
long number_in(std::string_view variable);

/// "Open MPI v4.1.4": the start of the library's own description. Works before MPI is up, too.
std::string mpi_library_version();

}  // namespace lockstep::comm
