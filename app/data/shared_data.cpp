#include "app/data/shared_data.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "comm/consensus.hpp"
#include "comm/messages.hpp"

namespace lockstep::app {

SharedData open_together(comm::Communicator& communicator, std::span<const std::filesystem::path> folders,
                         io::IoDeadline* deadline) {
  SharedData shared;
  if (communicator.size() == 1) return shared;
  for (const std::filesystem::path& folder : folders) {
    std::string own;
    comm::all_succeed(communicator, [&] {
      if (!folder.empty()) own = io::SharedShards::identity(folder, deadline);
    });
    const std::vector<std::string> copies = comm::all_gather_text(communicator, own);
    const auto sees_own = [&](const std::string& copy) { return copy == own; };
    const auto place = std::count_if(copies.begin(), copies.begin() + communicator.rank(), sees_own);
    const auto sharers = std::ranges::count_if(copies, sees_own);
    std::shared_ptr<io::SharedShards> shards;
    comm::all_succeed(communicator, [&] {
      if (own.empty()) return;
      shards = std::make_shared<io::SharedShards>(folder, static_cast<int>(place), static_cast<int>(sharers), deadline);
    });
    const std::vector<std::string> told = comm::all_gather_text(communicator, shards ? shards->findings() : "");
    if (!shards) continue;
    std::vector<std::string> of_this_copy;
    for (std::size_t rank = 0; rank < told.size(); ++rank) {
      if (copies[rank] == own) of_this_copy.push_back(told[rank]);
    }
    shards->complete(of_this_copy);
    shared.insert_or_assign(folder, std::move(shards));
  }
  return shared;
}

}  // namespace lockstep::app
