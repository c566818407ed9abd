#include "comm/servers/survivor_work.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "comm/session/deadline.hpp"

namespace lockstep::comm {

namespace {

enum class Outcome : std::int32_t { done, again };

constexpr std::chrono::milliseconds kBetweenDeadLooks{100};

/// Of rank 0 all others are peers, by rank; of the others rank 0.
ServerMessages::Options judging_options(const MpiSession& session, HostWindow& window,
                                        const std::shared_ptr<TurnMutex>& mpi) {
  using Lane = ServerMessages::Lane;
  const bool judges = session.rank() == 0;
  ServerMessages::Options options{.send = judges ? Lane::from_judge : Lane::to_judge,
                                  .receive = judges ? Lane::to_judge : Lane::from_judge,
                                  .peers = {},
                                  .most_values = {},
                                  .mpi = mpi,
                                  .window = &window};
  for (int rank = judges ? 1 : 0; rank < (judges ? session.size() : 1); ++rank) options.peers.push_back(rank);
  options.most_values.assign(options.peers.size(), static_cast<std::size_t>(session.size()));
  return options;
}

}  // namespace

SurvivorWork::SurvivorWork(MpiSession& session, SurvivorCommunicator& communicator, HostWindow& window, Options options)
    : session_(session),
      communicator_(communicator),
      window_(window),
      options_(std::move(options)),
      messages_(session, judging_options(session, window, options_.mpi)) {}

std::vector<int> SurvivorWork::run(const std::function<void()>& work) {
  std::vector<int> all;
  if (communicator_.uses_network() || session_.size() == 1) {
    work();
    return all;
  }
  for (;;) {
    const bool whole = attempt(work);
    std::vector<int> dead = newly_dead();
    const bool done = session_.rank() == 0 ? judge(whole, dead) : ask(whole, dead);
    if (!dead.empty()) {
      std::vector<int> living;
      for (int rank = 0; rank < communicator_.size(); ++rank) {
        const int of_job = communicator_.job_rank(rank);
        if (std::ranges::find(dead, of_job) == dead.end()) living.push_back(of_job);
      }
      communicator_.go_on_with(living);
      all.insert(all.end(), dead.begin(), dead.end());
    }
    if (!done) continue;
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return all;
  }
}

/// False: somebody has died in it.
bool SurvivorWork::attempt(const std::function<void()>& work) {
  error_ = nullptr;
  try {
    work();
  } catch (const PeerError&) {
    const std::vector<int> dead = newly_dead();
    if (dead.empty() || !std::ranges::all_of(dead, options_.dispensable)) throw;
    return false;
  } catch (...) {
    error_ = std::current_exception();  // the same on all ranks, unless somebody has died meanwhile
  }
  return true;
}

/// As far as this rank can see.
std::vector<int> SurvivorWork::newly_dead() {
  std::vector<int> dead = communicator_.dead_peers();
  std::erase_if(dead, [this](int rank) { return communicator_.rank_of(rank) < 0; });
  std::ranges::sort(dead);
  return dead;
}

/// Throws PeerError where one of the dead is not.
void SurvivorWork::expect_dispensable(const std::vector<int>& dead) {
  const auto missed = std::ranges::find_if_not(dead, options_.dispensable);
  if (missed == dead.end()) return;
  communicator_.look_at_peers();  // throws with what is known of it
  throw PeerError(
      fmt::format("{} has died, without which the others cannot go on. Ending the job: --resume goes on from the last "
                  "checkpoint.",
                  session_.describe(*missed)));
}

/// The next message. Throws PeerError where nobody says anything, or somebody has died that nobody can do without.
/// Without a message where `enough()` says so; `see` learns who has died.
std::optional<ServerMessages::Received> SurvivorWork::hear(std::string_view whom, const std::function<bool()>& enough,
                                                           const std::function<void(const std::vector<int>&)>& see) {
  MessageWait waiting(window_, {.end = HostWindow::End::worker, .near = true});
  Patience patience(options_.limit_seconds);
  auto next_look = std::chrono::steady_clock::now() + kBetweenDeadLooks;
  for (;;) {
    waiting.look();
    if (const auto message = messages_.poll()) return message;
    if (enough()) return std::nullopt;
    waiting.pause(!messages_.all_sent());
    if (std::chrono::steady_clock::now() < next_look) continue;
    next_look = std::chrono::steady_clock::now() + kBetweenDeadLooks;
    const std::vector<int> dead = newly_dead();
    see(dead);
    bool busy = false;
    try {
      busy = communicator_.look_at_peers();
    } catch (const PeerError&) {
      if (dead.empty() || !std::ranges::all_of(dead, options_.dispensable)) throw;
    }
    if (patience.exhausted(busy)) {
      throw PeerError(fmt::format(
          "{} has heard nothing of {} for {:.0f} s after a validation, a checkpoint or a round: look at what "
          "they do, or give a longer --deadline or --io-deadline",
          session_.describe(session_.rank()), whom, patience.waited()));
    }
  }
}

/// Rank 0: has everybody done it? Adds to the dead, and tells the others.
bool SurvivorWork::judge(bool whole, std::vector<int>& dead) {
  std::vector<int> heard;
  const auto add_dead = [&dead](const auto& ranks) {
    for (const auto rank : ranks) {
      if (std::ranges::find(dead, static_cast<int>(rank)) == dead.end()) dead.push_back(static_cast<int>(rank));
    }
  };
  const auto everybody_is_heard = [&] {
    for (int rank = 1; rank < communicator_.size(); ++rank) {
      const int of_job = communicator_.job_rank(rank);
      const auto among = [of_job](const std::vector<int>& ranks) {
        return std::ranges::find(ranks, of_job) != ranks.end();
      };
      if (!among(heard) && !among(dead)) return false;
    }
    return true;
  };
  while (const auto message = hear("the other ranks", everybody_is_heard, add_dead)) {
    heard.push_back(message->peer + 1);
    whole = whole && message->note.kind == static_cast<std::int32_t>(Outcome::done);
    add_dead(message->values);
  }
  std::ranges::sort(dead);
  expect_dispensable(dead);
  const std::vector<float> ranks(dead.begin(), dead.end());
  const ServerNote verdict{.kind = static_cast<std::int32_t>(whole ? Outcome::done : Outcome::again)};
  for (const int rank : dead) messages_.forget(rank - 1);
  for (int peer = 0; peer < messages_.peers(); ++peer) messages_.send(peer, verdict, ranks);
  return whole;
}

/// The others.
bool SurvivorWork::ask(bool whole, std::vector<int>& dead) {
  const std::vector<float> seen(dead.begin(), dead.end());
  messages_.send(0, {.kind = static_cast<std::int32_t>(whole ? Outcome::done : Outcome::again)}, seen);
  const auto verdict = hear(
      "rank 0", [] { return false; }, [](const std::vector<int>&) {});
  dead.assign(verdict->values.begin(), verdict->values.end());
  return verdict->note.kind == static_cast<std::int32_t>(Outcome::done);
}

}  // namespace lockstep::comm
