#include "app/bench/scratch_folder.hpp"

#include <system_error>

#include <fmt/format.h>

#include "app/engine/snapshot.hpp"
#include "comm/consensus.hpp"
#include "io/files/durable_file.hpp"
#include "io/runs/metrics_log.hpp"

namespace lockstep::app {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(comm::Communicator& communicator, const fs::path& parent, const std::string& name,
                             io::IoDeadline& deadline)
    : owns_(communicator.rank() == 0), deadline_(deadline) {
  comm::all_succeed(communicator, [&] {
    if (!owns_) return;
    path_ = (parent.empty() ? fs::path(".") : parent) / fmt::format("{}-{}", name, io::random_token().substr(0, 8));
    const io::IoDeadline::Operation making(&deadline_, io::IoDeadline::Kind::writing, path_);
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) {
      throw io::FileError(fmt::format("cannot create the folder {}: {}; choose another with --folder", path_.string(),
                                      error.message()));
    }
  });
  path_ = broadcast_text(communicator, path_.string());
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  const io::IoDeadline::Operation removing(&deadline_, io::IoDeadline::Kind::writing, path_);
  if (owns_) fs::remove_all(path_, ignored);
}

}  // namespace lockstep::app
