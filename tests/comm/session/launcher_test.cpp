#include "comm/session/launcher.hpp"

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Sets the variables of one launcher, and unsets those of all others.
class Started {
 public:
  using Variables = std::initializer_list<std::pair<const char*, const char*>>;
  Started() : Started(Variables()) {}
  Started(Variables variables) {
    for (const char* const name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "PMI_RANK",
          "PMI_SIZE", "PMI_FD", "MPI_LOCALRANKID", "PMIX_RANK", "PMIX_NAMESPACE", "PALS_RANKID", "PALS_APID",
          "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) {
      unsetenv(name);
    }
    for (const auto& [name, value] : variables) {
      setenv(name, value, 1);
      names_.emplace_back(name);
    }
  }
  ~Started() {
    for (const std::string& name : names_) unsetenv(name.c_str());
  }

 private:
  std::vector<std::string> names_;
};

TEST(Launcher, NobodyHasStartedAProcessByHand) {
  const Started by_hand;
  EXPECT_EQ(launched_rank(), std::nullopt);
  EXPECT_EQ(launched_size(), 1);
  EXPECT_EQ(launched_size_variable(), std::nullopt);
  EXPECT_FALSE(launcher_offers_peers());
}

TEST(Launcher, SparesSurvivorsWhereItWasToldTo) {
  const Started by_hand;
  unsetenv("OMPI_MCA_orte_enable_recovery");
  EXPECT_FALSE(launcher_spares_survivors());
  for (const char* const value : {"1", "true", "yes"}) {
    setenv("OMPI_MCA_orte_enable_recovery", value, 1);
    EXPECT_TRUE(launcher_spares_survivors()) << value;
  }
  for (const char* const value : {"", "0", "false", "no"}) {
    setenv("OMPI_MCA_orte_enable_recovery", value, 1);
    EXPECT_FALSE(launcher_spares_survivors()) << value;
  }
  unsetenv("OMPI_MCA_orte_enable_recovery");
}

TEST(Launcher, HydraOfSeveralRanksIsKnown) {
  {
    const Started started{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "7"}};
    EXPECT_TRUE(launched_by_hydra());
  }
  {
    const Started started{{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALRANKID", "7"}};
    EXPECT_FALSE(launched_by_hydra()) << "alone";
  }
  const Started started{{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "7"}};
  EXPECT_FALSE(launched_by_hydra()) << "srun --mpi=pmi2";
}

TEST(Launcher, EachIsKnownByItsVariables) {
  const auto expect = [](int rank, int size, bool offers, const char* what) {
    EXPECT_EQ(launched_rank(), rank) << what;
    EXPECT_EQ(launched_size(), size) << what;
    EXPECT_EQ(launcher_offers_peers(), offers) << what;
  };
  {
    const Started started{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"SLURM_PROCID", "1"}};
    expect(3, 8, true, "Open MPI in a Slurm step: the nearer one");
  }
  {
    const Started started{{"MV2_COMM_WORLD_RANK", "2"}, {"MV2_COMM_WORLD_SIZE", "4"}};
    expect(2, 4, true, "MVAPICH2");
  }
  {
    const Started started{{"PMI_RANK", "5"}, {"PMI_SIZE", "6"}, {"PMI_FD", "9"}};
    expect(5, 6, true, "Hydra");
  }
  {
    const Started started{{"PALS_RANKID", "7"}, {"PALS_APID", "a"}, {"PMI_SIZE", "16"}};
    expect(7, 16, true, "PALS");
  }
  {
    const Started started{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}};
    expect(1, 2, false, "Flux without a PMI");
  }
  {
    const Started started{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "1"}};
    expect(1, 2, true, "srun --mpi=pmix");
  }
}

TEST(Launcher, TheRemedyIsThatOfTheLauncher) {
  {
    const Started started{{"SLURM_STEP_NUM_TASKS", "8"}};
    EXPECT_THAT(each_alone("SLURM_STEP_NUM_TASKS", "Open MPI v4"),
                testing::AllOf(HasSubstr("SLURM_STEP_NUM_TASKS=8: 8 processes each think they are alone"),
                               HasSubstr("srun --mpi=pmix"), HasSubstr("built with Open MPI v4")));
  }
  {
    const Started started{{"FLUX_JOB_SIZE", "2"}};
    EXPECT_THAT(each_alone("FLUX_JOB_SIZE", "MPICH"), HasSubstr("flux run"));
  }
  const Started started{{"MV2_COMM_WORLD_SIZE", "4"}};
  EXPECT_THAT(each_alone("MV2_COMM_WORLD_SIZE", "Open MPI v4"),
              testing::AllOf(HasSubstr("not with that of another one"), Not(HasSubstr("srun"))));
}

TEST(Launcher, HintsNameTheVariableOfTheMpiThatIsThere) {
  EXPECT_EQ(interface_variable("Open MPI v4.1.4"), "OMPI_MCA_btl_tcp_if_include");
  EXPECT_EQ(interface_variable("MPICH Version: 4.0.2"), "FI_TCP_IFACE");
  EXPECT_EQ(interface_variable("Intel(R) MPI Library 2021.9"), "FI_TCP_IFACE");
  EXPECT_EQ(interface_variable("MVAPICH2 Version: 2.3.7"), "MV2_IBA_HCA");
  EXPECT_NE(mpi_library_version(), "");
}

}  // namespace
}  // namespace lockstep::comm
