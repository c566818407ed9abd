#include "app/report/result_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/consensus.hpp"
#include "comm/host/serial_communicator.hpp"
#include "io/io_test_support.hpp"
#include "support/message_of.hpp"

namespace lockstep::app {
namespace {

TEST(ResultFiles, KeepWhatWasThereUntilTheFirstWrite) {
  const std::filesystem::path file = testing::TempDir() + "/result_file_test.txt";
  std::ofstream(file) << "an older and longer text\n";
  comm::SerialCommunicator alone;
  {
    ResultFile result(alone, file);
    EXPECT_TRUE(result.wanted());
    EXPECT_EQ(io::read_text(file), "an older and longer text\n");
    result.write("one\n");
    EXPECT_EQ(io::read_text(file), "one\n");
    result.write("two\n");
  }
  EXPECT_EQ(io::read_text(file), "one\ntwo\n");
  std::filesystem::remove(file);
}

TEST(ResultFiles, SayWhatCannotBeWritten) {
  comm::SerialCommunicator alone;
  ResultFile nothing(alone, "");
  EXPECT_FALSE(nothing.wanted());
  nothing.write("to nowhere");
  EXPECT_THAT(test::message_of<comm::ConsensusError>([&] { ResultFile result(alone, "/nowhere/at all.csv"); }),
              testing::HasSubstr("cannot write /nowhere/at all.csv: No such file"));
  ResultFile full(alone, "/dev/full");
  EXPECT_THROW(full.write("x"), comm::ConsensusError);
  ResultFile device(alone, "/dev/null");
  device.write("x");
}

}  // namespace
}  // namespace lockstep::app
