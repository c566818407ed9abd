#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>

#include "comm/agreement.hpp"
#include "comm/communicator.hpp"
#include "comm/introduction.hpp"
#include "comm/mpi_state.hpp"
#include "comm/ring_communicator.hpp"
#include "comm/serial_communicator.hpp"
#include "comm/shared_memory_communicator.hpp"

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

std::uint64_t random_nonce() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options) {
  if (!(options.deadline_seconds > 0)) {
    throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", options.deadline_seconds));
  }
  if (session.size() == 1) return std::make_unique<SerialCommunicator>();

  PeerCard card = own_card();
  Obstacle own_obstacle;
  SharedSegment own_segment;
  if (options.transport != Transport::ring) {
    try {
      own_segment = SharedSegment::create(SharedMemoryCommunicator::control_bytes());
      card.segment_nonce = random_nonce();
      card.segment_descriptor = own_segment.descriptor();
      SharedMemoryCommunicator::initialize_control(own_segment, card.segment_nonce);
    } catch (const std::runtime_error& error) {
      own_obstacle = obstacle(error.what());
    }
  }
  PeerTable peers(session.rank(), exchange(session, card, options.deadline_seconds));
  MpiSession::State& state = session.state();

  std::string note;
  if (options.transport != Transport::ring) {
    // Asked of the cards, which are the same everywhere: every rank gives the same answer.
    bool together = true;
    int elsewhere = 0;
    const PeerCard& first = peers.card(0);
    for (int rank = 1; rank < peers.size() && together; ++rank) {
      together = first.machine != 0 && peers.card(rank).machine == first.machine && peers.host(rank) == peers.host(0);
      elsewhere = rank;
    }
    if (together) {
      std::vector<SharedSegment> segments;
      if (own_obstacle.text[0] == '\0') {
        try {
          segments = SharedMemoryCommunicator::attach_all(peers, session.rank(), std::move(own_segment));
        } catch (const std::runtime_error& error) {
          own_obstacle = obstacle(error.what());
        }
      }
      const std::vector<Obstacle> all = exchange(session, own_obstacle, options.deadline_seconds);
      const auto first_obstacle =
          std::find_if(all.begin(), all.end(), [](const Obstacle& o) { return o.text[0] != '\0'; });
      if (first_obstacle == all.end()) {
        return std::make_unique<SharedMemoryCommunicator>(session.rank(), std::move(peers), std::move(segments),
                                                          options.deadline_seconds, state.suspects);
      }
      note = fmt::format("the ranks share a host but not its memory ({}: {})",
                         peers.describe(static_cast<int>(first_obstacle - all.begin())), first_obstacle->text.data());
    } else if (options.transport == Transport::shared_memory) {
      note = fmt::format("{} is not on the machine of {}", peers.describe(elsewhere), peers.describe(0));
    }
    if (options.transport == Transport::shared_memory) {
      throw AgreedError(fmt::format("no communication through shared memory: {}. Use the ring.", note));
    }
    if (!note.empty()) note += "; they talk through the ring, which is slower";
  }
  return std::make_unique<RingCommunicator>(state, std::move(peers), options.deadline_seconds, std::move(note));
}

}  // namespace lockstep::comm
