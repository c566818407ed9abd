/// \file
/// mpi_tests: every rank runs every test; a failure on any rank fails the program on all. Rank 0 prints as usual, the
/// others print their failures only.
#include <cstdio>
#include <exception>
#include <string>

#include <gtest/gtest.h>
#include <mpi.h>

#include "world.hpp"

namespace lockstep::comm {
namespace {

MpiSession* the_session = nullptr;

class FailuresOnly final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s: %s:%d: %s\n", session().rank(), test_.c_str(),
                 result.file_name() ? result.file_name() : "", result.line_number(), result.message());
  }
  std::string test_;
};

int run() {
  if (session().rank() != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly);
  }
  int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) failed = 1;
  int failed_anywhere = 0;
  MPI_Allreduce(&failed, &failed_anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return failed_anywhere;
}

}  // namespace

MpiSession& session() { return *the_session; }

}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MpiSession session(argc, argv);
  lockstep::comm::the_session = &session;
  testing::InitGoogleTest(&argc, argv);
  // A test that throws on one rank leaves the others in a collective call, so the whole job ends.
  GTEST_FLAG_SET(catch_exceptions, false);
  try {
    return lockstep::comm::run();
  } catch (const std::exception& error) {
    session.abort(1, std::string("mpi_tests: uncaught exception: ") + error.what());
  }
}
