/// \file
/// A job for faults.sh to hurt: worker TRANSPORT DEADLINE FOLDER CONDUCT. TRANSPORT is shared-memory, ring, or
/// two-level with the machine that each rank pretends to run on: two-level:0,1,1. The job reduces for ever (30 s at
/// most), writes FOLDER/pid.RANK once it runs, and fails as lockstep does: it reports the failure, then unwinds.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include "comm/communicator.hpp"
#include "comm/consensus.hpp"
#include "comm/servers/host_window.hpp"
#include "comm/servers/survivor_communicator.hpp"
#include "comm/servers/survivor_work.hpp"

namespace {

using namespace lockstep::comm;

CommunicatorOptions options_of(const std::string& transport, int rank) {
  if (transport == "shared-memory") return {.transport = Transport::shared_memory};
  if (transport == "ring") return {.transport = Transport::ring};
  if (transport == "mpi") return {.transport = Transport::mpi};
  const std::size_t machines = transport.find(':') + 1;
  return {.transport = Transport::two_level,
          .pretended_machine = transport.at(machines + 2 * static_cast<std::size_t>(rank))};
}

/// Waits for ever, like a thread that reads from a dead file system.
struct StuckDestructor {
  ~StuckDestructor() { std::this_thread::sleep_for(std::chrono::hours(1)); }
};

/// Rank 1 fails alone and reports it 1.5 s later; the launcher ends rank 0 at once, and rank 2 only when it is woken.
/// FOLDER/launcher has the launcher's pid.
void be_overtaken(int rank, const std::string& folder) {
  if (rank == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    throw std::runtime_error("this rank fails alone");
  }
  if (rank != 0) return;
  kill(getppid(), SIGSTOP);
  std::ofstream(folder + "/launcher") << getppid() << std::endl;
  std::this_thread::sleep_for(std::chrono::milliseconds(1900));
  raise(SIGKILL);
}

/// Rank 1, which the others need, dies after its part of the work: no collective waits for it any more, and rank 0 asks
/// for the ranks that have finished.
int die_behind_the_work(MpiSession& session, const CommunicatorOptions& options, const std::string& folder) {
  SurvivorCommunicator communicator(session, options);
  const auto memory = communicator.reduction_memory(HostWindow::bytes(communicator));
  HostWindow window(session, communicator, *memory);
  SurvivorWork survivors(session, communicator, window, {.dispensable = [](int rank) { return rank == 2; }});
  std::ofstream(folder + "/pid." + std::to_string(session.rank())) << getpid() << std::endl;
  const std::vector<int> dead = survivors.run([&] {
    communicator.barrier();
    communicator.wait();
    if (session.rank() == 1) raise(SIGKILL);
  });
  throw std::runtime_error("goes on without " + std::to_string(dead.size()) + " others");
}

/// Rounds of work that do not need rank 1 or 2, until FOLDER/stop exists: weights from rank 0, and sums.
int go_on(MpiSession& session, const CommunicatorOptions& options, const std::string& folder) {
  SurvivorCommunicator communicator(session, options);
  const auto memory = communicator.reduction_memory(HostWindow::bytes(communicator));
  HostWindow window(session, communicator, *memory);
  SurvivorWork survivors(session, communicator, window, {.dispensable = [](int rank) { return rank > 0; }});
  const auto said = [&](const std::string& what) {
    return "rank " + std::to_string(session.rank()) + " " + what + " " + std::to_string(communicator.size());
  };
  bool over = false;
  for (int round = 0; !over; ++round) {
    // Each attempt has memory of its own, as validations have: a late message must not find it.
    std::vector<float> weights, sums;
    double stop = 0;
    int ranks = 0;  // some may die after it
    const std::vector<int> dead = survivors.run([&] {
      ranks = communicator.size();
      weights.assign(2'000'000, session.rank() == 0 ? static_cast<float>(round) : -1.0f);
      sums.assign(300'000, static_cast<float>(round));
      stop = session.rank() == 0 && std::ifstream(folder + "/stop") ? 1 : 0;
      communicator.broadcast(std::as_writable_bytes(std::span(weights)), 0);
      communicator.all_reduce(std::span(sums));
      communicator.all_reduce(std::span(&stop, 1));
      communicator.wait();
    });
    const auto all_are = [](const std::vector<float>& values, float value) {
      return std::all_of(values.begin(), values.end(), [value](float other) { return other == value; });
    };
    if (!all_are(weights, static_cast<float>(round)) || !all_are(sums, static_cast<float>(round * ranks))) {
      throw std::runtime_error(said("has other numbers in a job of"));
    }
    if (!dead.empty()) std::cout << said("goes on in a job of") + "\n" << std::flush;
    if (round == 3) std::ofstream(folder + "/pid." + std::to_string(session.rank())) << getpid() << std::endl;
    over = stop > 0;
  }
  std::cout << said("ends in a job of") + "\n" << std::flush;
  return 0;
}

int work(MpiSession& session, const std::string& transport, double deadline, const std::string& folder,
         const std::string& conduct) {
  CommunicatorOptions options = options_of(transport, session.rank());
  options.deadline_seconds = deadline;
  options.overlap = conduct == "overtakes" || conduct == "survives-beside";
  if (conduct.starts_with("survives")) return go_on(session, options, folder);
  if (conduct == "behind-the-work") return die_behind_the_work(session, options, folder);
  const auto communicator = make_communicator(session, options);
  const auto memory = communicator->reduction_memory(400'000);
  const std::span<float> gradients(static_cast<float*>(memory->allocate(400'000, 64)), 100'000);
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t step = 0;; ++step) {
    communicator->note_activity("backward", step);
    // Ranks that only yield stop everything else on their cores for seconds (Linux 6.18).
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::fill(gradients.begin(), gradients.end(), 1.0f);
    const bool turning_point = step == 50 && session.rank() == 1;
    if (turning_point && conduct == "fails") throw std::runtime_error("this rank fails alone");
    if (step == 50 && conduct == "overtaken") be_overtaken(session.rank(), folder);
    if (turning_point && conduct == "diverges") communicator->all_reduce(gradients.first(70'000));
    if (turning_point && conduct == "leaves") _exit(0);
    if (step == 15 && conduct == "hurries") communicator->set_deadline(1);
    // Waits as for a device, and checks its peers now and then.
    while (step == 50 && conduct == "waits") {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      communicator->check_peers();
    }
    communicator->all_reduce(gradients);
    double statistics = 1;  // overtakes the gradients if a thread drives them
    if (conduct == "overtakes") communicator->urgent_all_reduce(std::span(&statistics, 1));
    communicator->wait();
    double over = std::chrono::steady_clock::now() - start > std::chrono::seconds(30) ? 1 : 0;
    communicator->all_reduce(std::span(&over, 1));
    communicator->wait();
    if (over > 0) return 0;
    if (step == 50 && conduct == "ends") {
      if (session.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
      return 75;
    }
    if (step == 20) std::ofstream(folder + "/pid." + std::to_string(session.rank())) << getpid() << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  if (argc != 5) return 2;
  const std::string conduct = argv[4];
  session.set_end_limit(1);
  session.set_failure_handler([&session](const std::exception_ptr& thrown) -> int {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      session.abort(1, "error on rank " + std::to_string(session.rank()) + ": " + error.what());
    }
  });
  std::unique_ptr<StuckDestructor> stuck;
  if (conduct == "stuck") stuck = std::make_unique<StuckDestructor>();
  return session.conclude([&] { return work(session, argv[1], std::atof(argv[2]), argv[3], conduct); });
}
