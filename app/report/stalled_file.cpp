#include "app/report/stalled_file.hpp"

#include <fmt/format.h>

#include "io/text/visible_text.hpp"

namespace lockstep::app {

std::string describe_stall(const io::IoDeadline::Pending& pending, double deadline) {
  const std::string file = io::visible_line(pending.file.string());
  if (pending.kind == io::IoDeadline::Kind::printing) {
    return fmt::format(
        "{} has taken nothing for {:.0f} s: whatever reads it has stopped. Let it go on, or print to a file; "
        "--io-deadline (now {:g} s) gives it more time",
        file, pending.seconds, deadline);
  }
  return fmt::format(
      "{} {} has not come back for {:.0f} s: its file system stalls. Look at it on this host; --io-deadline (now {:g} "
      "s) "
      "gives it more time",
      pending.kind == io::IoDeadline::Kind::reading ? "reading" : "writing", file, pending.seconds, deadline);
}

}  // namespace lockstep::app
