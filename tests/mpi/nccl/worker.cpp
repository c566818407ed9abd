/// \file
/// Starts NCCL over MPI, for nccl.sh: worker TRANSPORT WHAT. Every rank prints one line; exit 0: it worked, 3: all
/// ranks were refused with the same message, 1: anything else. WHAT:
/// - id: the id is made and the same on all ranks
/// - start: the device communicator starts, each rank on the device of its number modulo two (or all on a single one)
/// - alone: the same, but the last rank asks for a device that no machine has
/// - init: NCCL starts without a look at the device before, and meets the missing device itself
/// - log: a listener hears NCCL's log
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/device_communicator.hpp"
#include "comm/failure/poll_together.hpp"
#include "comm/messages.hpp"
#include "comm/nccl/nccl_handle.hpp"
#include "comm/nccl/nccl_log.hpp"

namespace {

using namespace lockstep::comm;

/// cudaStreamPerThread: a stream that always exists, so that no CUDA header is needed here.
void* const kSomeStream = reinterpret_cast<void*>(0x2);

std::string hex(const NcclId& id) {
  std::string text;
  for (const std::byte byte : id.bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

/// The same on all ranks, or an error.
std::string agreed(Communicator& host, const std::string& text) {
  for (const std::string& other : all_gather_text(host, text)) {
    if (other != text) throw std::runtime_error(fmt::format("ranks differ: \"{}\" and \"{}\"", text, other));
  }
  return text;
}

/// Starts without looking at the device before.
void start_nccl(Communicator& host) {
  const NcclId id = make_nccl_id(host);
  std::optional<NcclHandle> nccl;
  poll_together(host, 30, "NCCL", [&] {
    if (!nccl) nccl.emplace(id, host.rank(), host.size(), 4);
    return nccl->ready();
  });
}

std::string work(MpiSession& session, Communicator& host, const std::string& what) {
  if (what == "id") {
    const std::string id = agreed(host, hex(make_nccl_id(host)));
    if (id.find_first_not_of('0') == std::string::npos) throw std::runtime_error("the id is all zeros");
    return "id " + id.substr(0, 16);
  }
  if (what == "log") {
    for (int i = 0; i < 2; ++i) {  // a second listener hears as much as the first
      const NcclLog log;
      try {
        start_nccl(host);
      } catch (const ConsensusError&) {  // no device, or the same for two ranks
      }
      if (log.text().find(" NCCL ") == std::string::npos) throw std::runtime_error("heard: \"" + log.text() + "\"");
    }
    return "heard";
  }
  if (what == "init") return start_nccl(host), "started";
  const char* const devices = std::getenv("NCCL_TEST_DEVICES");
  const int count = std::max(1, devices ? std::atoi(devices) : 1);
  const bool impossible = what == "alone" && host.rank() == host.size() - 1;
  const auto communicator = make_device_communicator(session, host,
                                                     {.stream = kSomeStream,
                                                      .device = impossible ? 4096 : host.rank() % count,
                                                      .device_name = {},
                                                      .deadline_seconds = 30,
                                                      .ring = true,
                                                      .shared_device = count < host.size(),
                                                      .processors = 4});
  communicator->wait("the first wait", 0);
  return "started " + agreed(host, communicator->description());
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  if (argc != 3) return 2;
  try {
    const auto host = make_communicator(
        session,
        {.transport = argv[1] == std::string("ring") ? Transport::ring : Transport::automatic, .deadline_seconds = 30});
    try {
      const std::string result = work(session, *host, argv[2]);
      fmt::print("rank {}: {}\n", session.rank(), result);
      return 0;
    } catch (const ConsensusError& error) {
      fmt::print("rank {}: refused: {}\n", session.rank(), agreed(*host, error.what()));
      host->barrier();
      host->wait();
      return 3;
    }
  } catch (const std::exception& error) {
    session.abort(1, fmt::format("error on rank {}: {}", session.rank(), error.what()));
  }
}
