#include "comm/survey/network_probe.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "comm/messages.hpp"
#include "comm/survey/pair_messages.hpp"

namespace lockstep::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

HostPair ordered(int a, int b) { return {.first = std::min(a, b), .second = std::max(a, b)}; }

/// A random matching of all hosts, or all but one.
Round random_round(int hosts, std::mt19937_64& generator) {
  std::vector<int> order(static_cast<std::size_t>(hosts));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[generator() % i]);
  Round round;
  for (std::size_t i = 0; i + 1 < order.size(); i += 2) round.push_back(ordered(order[i], order[i + 1]));
  return round;
}

constexpr std::size_t kMinMessageBytes = std::size_t{64} << 10, kMaxMessageBytes = std::size_t{1} << 20;
constexpr std::size_t kTrialBytes = std::size_t{256} << 10;
constexpr int kTransfers = 5;
constexpr std::int64_t kMaxMessages = 512;
constexpr std::size_t kMinPings = 10, kMaxPings = 2000;

/// The leader's request to its partner.
struct Request {
  enum class Kind : std::int64_t { ping, take, give, end };
  Kind kind = Kind::end;
  std::int64_t bytes = 0, times = 0;
};

/// The partner's side: serves requests until the end.
void answer(PairMessages& line) {
  for (;;) {
    const auto request = line.receive<Request>();
    const auto bytes = static_cast<std::size_t>(request.bytes);
    switch (request.kind) {
      case Request::Kind::ping:
        line.send(request);
        break;
      case Request::Kind::take:
        line.receive_load(bytes, request.times);
        line.send(request);
        break;
      case Request::Kind::give:
        line.send_load(bytes, request.times);
        break;
      case Request::Kind::end:
        return;
    }
  }
}

double round_trip(PairMessages& line) {
  const Clock::time_point begin = Clock::now();
  line.send(Request{.kind = Request::Kind::ping});
  line.receive<Request>();
  return seconds_since(begin);
}

/// The time of the quickest tenth: the network's time, without the delays of busy cores.
double usual_round_trip(PairMessages& line, double seconds) {
  for (int i = 0; i < 3; ++i) round_trip(line);
  std::vector<double> trips;
  const Clock::time_point begin = Clock::now();
  while (trips.size() < kMinPings || (trips.size() < kMaxPings && seconds_since(begin) < seconds)) {
    trips.push_back(round_trip(line));
  }
  const auto place = trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 10);
  std::nth_element(trips.begin(), place, trips.end());
  return *place;
}

/// Bytes/s of one transfer. `kind` is the leader's view: the partner takes or gives.
double transfer(PairMessages& line, Request::Kind kind, std::size_t message, std::int64_t times) {
  const Request request{.kind = kind, .bytes = static_cast<std::int64_t>(message), .times = times};
  const Clock::time_point begin = Clock::now();
  line.send(request);
  if (kind == Request::Kind::take) {
    line.send_load(message, times);
    line.receive<Request>();
  } else {
    line.receive_load(message, times);
  }
  return static_cast<double>(message) * static_cast<double>(times) / seconds_since(begin);
}

/// The best of several transfers that take `seconds` together, each sized by the previous result. A slow link is slow
/// in all of them; a core that was busy is slow in some.
double bandwidth(PairMessages& line, Request::Kind kind, double seconds) {
  transfer(line, kind, kTrialBytes, 1);  // allocates memory and opens TCP windows
  double rate = transfer(line, kind, kTrialBytes, 1), best = rate;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kTransfers && seconds_since(begin) < seconds; ++i) {
    const double bytes = rate * seconds / kTransfers;
    const auto message = std::clamp(static_cast<std::size_t>(bytes), kMinMessageBytes, kMaxMessageBytes);
    const auto times =
        std::clamp(static_cast<std::int64_t>(bytes / static_cast<double>(message)), std::int64_t{1}, kMaxMessages);
    rate = transfer(line, kind, message, times);
    best = std::max(best, rate);
  }
  return best;
}

