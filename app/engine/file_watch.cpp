#include "app/engine/file_watch.hpp"

#include <exception>

#include <fmt/format.h>

#include "io/files/file_error.hpp"

namespace lockstep::app {
namespace {

using Pending = io::IoDeadline::Pending;

bool is_reading(const Pending& pending) { return pending.kind == io::IoDeadline::Kind::reading; }

}  // namespace

io::IoDeadline watch_files(comm::MpiSession& session, comm::Communicator& communicator, double seconds) {
  const auto waiting = [&communicator](const Pending& pending) {
    const std::string file = pending.file.string();
    constexpr std::size_t kMost = 80;  // peers hear of 127 bytes: the end of a path says more than its beginning
    communicator.note_wait(fmt::format("waiting {} ({}{}, {:.0f} s)", is_reading(pending) ? "for input" : "to write",
                                       file.size() > kMost ? "…" : "",
                                       file.substr(file.size() > kMost ? file.size() - kMost : 0), pending.seconds));
  };
  const auto expired = [&session, seconds](const Pending& pending) {
    session.end_in_failure(std::make_exception_ptr(io::FileError(fmt::format(
        "{} {} has not come back for {:.0f} s: its file system stalls. Look at it on this host; --io-deadline (now "
        "{:g} s) gives it more time",
        is_reading(pending) ? "reading" : "writing", pending.file.string(), pending.seconds, seconds))));
  };
  return io::IoDeadline(
      seconds, {.waiting = waiting, .resumed = [&communicator] { communicator.note_wait(""); }, .expired = expired});
}

}  // namespace lockstep::app
