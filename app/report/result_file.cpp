#include "app/report/result_file.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "comm/consensus.hpp"

namespace lockstep::app {

void require_output(comm::Communicator& communicator, const Console& console) {
  comm::all_succeed(communicator, [&] { console.require_output(); });
}

ResultFile::ResultFile(comm::Communicator& communicator, const std::filesystem::path& file, io::IoDeadline* deadline)
    : communicator_(communicator), file_(file), deadline_(deadline) {
  on_rank_0([&] { descriptor_ = io::open_file(file_, O_WRONLY | O_CREAT, "write"); });
}

void ResultFile::write(const std::string& text) {
  on_rank_0([&] {
    if (!emptied_ && ftruncate(descriptor_.get(), 0) != 0 && errno != EINVAL) {  // EINVAL: a device or a pipe
      throw io::FileError(fmt::format("cannot write {}: {}", file_.string(), std::strerror(errno)));
    }
    emptied_ = true;
    io::write_all(descriptor_, text, file_);
  });
}

void ResultFile::on_rank_0(const std::function<void()>& work) {
  if (file_.empty()) return;  // the same on all ranks
  comm::all_succeed(communicator_, [&] {
    if (communicator_.rank() != 0) return;
    const io::IoDeadline::Operation writing(deadline_, io::IoDeadline::Kind::writing, file_);
    work();
  });
}

}  // namespace lockstep::app
