#include "app/report/console.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "app/report/terminal.hpp"
#include "io/files/file_error.hpp"
#include "io/io_test_support.hpp"
#include "io/small_disk.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// The console's two outputs as pipes, read without waiting.
class Pipe {
 public:
  Pipe() { EXPECT_EQ(pipe2(ends_.data(), O_NONBLOCK | O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  int in() const { return ends_[1]; }
  std::string text() const {
    std::string text(65536, '\0');
    const ssize_t count = read(ends_[0], text.data(), text.size());
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }

 private:
  std::array<int, 2> ends_{};
};

/// A real terminal of a given width.
class Pty {
 public:
  explicit Pty(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    EXPECT_EQ(openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Pty() {
    close(master_);
    close(slave_);
  }
  int slave() const { return slave_; }
  /// The output since the last call. The kernel delivers it with delay and in pieces: waits for the first piece, then
  /// until no more comes.
  std::string text() const {
    std::string text;
    std::array<char, 4096> piece{};
    for (int patience = 5000; has_more(patience); patience = 50) {
      const ssize_t count = read(master_, piece.data(), piece.size());
      if (count <= 0) break;
      text.append(piece.data(), static_cast<std::size_t>(count));
    }
    return text;
  }
  bool silent() const { return !has_more(50); }

 private:
  bool has_more(int milliseconds) const {
    pollfd ready{.fd = master_, .events = POLLIN, .revents = 0};
    return poll(&ready, 1, milliseconds) > 0;
  }

  int master_ = -1, slave_ = -1;
};

class ConsoleTest : public testing::Test {
 protected:
  const io::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
  Pipe output_, error_;
};

TEST_F(ConsoleTest, SaysEachMessageAsWholeLines) {
  Console console(output_.in(), error_.in());
  console.info("one");
  console.info("two\nthree\n\n");
  console.warn("careful");
  EXPECT_EQ(output_.text(), "one\ntwo\nthree\n");
  EXPECT_EQ(error_.text(), "warning: careful\n");
  console.warn("one\nanother");
  EXPECT_EQ(error_.text(), "warning: one\nwarning: another\n");
}

TEST_F(ConsoleTest, CopiesEverythingButTheBarIntoTheLog) {
  const fs::path log = folder_ / "log.txt";
  {
    Console console(output_.in(), error_.in());
    console.info("before");
    console.attach_log(log, false);
    console.set_progress(true);
    console.progress(0.5, "half");
    console.info("during");
    console.warn("careful");
  }
  EXPECT_EQ(io::read_text(log), "before\nduring\nwarning: careful\n");
  Console(output_.in(), error_.in()).attach_log(log, true);
  EXPECT_EQ(io::read_text(log), "before\nduring\nwarning: careful\n");
  Console(output_.in(), error_.in()).attach_log(log, false);
  EXPECT_EQ(io::read_text(log), "");
}

TEST_F(ConsoleTest, RefusesALogThatCannotBeOpened) {
  Console console(output_.in(), error_.in());
  const fs::path absent = folder_ / "absent" / "log.txt";
  EXPECT_THAT(test::message_of<io::FileError>([&] { console.attach_log(absent, false); }),
              AllOf(HasSubstr(absent.string()), HasSubstr("No such file or directory")));
}

TEST_F(ConsoleTest, SaysOnceThatTheLogsDiskIsFull) {
  const io::SmallDisk disk("32k");
  if (!disk.reason.empty()) GTEST_SKIP() << disk.reason;
  Console console(output_.in(), error_.in());
  console.attach_log(disk.path() / "log.txt", true);
  const std::string lost(50'000, 'x');
  EXPECT_THAT(test::message_of<io::FileError>([&] { console.info(lost); }),
              AllOf(HasSubstr("log.txt"), HasSubstr("No space left on device")));
  EXPECT_NO_THROW(console.info("kept"));
  EXPECT_THAT(output_.text(), EndsWith("x\nkept\n"));
}

TEST_F(ConsoleTest, TellsThatAResultDidNotReachStdout) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  Console console(full, error_.in());
  EXPECT_NO_THROW(console.require_output());
  EXPECT_NO_THROW(console.info("lost"));
  EXPECT_THROW(console.require_output(), io::FileError);
  EXPECT_EQ(error_.text(), "") << "who has no log says it at the end";
  console.mention_lost_output();
  console.mention_lost_output();
  EXPECT_EQ(error_.text(),
            "warning: standard output cannot be written (No space left on device), lines are lost there\n");
  close(full);
}

TEST_F(ConsoleTest, GoesOnInTheLogWhenItsReaderHasGone) {
  signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  Console console(ends[1], error_.in());
  close(ends[0]);
  console.info("one");
  const std::string log = (folder_ / "log.txt").string();
  console.attach_log(log, false);
  console.info("two");
  const std::string warning =
      "warning: nobody reads standard output any more; the run goes on, and " + log + " has all lines\n";
  EXPECT_EQ(error_.text(), warning) << "once";
  EXPECT_EQ(io::read_text(log), "one\n" + warning + "two\n");
  EXPECT_NO_THROW(console.require_output()) << "the reader has had what it wanted";
  close(ends[1]);
}

TEST_F(ConsoleTest, WaitsForRoomInAPipeThatDoesNotBlock) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK), 0);
  const std::string line(1000, 'x');
  std::thread reader([&] {
    std::array<char, 4096> piece{};
    for (std::size_t read_so_far = 0; read_so_far < 300 * (line.size() + 1);) {
      const ssize_t count = read(ends[0], piece.data(), piece.size());
      if (count > 0) read_so_far += static_cast<std::size_t>(count);
    }
  });
  Console console(ends[1], error_.in());
  for (int i = 0; i < 300; ++i) console.info(line);  // a pipe holds 64 KiB
  reader.join();
  EXPECT_NO_THROW(console.require_output());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ConsoleTest, LeavesOutLinesThatAStoppedReaderHasNoRoomFor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);  // its writer would block
  Console console(ends[1], error_.in());
  const fs::path log = folder_ / "log.txt";
  console.attach_log(log, false);
  const std::string line(1000, 'x');
  for (int i = 0; i < 100; ++i) console.info(line);  // a pipe holds 64 KiB
  EXPECT_EQ(io::read_text(log).size(), 100 * (line.size() + 1)) << "the log has all";

  std::string seen(65536, '\0');
  const ssize_t count = read(ends[0], seen.data(), seen.size());
  ASSERT_GT(count, 0);
  seen.resize(static_cast<std::size_t>(count));
  const auto missing = 100 - std::count(seen.begin(), seen.end(), '\n');
  EXPECT_GT(missing, 0);
  console.info("more");
  console.info("and more");
  std::string later(65536, '\0');
  later.resize(static_cast<std::size_t>(std::max<ssize_t>(0, read(ends[0], later.data(), later.size()))));
  EXPECT_THAT(later, EndsWith("lines found no room here: " + log.string() + " has them]\nmore\nand more\n"));
  EXPECT_NO_THROW(console.require_output());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ConsoleTest, GoesOnWhereATerminalIsStopped) {
  const Pty terminal(60);
  Console console(terminal.slave(), error_.in());
  console.attach_log(folder_ / "log.txt", false);
  ASSERT_EQ(tcflow(terminal.slave(), TCOOFF), 0);  // Ctrl-S
  console.info("one");
  console.info("two");
  ASSERT_EQ(tcflow(terminal.slave(), TCOON), 0);
  console.info("three");
  EXPECT_THAT(terminal.text(), AllOf(HasSubstr("[2 lines found no room here"), HasSubstr("three")));
  EXPECT_EQ(io::read_text(folder_ / "log.txt"), "one\ntwo\nthree\n");
}

TEST_F(ConsoleTest, HasADeadlineWhereItWaitsForItsReader) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  std::string waited_for;
  Console console(ends[1], error_.in());
  {
    // The program ends the process there; here the action makes room.
    io::IoDeadline deadline(1.5, {.expired = [&](const io::IoDeadline::Pending& pending) {
                              waited_for = pending.file;
                              std::string seen(65536, '\0');
                              EXPECT_GT(read(ends[0], seen.data(), seen.size()), 0);
                            }});
    const Console::Watch watched(console, deadline);
    console.info(std::string(70000, 'x'));
  }
  EXPECT_EQ(waited_for, "standard output");
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ConsoleTest, HandsATextOnAsItIs) {
  Console console(output_.in(), error_.in());
  console.text("to be");
  console.text(", or");
  EXPECT_EQ(output_.text(), "to be, or");
}

