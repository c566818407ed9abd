/// Identities of processes in files on shared disks.
#include "io/runs/process_identity.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::io {
namespace {

TEST(ProcessIdentity, IsReadAsItIsWritten) {
  const ProcessIdentity own = this_process();
  const ProcessIdentity read = process_identity_from(to_text(own));
  EXPECT_EQ(read.host, own.host);
  EXPECT_EQ(read.pid, ::getpid());
  EXPECT_EQ(read.boot, own.boot);
  EXPECT_EQ(read.pid_namespace, own.pid_namespace);
  EXPECT_EQ(read.started, own.started);
  EXPECT_EQ(read.token, own.token);
  EXPECT_NE(own.boot, "");
  EXPECT_NE(own.pid_namespace, 0U);
  EXPECT_NE(own.started, 0U);
  EXPECT_NE(this_process().token, own.token);
}

TEST(ProcessIdentity, AnythingElseIsNobody) {
  for (const char* text : {"", "host", "node7 1234", "pid 12x\nboot\nnamespace -1\n", "\n\n\x01"}) {
    const ProcessIdentity read = process_identity_from(text);
    EXPECT_EQ(read.pid, 0) << text;
    EXPECT_EQ(read.pid_namespace, 0U) << text;
    EXPECT_EQ(presence_of(read), Presence::unseen) << text;
  }
}

TEST(ProcessIdentity, TellsWhoRunsWhoHasEndedAndWhoCannotBeSeen) {
  const ProcessIdentity own = this_process();
  EXPECT_EQ(presence_of(own), Presence::here);
  ProcessIdentity other = own;
  ++other.started;
  EXPECT_EQ(presence_of(other), Presence::gone) << "its process id is another's now";
  other = own;
  other.boot += "0";
  EXPECT_EQ(presence_of(other), Presence::unseen);
  EXPECT_FALSE(on_one_kernel(own, other));
  other = own;
  ++other.pid_namespace;
  EXPECT_EQ(presence_of(other), Presence::unseen);
  EXPECT_TRUE(on_one_kernel(own, other));
}

TEST(ProcessIdentity, AProcessThatNobodyHasCollectedHasEnded) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  ProcessIdentity process = this_process();
  process.pid = child;
  process.started = 0;
  EXPECT_EQ(presence_of(process), Presence::gone);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(presence_of(process), Presence::gone);
}

}  // namespace
}  // namespace lockstep::io
