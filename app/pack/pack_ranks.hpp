/// \file
/// The ranks of a job that pack one folder together.
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/shards/shard_writer.hpp"

namespace lockstep::app {

class PackRanks final : public io::PackPeers {
 public:
  /// `communicator` must outlive it.
  explicit PackRanks(comm::Communicator& communicator) : communicator_(communicator) {}

  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  /// Runs `work` on all ranks. It may take any time, if it calls note_progress() regularly.
  void all_succeed(const std::function<void()>& work) override;
  std::vector<std::string> gather(std::string own) override;
  /// Call inside all_succeed().
  void note_progress();

 private:
  comm::Communicator& communicator_;
};

}  // namespace lockstep::app