TEST_F(ConsoleTest, DrawsNoBarIntoAPipeUnlessToldTo) {
  Console console(output_.in(), error_.in());
  EXPECT_FALSE(console.shows_progress());
  console.progress(0.5, "half");
  EXPECT_EQ(output_.text(), "");
  console.set_progress(true);
  console.progress(0.5, "half");
  EXPECT_THAT(output_.text(), HasSubstr("half"));
}

TEST_F(ConsoleTest, DrawsOnATerminalAndClearsBeforeSpeaking) {
  const Pty terminal(60);
  Console console(terminal.slave(), error_.in());
  EXPECT_TRUE(console.shows_progress());
  console.progress(0.25, "quarter");
  console.progress(0.26, "too soon");
  const std::string bar = terminal.text();
  EXPECT_THAT(bar, HasSubstr("\r 25 % ["));
  EXPECT_THAT(bar, Not(HasSubstr("too soon")));
  EXPECT_THAT(bar, HasSubstr("quarter"));
  EXPECT_LE(bar.size(), 59 + std::string("\r\x1b[K").size());
  console.info("hello");
  EXPECT_EQ(terminal.text(), "\r\x1b[Khello\r\n");
  console.info("again");
  EXPECT_EQ(terminal.text(), "again\r\n");
  console.progress(1, "done");
  EXPECT_THAT(terminal.text(), HasSubstr("100 %"));
  console.clear_progress();
  EXPECT_EQ(terminal.text(), "\r\x1b[K");
}

TEST_F(ConsoleTest, DrawsNothingWhenToldNotTo) {
  const Pty terminal(60);
  Console console(terminal.slave(), error_.in());
  console.set_progress(false);
  console.progress(0.25, "quarter");
  EXPECT_TRUE(terminal.silent());
}

TEST_F(ConsoleTest, OtherRanksAreSilent) {
  Console console(false);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  console.attach_log(folder_ / "log.txt", false);
  console.set_progress(true);
  console.info("one");
  console.warn("two");
  console.progress(0.5, "three");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(fs::exists(folder_ / "log.txt"));
  EXPECT_FALSE(console.shows_progress());
}

TEST(Terminal, KnowsItsWidth) {
  const Pty terminal(132);
  EXPECT_TRUE(terminal_at(terminal.slave()).interactive);
  EXPECT_EQ(terminal_at(terminal.slave()).columns, 132);
  const Pty unknown(0);
  EXPECT_EQ(terminal_at(unknown.slave()).columns, 80);
}

}  // namespace
}  // namespace lockstep::app
