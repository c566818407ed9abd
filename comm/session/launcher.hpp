/// \file
/// What has started this process, as the environment tells it before MPI is up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep::comm {

/// This process's rank; nullopt: started by hand.
std::optional<int> launched_rank();

/// How many processes have been started for this program; 1: by hand, or the launcher does not tell.
int launched_size();

/// By MPICH's mpirun, together with others.
bool launched_by_hydra();

/// There is something to find peers by. Without it every MPI makes a world of one.
bool launcher_offers_peers();

/// The nearest launcher's variable that says how many processes it has started, where it says so: "PMI_SIZE".
std::optional<std::string> launched_size_variable();

/// What to say of as many processes as `variable` counts, which do not find each other. `mpi`: the library of this
/// program, "Open MPI v4.1.4".
std::string each_alone(std::string_view variable, std::string_view mpi);

/// The variable by which this MPI library is told which network interfaces it may use: "OMPI_MCA_btl_tcp_if_include".
std::string_view interface_variable(std::string_view mpi);

/// Where `variable` is set, its number; else 0.
long number_in(std::string_view variable);

/// "Open MPI v4.1.4": the library's words about itself, the first of them. Before MPI is up, too.
std::string mpi_library_version();

}  // namespace lockstep::comm
