/// A world of one: the serial communicator, and a session without a launcher and without MPI.
#include "comm/host/serial_communicator.hpp"

#include <chrono>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/failure/urgency.hpp"
#include "comm/messages.hpp"
#include "comm/survey/mpi_all_reduce.hpp"

namespace lockstep::comm {
namespace {

using testing::HasSubstr;

/// A communicator of any size, for the results that the checked front computes by itself.
class Sized final : public Communicator {
 public:
  explicit Sized(int size) : Communicator(0, size) {}
  Transport transport() const noexcept override { return Transport::serial; }

 private:
  std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t, MemoryUse) override { return nullptr; }
  void do_all_reduce(std::span<float>) override {}
  void do_all_reduce(std::span<double>) override {}
  void do_reduce_scatter(std::span<float>) override {}
  void do_all_gather(std::span<std::byte>, std::size_t) override {}
  void do_broadcast(std::span<std::byte>, int) override {}
  void do_barrier() override {}
  void do_note_activity(const char*, std::int64_t) noexcept override {}
  void do_begin_long_operation(const char*) override {}
  void do_end_long_operation() noexcept override {}
};

TEST(OwnSlice, CoversEveryElementOnceInEqualWholeLinesAndTheRestAtTheLast) {
  for (int size = 1; size <= 9; ++size) {
    const Sized communicator(size);
    for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 143u, 144u, 145u, 1000u, 1024u}) {
      std::size_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Slice slice = communicator.own_slice(count, rank);
        EXPECT_EQ(slice, slice_of(count, rank, size));
        EXPECT_EQ(slice.offset, end);
        EXPECT_EQ(slice.offset % 16, 0u);
        if (rank + 1 < size) {
          EXPECT_EQ(slice.count, slice_of(count, 0, size).count);
        } else {
          EXPECT_LT(slice.count - slice_of(count, 0, size).count, 16u * static_cast<unsigned>(size) + 16);
        }
        end += slice.count;
      }
      EXPECT_EQ(end, count);
    }
  }
}

void expect_a_world_of_one(Communicator& communicator) {
  EXPECT_EQ(communicator.rank(), 0);
  EXPECT_EQ(communicator.size(), 1);
  EXPECT_EQ(name_of(communicator.transport()), "serial");
  const auto memory = communicator.reduction_memory(1024);
  auto* const floats = static_cast<float*>(memory->allocate(1024, 256));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(floats) % 256, 0u);
  EXPECT_THROW((void)memory->allocate(1, 1), std::bad_alloc);
  const std::span<float> data(floats, 256);
  std::iota(data.begin(), data.end(), 1.0f);
  const std::vector<float> before(data.begin(), data.end());
  communicator.all_reduce(data);
  communicator.wait();
  communicator.reduce_scatter(data);
  communicator.wait();
  communicator.all_gather(data);
  communicator.all_gather(std::as_writable_bytes(data));
  communicator.wait();
  communicator.broadcast(std::as_writable_bytes(data), 0);
  communicator.wait();
  communicator.barrier();
  communicator.wait();
  EXPECT_TRUE(std::equal(data.begin(), data.end(), before.begin()));
  EXPECT_THAT(all_gather_text(communicator, "text"), testing::ElementsAre("text"));
  EXPECT_THROW(communicator.broadcast({}, 1), std::invalid_argument);
}

TEST(Urgency, ASleepEndsWhenItGetsUrgent) {
  Urgency urgency;
  EXPECT_TRUE(urgency.urgent());
  urgency.set(false);
  const auto start = std::chrono::steady_clock::now();
  urgency.sleep_unless_urgent(std::chrono::milliseconds(20));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  std::jthread other([&] { urgency.set(true); });
  urgency.sleep_unless_urgent(std::chrono::minutes(10));
  urgency.sleep_unless_urgent(std::chrono::minutes(10));  // it is urgent already
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5));
}

TEST(SerialCommunicator, IsAWorldOfOne) {
  SerialCommunicator communicator;
  expect_a_world_of_one(communicator);
}

TEST(MpiSession, WithoutALauncherIsAWorldOfOne) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})
    unsetenv(variable);
  setenv("OMPI_MCA_orte_tmpdir_base", "/dev/null/nowhere", 1);  // MPI could not start
  char name[] = "program", option[] = "--option";
  char* words[] = {name, option, nullptr};
  int argc = 2;
  char** argv = words;
  MpiSession session(argc, argv);
  EXPECT_EQ(argc, 2);
  EXPECT_EQ(session.rank(), 0);
  EXPECT_EQ(session.size(), 1);
  EXPECT_NE(session.host(), "");
  expect_a_world_of_one(*make_communicator(session, {.transport = Transport::ring}));
  EXPECT_THROW(make_communicator(session, {.deadline_seconds = 0}), std::invalid_argument);
  EXPECT_EQ(session.subset(1, 60)->size(), 1);
  MpiAllReduce library(session, 60);
  std::vector<float> values{1, 2};
  library.sum(values);
  EXPECT_THAT(values, testing::ElementsAre(1, 2));

  EXPECT_EQ(session.launch_warning(), "");
  setenv("SLURM_NTASKS", "1", 1);
  EXPECT_EQ(session.launch_warning(), "");
  setenv("SLURM_NTASKS", "8", 1);
  EXPECT_THAT(session.launch_warning(), testing::AllOf(HasSubstr("SLURM_NTASKS=8: only this one process was started"),
                                                       HasSubstr("srun --mpi=pmix")));
  EXPECT_EQ(session.launch_error(), "");

  setenv("SLURM_STEP_NUM_TASKS", "1", 1);  // a shell of its own in an allocation of eight
  EXPECT_EQ(session.launch_warning(), "");
  EXPECT_EQ(session.launch_error(), "");
  setenv("SLURM_STEP_NUM_TASKS", "8", 1);
  EXPECT_EQ(session.launch_warning(), "");
  EXPECT_THAT(session.launch_error(),
              testing::AllOf(HasSubstr("8 processes each think they are alone"), HasSubstr("srun --mpi=pmix")));
  EXPECT_EQ(MpiSession::launch_obstacle(), session.launch_error());
  setenv("PMIX_RANK", "0", 1);  // ranks could find each other
  EXPECT_EQ(MpiSession::launch_obstacle(), "");
  unsetenv("PMIX_RANK");
  setenv("OMPI_COMM_WORLD_SIZE", "1", 1);  // mpirun -np 1, whose daemons are a step of eight
  EXPECT_EQ(session.launch_error(), "");
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  EXPECT_THAT(session.launch_error(), HasSubstr("OMPI_COMM_WORLD_SIZE=4: 4 processes each think they are alone"));
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) unsetenv(variable);
}

}  // namespace
}  // namespace lockstep::comm
