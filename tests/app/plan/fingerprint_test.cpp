#include "app/plan/fingerprint.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::app {
namespace {

TEST(ProgramFingerprint, TellsBuildsOfOneVersionApart) {
  EXPECT_THAT(program_fingerprint(), testing::ContainsRegex(" [0-9a-f]{40} of [1-9][0-9]+ bytes"));
  EXPECT_EQ(program_fingerprint(), program_fingerprint());
}

}  // namespace
}  // namespace lockstep::app