PairFigures lead(PairMessages& line, HostPair pair, double seconds) {
  PairFigures figures{.pair = pair};
  figures.latency = usual_round_trip(line, 0.2 * seconds) / 2;
  figures.forward = bandwidth(line, Request::Kind::take, 0.35 * seconds);
  figures.backward = bandwidth(line, Request::Kind::give, 0.35 * seconds);
  line.send(Request{.kind = Request::Kind::end});
  return figures;
}

/// Lines of figures for sending. The error is last on its line, because only it has blanks.
std::string to_text(const PairFigures& f) {
  return fmt::format("{} {} {:.9e} {:.9e} {:.9e} {}\n", f.pair.first, f.pair.second, f.latency, f.forward, f.backward,
                     f.error);
}

std::vector<PairFigures> figures_from(const std::vector<std::string>& texts) {
  std::vector<PairFigures> all;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      PairFigures f;
      words >> f.pair.first >> f.pair.second >> f.latency >> f.forward >> f.backward;
      if (words.get() == ' ') std::getline(words, f.error);
      // Both ends of a failed pair report it.
      const auto known = std::find_if(all.begin(), all.end(), [&](const PairFigures& k) { return k.pair == f.pair; });
      if (known == all.end()) {
        all.push_back(std::move(f));
      } else if (known->error.empty()) {
        *known = std::move(f);
      }
    }
  }
  return all;
}

std::optional<int> host_of(std::span<const int> ranks, int rank) {
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end()) return std::nullopt;
  return static_cast<int>(at - ranks.begin());
}

}  // namespace

std::vector<Round> tournament(int hosts) {
  // The circle method: one host keeps its position, the others move on by one in each round. With an odd number of
  // hosts, the host opposite the empty position rests.
  std::vector<Round> rounds;
  if (hosts < 2) return rounds;
  const int places = hosts + hosts % 2, moving = places - 1;
  for (int round = 0; round < moving; ++round) {
    Round& pairs = rounds.emplace_back();
    const auto add = [&](int a, int b) {
      if (a < hosts && b < hosts) pairs.push_back(ordered(a, b));
    };
    add(round, moving);
    for (int i = 1; i < places / 2; ++i) add((round + i) % moving, (round + moving - i) % moving);
  }
  return rounds;
}

std::vector<Round> ring_rounds(int hosts) {
  std::vector<Round> rounds;
  if (hosts < 2) return rounds;
  if (hosts == 2) return {{{0, 1}}};
  for (int parity = 0; parity < 2; ++parity) {
    Round& round = rounds.emplace_back();
    for (int host = parity; host + 1 < hosts; host += 2) round.push_back(ordered(host, host + 1));
  }
  const HostPair closing = ordered(hosts - 1, 0);
  if (hosts % 2 == 0) {
    rounds[1].push_back(closing);
  } else {
    rounds.push_back({closing});
  }
  return rounds;
}

std::vector<Round> plan_rounds(int hosts, int most_rounds, std::uint64_t seed) {
  std::vector<Round> rounds = tournament(hosts);
  if (static_cast<int>(rounds.size()) <= most_rounds) return rounds;
  rounds = ring_rounds(hosts);
  std::vector<HostPair> known;
  for (const Round& round : rounds) known.insert(known.end(), round.begin(), round.end());
  std::mt19937_64 generator(seed);
  while (static_cast<int>(rounds.size()) < most_rounds) {
    Round round = random_round(hosts, generator);
    std::erase_if(round, [&](const HostPair& p) { return std::find(known.begin(), known.end(), p) != known.end(); });
    known.insert(known.end(), round.begin(), round.end());
    rounds.push_back(std::move(round));
  }
  return rounds;
}

std::vector<Round> rounds_of(std::span<const HostPair> pairs) {
  std::vector<Round> rounds;
  for (const HostPair& pair : pairs) {
    const auto free = std::find_if(rounds.begin(), rounds.end(), [&](const Round& round) {
      return std::none_of(round.begin(), round.end(), [&](const HostPair& p) {
        return p.first == pair.first || p.first == pair.second || p.second == pair.first || p.second == pair.second;
      });
    });
    (free == rounds.end() ? rounds.emplace_back() : *free).push_back(pair);
  }
  return rounds;
}

