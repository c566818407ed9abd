#include "comm/survey/mpi_all_reduce.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "comm/session/mpi_state.hpp"
#include "comm/session/rendezvous.hpp"

namespace lockstep::comm {
namespace {

constexpr int kFailed = 1;
constexpr std::size_t kMaxAtOnce = std::size_t{1} << 30;  ///< MPI counts in int

}  // namespace

MpiAllReduce::MpiAllReduce(MpiSession& session, double deadline_seconds)
    : session_(session),
      deadline_seconds_(deadline_seconds),
      peers_(session.rank(), exchange(session, own_info(), deadline_seconds)),
      guard_([this](const std::stop_token& stop) { watch(stop); }) {}

MpiAllReduce::~MpiAllReduce() = default;  // stops and joins the guard before its data go

void MpiAllReduce::sum(std::span<float> data) {
  MpiSession::State& state = session_.state();
  if (!state.uses_mpi()) return;  // the sum of one rank is its own data
  for (std::size_t done = 0; done < data.size();) {
    const std::span<float> part = data.subspan(done, std::min(kMaxAtOnce, data.size() - done));
    count_.store(part.size(), std::memory_order_relaxed);
    entries_and_exits_.fetch_add(1, std::memory_order_release);
    const int code = [&] {
      const std::lock_guard lock(*state.mpi);
      const MpiYield::WhileBlocking yields(state.yield.get());
      return MPI_Allreduce(MPI_IN_PLACE, part.data(), static_cast<int>(part.size()), MPI_FLOAT, MPI_SUM, state.data);
    }();
    entries_and_exits_.fetch_add(1, std::memory_order_release);
    check(code, "MPI_Allreduce", state);
    done += part.size();
  }
}

void MpiAllReduce::watch(const std::stop_token& stop) {
  const std::chrono::duration<double> interval(std::clamp(deadline_seconds_ / 4, 0.001, 0.1));
  std::mutex mutex;
  std::condition_variable_any told;
  std::unique_lock lock(mutex);
  std::optional<Patience> patience;  // starts with the watched call
  std::uint64_t call = 0;
  while (!told.wait_for(lock, stop, interval, [&] { return stop.stop_requested(); })) {
    const std::uint64_t now = entries_and_exits_.load(std::memory_order_acquire);
    if (now % 2 == 0) {
      patience.reset();
    } else if (!patience || now != call) {
      patience.emplace(deadline_seconds_);
      call = now;
    } else if (patience->exhausted(false) && entries_and_exits_.load(std::memory_order_acquire) == call) {
      give_up(patience->waited());
    }
  }
}

void MpiAllReduce::give_up(double waited) {
  constexpr std::size_t kNamed = 4;
  std::vector<int> culprits;
  for (int peer = 0; peer < peers_.size(); ++peer) {
    if (peer == session_.rank()) continue;
    const ProcessState seen = peers_.process_state(peer);
    if (seen == ProcessState::stopped || seen == ProcessState::gone || seen == ProcessState::blocked) {
      culprits.push_back(peer);
    }
  }
  session_.state().suspects->mark(culprits);  // these ranks will not report
  std::string text = fmt::format("lockstep: error: {} has waited in MPI_Allreduce of {} floats for {} s. ",
                                 peers_.describe(session_.rank()), count_.load(), seconds_text(waited));
  for (std::size_t i = 0; i < std::min(kNamed, culprits.size()); ++i) {
    text += fmt::format("For {}: {} ", peers_.describe(culprits[i]), explanation(peers_.process_state(culprits[i])));
  }
  if (culprits.size() > kNamed) text += fmt::format("The same goes for {} more ranks. ", culprits.size() - kNamed);
  if (culprits.empty()) text += "MPI does not tell for whom; nobody on this machine is stopped or dead. ";
  session_.abort(kFailed, text + "Ending the job.");
}

}  // namespace lockstep::comm
