#include "comm/session/launcher.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <mpi.h>

namespace lockstep::comm {
namespace {

struct Launcher {
  const char *rank, *size;  ///< names of variables; nullptr: none
};

/// The nearest launcher decides: ranks of mpirun inherit the variables of Slurm or Flux from its daemons, and those
/// count daemons.
constexpr Launcher kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr Launcher kMvapich{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"};
constexpr Launcher kHydra{"PMI_RANK", "PMI_SIZE"};  // MPICH, Intel MPI; also of PALS, Flux and srun --mpi=pmi2
constexpr Launcher kPals{"PALS_RANKID", nullptr};   // Cray EX; it sets PMI_SIZE
constexpr Launcher kPmix{"PMIX_RANK", nullptr};
constexpr Launcher kFlux{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"};
constexpr Launcher kSlurm{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"};
constexpr std::array kLaunchers{kOpenMpi, kMvapich, kHydra, kPals, kPmix, kFlux, kSlurm};

}  // namespace

std::optional<int> launched_rank() {
  for (const Launcher& launcher : kLaunchers) {
    if (const char* const value = std::getenv(launcher.rank)) return std::atoi(value);
  }
  return std::nullopt;
}

std::optional<std::string> launched_size_variable() {
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.size != nullptr && std::getenv(launcher.size)) return launcher.size;
  }
  return std::nullopt;
}

int launched_size() {
  const std::optional<std::string> variable = launched_size_variable();
  return variable ? std::max(1, static_cast<int>(number_in(*variable))) : 1;
}

bool launched_by_hydra() { return std::getenv("MPI_LOCALRANKID") != nullptr && number_in(kHydra.size) > 1; }

bool launcher_spares_survivors() {
  constexpr std::array kRecoveries{"OMPI_MCA_orte_enable_recovery", "PRTE_MCA_prte_enable_recovery"};
  return std::ranges::any_of(kRecoveries, [](const char* name) {
    const char* const value = std::getenv(name);
    return value != nullptr && *value != '\0' && std::string_view("0nNfF").find(*value) == std::string_view::npos;
  });
}

bool launcher_offers_peers() {
  constexpr std::array kOffers{"OMPI_COMM_WORLD_SIZE",
                               "MV2_COMM_WORLD_SIZE",
                               "PMI_SIZE",
                               "PMI_RANK",
                               "PMI_FD",
                               "PMIX_RANK",
                               "PMIX_NAMESPACE",
                               "PALS_APID"};
  return std::any_of(kOffers.begin(), kOffers.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

long number_in(std::string_view variable) {
  const char* const value = std::getenv(std::string(variable).c_str());
  return value ? std::strtol(value, nullptr, 10) : 0;
}

std::string each_alone(std::string_view variable, std::string_view mpi) {
  const long tasks = number_in(variable);
  std::string remedy =
      variable == kSlurm.size
          ? "`srun --mpi=pmix`, where Slurm (`srun --mpi=list`) and the MPI of this program both have it, or with that "
            "MPI's `mpirun` inside the sbatch script"
      : variable == kFlux.size ? "`flux run -o pmi=pmix`, where Flux has that plugin, or with the `mpirun` of the MPI "
                                 "of this program inside `flux batch`"
                               : "the `mpirun` or `mpiexec` of the MPI of this program, not with that of another one";
  return fmt::format(
      "MPI sees a world of one, but {}={}: {} processes each think they are alone. This program is built with {}. "
      "Start "
      "the job with {}. To run {} separate programs on purpose, unset {}",
      variable, tasks, tasks, mpi, remedy, tasks, variable);
}

std::string_view interface_variable(std::string_view mpi) {
  if (mpi.find("Open MPI") != std::string_view::npos) return "OMPI_MCA_btl_tcp_if_include";
  if (mpi.find("MVAPICH2") != std::string_view::npos) return "MV2_IBA_HCA";
  return "FI_TCP_IFACE";  // MPICH and its derivatives, over libfabric
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS || length <= 0) return "an MPI library without a version";
  const std::string all(text, static_cast<std::size_t>(length));
  std::string first = all.substr(0, all.find_first_of(",\n"));
  std::replace_if(
      first.begin(), first.end(), [](char c) { return c == '\t' || c == '\0'; }, ' ');
  return first;
}

}  // namespace lockstep::comm