int most_rounds(const ProbeOptions& options) noexcept {
  return static_cast<int>(std::clamp(options.seconds / kMinRoundSeconds, 3.0, 1e6));
}

std::vector<PairFigures> probe_network(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                       std::span<const Round> rounds, const ProbeOptions& options) {
  if (rounds.empty()) return {};
  const double seconds = std::min(options.seconds / static_cast<double>(rounds.size()), options.deadline_seconds / 2);

  const std::optional<int> own = host_of(ranks, session.rank());
  std::string report, first_failure;
  const auto measure = [&](const HostPair& pair) {
    const int partner = pair.first == *own ? pair.second : pair.first;
    PairMessages line(session, ranks[static_cast<std::size_t>(partner)], options.deadline_seconds);
    try {
      if (pair.first == *own) {
        report += to_text(lead(line, pair, seconds));
      } else {
        answer(line);
      }
    } catch (const PeerError& error) {
      PairFigures failed{.pair = pair};
      failed.error = error.what();
      if (first_failure.empty()) first_failure = failed.error;
      report += to_text(failed);
    }
  };
  try {
    for (const Round& round : rounds) {
      communicator.barrier();  // no link carries two measurements
      communicator.wait();
      for (const HostPair& pair : round) {
        if (own && (pair.first == *own || pair.second == *own)) measure(pair);
      }
    }
    return figures_from(all_gather_text(communicator, report));
  } catch (const PeerError& error) {  // the ranks' own messages use the same links: the first error is the most precise
    throw PeerError(first_failure.empty() ? error.what() : fmt::format("{}. Then: {}", first_failure, error.what()));
  }
}

std::vector<ClockOffset> measure_clocks(MpiSession& session, Communicator& communicator, std::span<const int> ranks,
                                        double deadline_seconds) {
  constexpr int trips = 8;
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  std::vector<ClockOffset> offsets(ranks.size());
  communicator.barrier();
  communicator.wait();
  const std::optional<int> own = host_of(ranks, session.rank());
  std::string report;
  if (own == 0) {
    // The other hosts are asked in sequence, so each waits for its turn.
    for (std::size_t host = 1; host < ranks.size(); ++host) {
      ClockOffset& best = offsets[host];
      try {
        PairMessages line(session, ranks[host], deadline_seconds);
        for (int trip = 0; trip < trips; ++trip) {
          const double begin = now();
          line.send(begin);
          const auto theirs = line.receive<double>();
          const double end = now();
          if (trip > 0 && (end - begin) / 2 >= best.uncertainty) continue;
          best = {.seconds = theirs - (begin + end) / 2, .uncertainty = (end - begin) / 2, .error = ""};
        }
      } catch (const PeerError& error) {
        best.error = error.what();
      }
      report += fmt::format("{:.9e} {:.9e} {}\n", best.seconds, best.uncertainty, best.error);
    }
  } else if (own) {
    try {
      PairMessages line(session, ranks[0], deadline_seconds * static_cast<double>(ranks.size()));
      for (int trip = 0; trip < trips; ++trip) {
        line.receive<double>();
        line.send(now());
      }
    } catch (const PeerError&) {
      // The first host reports the missing answer.
    }
  }
  const std::vector<std::string> texts = all_gather_text(communicator, report);
  if (ranks.empty()) return offsets;
  std::istringstream lines(texts[static_cast<std::size_t>(ranks[0])]);
  for (std::size_t host = 1; host < ranks.size(); ++host) {
    std::string line;
    std::getline(lines, line);
    std::istringstream words(line);
    words >> offsets[host].seconds >> offsets[host].uncertainty;
    if (words.get() == ' ') std::getline(words, offsets[host].error);
  }
  return offsets;
}

}  // namespace lockstep::comm
