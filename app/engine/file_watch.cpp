#include "app/engine/file_watch.hpp"

#include <algorithm>
#include <exception>
#include <memory>

#include <fmt/format.h>
#include <unistd.h>

#include "app/report/stalled_file.hpp"
#include "comm/session/this_process.hpp"
#include "io/files/file_error.hpp"
#include "io/text/visible_text.hpp"

namespace lockstep::app {
namespace {

using Kind = io::IoDeadline::Kind;
using Pending = io::IoDeadline::Pending;

constexpr double kMaxSecondsUnsaid = 30;

/// Describes a wait for the peers. The text is limited to 127 bytes, so it shows the end of a path, which is more
/// specific.
std::string describe_wait(const Pending& pending) {
  const std::string file = io::visible_line(pending.file.string());
  constexpr std::size_t kMax = 80;
  return fmt::format("waiting {} ({}{}, {:.0f} s)", pending.kind == Kind::reading ? "for input" : "to write",
                     file.size() > kMax ? "…" : "", file.substr(file.size() > kMax ? file.size() - kMax : 0),
                     pending.seconds);
}

/// Reports on stderr that an operation takes long, and that it has ended.
class WaitWarnings {
 public:
  WaitWarnings(std::string speaker, double deadline)
      : speaker_(std::move(speaker)), deadline_(deadline), patience_(std::min(deadline / 10, kMaxSecondsUnsaid)) {}

  void note(const Pending& pending) {
    seconds_ = pending.seconds;
    if (said_ || pending.late < patience_) return;
    said_ = true;
    comm::write_stderr(fmt::format("warning: {} is {}; the job ends after {:g} s of it (--io-deadline)\n", speaker_,
                                   describe_wait(pending), deadline_));
  }
  void end() {
    if (said_) comm::write_stderr(fmt::format("{} goes on, after a wait of {:.0f} s\n", speaker_, seconds_));
    if (said_) patience_ = std::max(patience_, seconds_);
    said_ = false;
  }

 private:
  std::string speaker_;
  double deadline_;
  double patience_;  ///< seconds
  double seconds_ = 0;
  bool said_ = false;
};

}  // namespace

io::IoDeadline watch_files(comm::MpiSession& session, comm::Communicator& communicator, double seconds) {
  const auto warnings = std::make_shared<WaitWarnings>(
      fmt::format("rank {} (host {}, pid {})", session.rank(), session.host(), getpid()), seconds);
  return io::IoDeadline(
      seconds, {.waiting =
                    [&communicator, warnings](const Pending& pending) {
                      communicator.note_wait(describe_wait(pending));
                      warnings->note(pending);
                    },
                .resumed =
                    [&communicator, warnings] {
                      communicator.note_wait("");
                      warnings->end();
                    },
                .expired =
                    [&session, seconds](const Pending& pending) {
                      session.end_in_failure(std::make_exception_ptr(io::FileError(describe_stall(pending, seconds))));
                    }});
}

}  // namespace lockstep::app
