#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/host/mpi_communicator.hpp"
#include "comm/host/ring_communicator.hpp"
#include "comm/host/serial_communicator.hpp"
#include "comm/host/shared_memory_communicator.hpp"
#include "comm/host/two_level_communicator.hpp"
#include "comm/session/mpi_state.hpp"
#include "comm/session/rendezvous.hpp"
#include "comm/session/this_process.hpp"

namespace lockstep::comm {
namespace {

/// The reason why a rank cannot share memory; empty: it can.
struct Failure {
  std::array<char, 400> text{};
};

Failure failure_of(const std::string& text) {
  Failure result;
  text.copy(result.text.data(), result.text.size() - 1);
  return result;
}

/// A rank's data for the others of its machine.
struct OwnSegment {
  std::uint64_t nonce = 0, address = 0;
  std::int32_t pretended_machine = 0;
};

/// The transport that `asked` stands for, with the ranks on these machines.
Transport chosen(Transport asked, const std::vector<std::vector<int>>& machines) {
  if (asked != Transport::automatic) return asked;
  if (machines.size() == 1) return Transport::shared_memory;
  const bool alone = std::all_of(machines.begin(), machines.end(), [](const auto& ranks) { return ranks.size() == 1; });
  return alone ? Transport::ring : Transport::two_level;
}

/// A communicator and a note about its transport.
struct Made {
  std::unique_ptr<Communicator> communicator;
  std::string note = {};
};

Made make_in_session(MpiSession& session, const CommunicatorOptions& options) {
  if (!(options.deadline_seconds > 0)) {
    throw std::invalid_argument(fmt::format("a deadline of {} s: it must be positive", options.deadline_seconds));
  }
  if (session.size() == 1) return {std::make_unique<SerialCommunicator>()};

  MpiSession::State& state = session.state();
  if (options.transport == Transport::ring) {
    return {std::make_unique<RingCommunicator>(state, PeerTable(state.rank, state.peers, state.first_rank), options)};
  }
  if (options.transport == Transport::mpi) {
    return {std::make_unique<MpiCommunicator>(state, PeerTable(state.rank, state.peers, state.first_rank), options)};
  }

  OwnSegment own{.pretended_machine = options.pretended_machine};
  Failure own_failure;
  SharedSegment own_segment;
  std::unique_ptr<DescriptorExchange> descriptors;
  try {
    own_segment = SharedSegment::create(SharedGroup::control_bytes());
    descriptors = std::make_unique<DescriptorExchange>();
    own.nonce = random_nonce();
    own.address = descriptors->address();
    SharedGroup::initialize_control(own_segment, own.nonce);
  } catch (const std::runtime_error& error) {
    own_failure = failure_of(error.what());
  }
  std::vector<PeerInfo> infos = state.peers;
  const std::vector<OwnSegment> all_segments = exchange(session, own, options.deadline_seconds);
  for (std::size_t rank = 0; rank < infos.size(); ++rank) {
    infos[rank].segment_nonce = all_segments[rank].nonce;
    infos[rank].segment_address = all_segments[rank].address;
    infos[rank].pretended_machine = all_segments[rank].pretended_machine;
  }
  PeerTable peers(state.rank, infos, state.first_rank);

  // All ranks decide on equal data, so they decide alike.
  const std::vector<std::vector<int>> machines = peers.machines();
  Transport transport = chosen(options.transport, machines);
  if (transport == Transport::ring) {
    return {std::make_unique<RingCommunicator>(state, std::move(peers), options)};
  }
  if (transport == Transport::shared_memory && machines.size() > 1) {
    throw ConsensusError(fmt::format(
        "no communication through shared memory: {} is not on the machine of {}. Use the ring or two-level.",
        peers.describe(machines[1].front()), peers.describe(0)));
  }

  SharedGroup::Shared shared;
  if (own_failure.text[0] == '\0') {
    const auto own_machine = std::find_if(machines.begin(), machines.end(), [&](const std::vector<int>& ranks) {
      return std::binary_search(ranks.begin(), ranks.end(), session.rank());
    });
    try {
      shared = SharedGroup::attach_all(peers, *own_machine, session.rank(), std::move(own_segment),
                                       std::move(descriptors), options.deadline_seconds);
    } catch (const std::runtime_error& error) {
      own_failure = failure_of(error.what());
    }
  }
  const std::vector<Failure> all = exchange(session, own_failure, options.deadline_seconds);
  const auto fails = [&](int rank) { return all[static_cast<std::size_t>(rank)].text[0] != '\0'; };
  const auto first_failure = std::find_if(all.begin(), all.end(), [](const Failure& f) { return f.text[0] != '\0'; });
  std::string note;
  if (first_failure != all.end()) {
    note = fmt::format("{} share a host but not its memory ({}: {})", machines.size() == 1 ? "the ranks" : "some ranks",
                       peers.describe(static_cast<int>(first_failure - all.begin())), first_failure->text.data());
    if (options.transport != Transport::automatic) {
      throw ConsensusError(fmt::format("no communication through shared memory: {}. Use the ring.", note));
    }
    // Each rank of such a host counts as a host of its own; the other hosts stay unchanged.
    for (const std::vector<int>& ranks : machines) {
      if (std::ranges::none_of(ranks, fails)) continue;
      for (const int rank : ranks) infos[static_cast<std::size_t>(rank)].pretended_machine = -1 - rank;
      if (!std::ranges::binary_search(ranks, session.rank())) continue;
      shared = SharedGroup::alone();
    }
    peers = PeerTable(state.rank, std::move(infos), state.first_rank);
    transport = chosen(options.transport, peers.machines());
    if (transport == Transport::ring) {
      note += "; they talk through the ring, which is slower";
      return {std::make_unique<RingCommunicator>(state, std::move(peers), options), std::move(note)};
    }
    note += "; each of them is a host of its own, which is slower";
  }
  if (transport == Transport::two_level) {
    return {std::make_unique<TwoLevelCommunicator>(state, std::move(peers), std::move(shared), options),
            std::move(note)};
  }
  return {std::make_unique<SharedMemoryCommunicator>(state, std::move(peers), std::move(shared), options)};
}

}  // namespace

std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options) {
  Made made = make_in_session(session, options);
  made.communicator->set_first_rank(session.state().first_rank);
  made.communicator->set_transport_note(std::move(made.note));
  if (options.all_reduce.measured) {
    if (auto* const network = dynamic_cast<NetworkCommunicator*>(made.communicator.get())) {
      network->measure_all_reduce();
    }
  }
  return std::move(made.communicator);
}

}  // namespace lockstep::comm
