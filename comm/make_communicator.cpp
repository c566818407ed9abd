#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/introduction.hpp"
#include "comm/mpi_state.hpp"
#include "comm/ring_communicator.hpp"
#include "comm/serial_communicator.hpp"
#include "comm/shared_memory_communicator.hpp"
#include "comm/this_process.hpp"
#include "comm/two_level_communicator.hpp"

namespace lockstep::comm {
namespace {

/// Why a rank cannot share memory; empty: it can.
struct Obstacle {
  std::array<char, 400> text{};
};

Obstacle obstacle(const std::string& text) {
  Obstacle result;
  text.copy(result.text.data(), result.text.size() - 1);
  return result;
}

/// What `asked` means where the ranks run on these machines.
Transport chosen(Transport asked, const std::vector<std::vector<int>>& machines) {
  if (asked != Transport::automatic) return asked;
  if (machines.size() == 1) return Transport::shared_memory;
  const bool alone = std::all_of(machines.begin(), machines.end(), [](const auto& ranks) { return ranks.size() == 1; });
  return alone ? Transport::ring : Transport::two_level;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options) {
  if (!(options.deadline_seconds > 0)) {
    throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", options.deadline_seconds));
  }
  if (session.size() == 1) return std::make_unique<SerialCommunicator>();

  PeerCard card = own_card();
  card.pretended_machine = options.pretended_machine;
  Obstacle own_obstacle;
  SharedSegment own_segment;
  if (options.transport != Transport::ring) {
    try {
      own_segment = SharedSegment::create(SharedGroup::control_bytes());
      card.segment_nonce = random_nonce();
      card.segment_descriptor = own_segment.descriptor();
      SharedGroup::initialize_control(own_segment, card.segment_nonce);
    } catch (const std::runtime_error& error) {
      own_obstacle = obstacle(error.what());
    }
  }
  PeerTable peers(session.rank(), exchange(session, card, options.deadline_seconds));
  MpiSession::State& state = session.state();

  // Decided by the cards, which are the same everywhere: every rank decides alike.
  const std::vector<std::vector<int>> machines = peers.machines();
  const Transport transport = chosen(options.transport, machines);
  if (transport == Transport::ring) {
    return std::make_unique<RingCommunicator>(state, std::move(peers), options.deadline_seconds, "");
  }
  if (transport == Transport::shared_memory && machines.size() > 1) {
    throw AgreedError(fmt::format(
        "no communication through shared memory: {} is not on the machine of {}. Use the ring or two-level.",
        peers.describe(machines[1].front()), peers.describe(0)));
  }

  std::vector<SharedSegment> segments;
  if (own_obstacle.text[0] == '\0') {
    const auto own_machine = std::find_if(machines.begin(), machines.end(), [&](const std::vector<int>& ranks) {
      return std::binary_search(ranks.begin(), ranks.end(), session.rank());
    });
    try {
      segments = SharedGroup::attach_all(peers, *own_machine, session.rank(), std::move(own_segment));
    } catch (const std::runtime_error& error) {
      own_obstacle = obstacle(error.what());
    }
  }
  const std::vector<Obstacle> all = exchange(session, own_obstacle, options.deadline_seconds);
  const auto first_obstacle = std::find_if(all.begin(), all.end(), [](const Obstacle& o) { return o.text[0] != '\0'; });
  if (first_obstacle != all.end()) {
    std::string note =
        fmt::format("{} share a host but not its memory ({}: {})", machines.size() == 1 ? "the ranks" : "some ranks",
                    peers.describe(static_cast<int>(first_obstacle - all.begin())), first_obstacle->text.data());
    if (options.transport != Transport::automatic) {
      throw AgreedError(fmt::format("no communication through shared memory: {}. Use the ring.", note));
    }
    note += "; they talk through the ring, which is slower";
    return std::make_unique<RingCommunicator>(state, std::move(peers), options.deadline_seconds, std::move(note));
  }
  if (transport == Transport::two_level) {
    return std::make_unique<TwoLevelCommunicator>(state, std::move(peers), std::move(segments),
                                                  options.deadline_seconds);
  }
  return std::make_unique<SharedMemoryCommunicator>(session.rank(), std::move(peers), std::move(segments),
                                                    options.deadline_seconds, state.suspects);
}

}  // namespace lockstep::comm
