/// \file
/// The launcher of this process, according to the environment. Usable before MPI starts.
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

/// True if the launcher lets the other ranks live when one dies: Open MPI's, if orte_enable_recovery is set.
bool launcher_spares_survivors();

/// True if a launcher provides the means to find peers. Otherwise any MPI makes a world of one.
bool launcher_offers_peers();

/// The name of the nearest launcher's variable with the number of its processes, such as "PMI_SIZE", if it has one.
std::optional<std::string> launched_size_variable();

/// Message for processes, counted in `variable`, that cannot find each other. `mpi`: the library of this program, such
/// as "Open MPI v4.1.4".
std::string each_alone(std::string_view variable, std::string_view mpi);

/// The variable that selects the network interfaces of this MPI library, such as "OMPI_MCA_btl_tcp_if_include".
std::string_view interface_variable(std::string_view mpi);

/// The number in the environment variable; 0 if it is not set.
long number_in(std::string_view variable);

/// Returns the start of the library's description of itself, such as "Open MPI v4.1.4". Works before MPI starts, too.
std::string mpi_library_version();

}  // namespace lockstep::comm
