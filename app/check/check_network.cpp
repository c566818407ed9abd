#include "app/check/check_network.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"
#include "app/report/statistics.hpp"

namespace lockstep::app {
namespace {

constexpr double kUsualShare = 0.7, kMinShare = 0.25;
constexpr double kUsualLatencies = 2, kLatencySlack = 50e-6;

/// "12.3 GB/s", "0.117 GB/s".
std::string bandwidth_text(double bytes_per_second) { return fmt::format("{:.3g} GB/s", bytes_per_second / 1e9); }
std::string latency_text(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.0f} us", seconds * 1e6) : fmt::format("{:.3g} ms", seconds * 1e3);
}

bool has(const comm::HostPair& pair, int host) { return pair.first == host || pair.second == host; }

/// Returns the hosts that most of the bad pairs share, the worst first, and removes their pairs from `bad`. Such a host
/// has at least two bad pairs, at least half of its measured pairs are bad, and it has more bad pairs than any other
/// host.
std::vector<int> take_culprits(std::vector<comm::PairFigures>& bad, std::span<const comm::PairFigures> all,
                               std::size_t hosts) {
  std::vector<int> culprits;
  for (;;) {
    std::vector<std::size_t> bad_pairs(hosts), pairs(hosts);
    for (const comm::PairFigures& p : bad) ++bad_pairs[p.pair.first], ++bad_pairs[p.pair.second];
    for (const comm::PairFigures& p : all) ++pairs[p.pair.first], ++pairs[p.pair.second];
    const auto worst = std::max_element(bad_pairs.begin(), bad_pairs.end());
    const auto host = static_cast<std::size_t>(worst - bad_pairs.begin());
    if (worst == bad_pairs.end() || *worst < 2 || 2 * *worst < pairs[host] ||
        std::count(bad_pairs.begin(), bad_pairs.end(), *worst) > 1) {
      return culprits;
    }
    culprits.push_back(static_cast<int>(host));
    std::erase_if(bad, [&](const comm::PairFigures& p) { return has(p.pair, culprits.back()); });
  }
}

std::string pair_text(const comm::PairFigures& p, std::span<const std::string> hosts) {
  const std::string names = fmt::format("{} - {}", hosts[p.pair.first], hosts[p.pair.second]);
  if (!p.error.empty()) return names;
  return fmt::format("{} ({}, {})", names, bandwidth_text(p.bandwidth()), latency_text(p.latency));
}

std::string pairs_text(std::span<const comm::PairFigures> pairs, std::span<const std::string> hosts) {
  std::vector<std::string> texts;
  for (const comm::PairFigures& p : pairs) texts.push_back(pair_text(p, hosts));
  return list_some(texts);
}

struct Verdict {
  Severity severity;
  std::string of_host;                    ///< text after the host's name
  std::string before_pairs, after_pairs;  ///< text around "2 pairs of hosts"
  std::string remedy;
};

/// Adds a finding for each host at fault, and one for the remaining pairs.
void blame(std::vector<Finding>& findings, std::vector<comm::PairFigures> bad, std::span<const comm::PairFigures> all,
           std::span<const std::string> hosts, const Verdict& verdict) {
  const std::vector<comm::PairFigures> every = bad;
  for (const int culprit : take_culprits(bad, all, hosts.size())) {
    std::vector<comm::PairFigures> of_culprit;
    for (const comm::PairFigures& p : every) {
      if (has(p.pair, culprit)) of_culprit.push_back(p);
    }
    findings.push_back({.severity = verdict.severity,
                        .what = fmt::format("{} {}", hosts[culprit], verdict.of_host),
                        .where = pairs_text(of_culprit, hosts),
                        .remedy = verdict.remedy,
                        .hosts = {hosts[culprit]}});
  }
  if (bad.empty()) return;
  findings.push_back(
      {.severity = verdict.severity,
       .what = verdict.before_pairs + counted(bad.size(), "pair") + " of hosts" + verdict.after_pairs,
       .where = pairs_text(bad, hosts),
       .remedy = verdict.remedy + (hosts.size() < 3 ? "" : "; which of the two is at fault does not show")});
}

}  // namespace

Usual usual_figures(std::span<const comm::PairFigures> pairs, int hosts) {
  std::vector<double> bandwidths(hosts, 0.0), latencies(hosts, INFINITY);
  for (const comm::PairFigures& p : pairs) {
    if (!p.error.empty()) continue;
    for (const int host : {p.pair.first, p.pair.second}) {
      bandwidths[host] = std::max(bandwidths[host], p.bandwidth());
      latencies[host] = std::min(latencies[host], p.latency);
    }
  }
  std::erase(bandwidths, 0.0);
  std::erase_if(latencies, [](double seconds) { return std::isinf(seconds); });
  return {.bandwidth = median(bandwidths), .latency = median(latencies)};
}

bool is_slow(const comm::PairFigures& pair, const Usual& usual) {
  return pair.error.empty() && pair.bandwidth() < kUsualShare * usual.bandwidth;
}

bool is_late(const comm::PairFigures& pair, const Usual& usual) {
  return pair.error.empty() && pair.latency > kUsualLatencies * usual.latency + kLatencySlack;
}

std::vector<comm::HostPair> slow_pairs(std::span<const comm::PairFigures> pairs, int hosts) {
  const Usual usual = usual_figures(pairs, hosts);
  std::vector<comm::HostPair> slow;
  for (const comm::PairFigures& p : pairs) {
    if (is_slow(p, usual) || is_late(p, usual)) slow.push_back(p.pair);
  }
  return slow;
}

void merge_better(std::vector<comm::PairFigures>& pairs, std::span<const comm::PairFigures> again) {
  for (const comm::PairFigures& second : again) {
    const auto known = std::find_if(pairs.begin(), pairs.end(), [&](const auto& p) { return p.pair == second.pair; });
    if (known == pairs.end()) continue;
    if (!second.error.empty()) {
      *known = second;
      continue;
    }
    known->latency = std::min(known->latency, second.latency);
    known->forward = std::max(known->forward, second.forward);
    known->backward = std::max(known->backward, second.backward);
  }
}

std::vector<Finding> judge_pairs(std::span<const comm::PairFigures> pairs, std::span<const std::string> hosts) {
  const Usual usual = usual_figures(pairs, static_cast<int>(hosts.size()));
  std::vector<comm::PairFigures> unreached, crippled, slow, late;
  for (const comm::PairFigures& p : pairs) {
    if (!p.error.empty()) {
      unreached.push_back(p);
    } else if (p.bandwidth() < kMinShare * usual.bandwidth) {
      crippled.push_back(p);
    } else if (is_slow(p, usual)) {
      slow.push_back(p);
    }
    if (is_late(p, usual)) late.push_back(p);
  }
  const std::string compared =
      fmt::format(" (usual here: {}, {})", bandwidth_text(usual.bandwidth), latency_text(usual.latency));
  std::vector<Finding> findings;
  blame(findings, unreached, pairs, hosts,
        {.severity = Severity::error,
         .of_host = "does not reach other hosts",
         .before_pairs = "no way between ",
         .after_pairs = "",
         .remedy = "look at cables, switch and firewall, and at the interface that MPI takes "
                   "(--mca btl_tcp_if_include)"});
  blame(findings, crippled, pairs, hosts,
        {.severity = Severity::error,
         .of_host = fmt::format("has less than a quarter of the usual bandwidth{}", compared),
         .before_pairs = "less than a quarter of the usual bandwidth between ",
         .after_pairs = compared,
         .remedy = "look at the link's speed (ethtool, ibstat) and cable, or leave the host out: all wait for it"});
  const std::string elsewhere =
      "see whether another job uses the link, or whether it lies in another part of the network";
  blame(findings, slow, pairs, hosts,
        {.severity = Severity::warning,
         .of_host = fmt::format("has less than 70 % of the usual bandwidth{}", compared),
         .before_pairs = "less than 70 % of the usual bandwidth between ",
         .after_pairs = compared,
         .remedy = elsewhere});
  blame(findings, late, pairs, hosts,
        {.severity = Severity::warning,
         .of_host = fmt::format("takes more than twice the usual time to answer{}", compared),
         .before_pairs = "more than twice the usual latency between ",
         .after_pairs = compared,
         .remedy = elsewhere});
  return findings;
}

std::string describe_all_reduce(std::span<const comm::PairFigures> pairs, int hosts) {
  if (hosts < 2) return "one host: nothing travels";
  constexpr double kFar = 4, kUsual = comm::AllReduceLimits::kUsuallyInFlight;
  std::string text = to_text(comm::AllReduceLimits::usual(hosts));
  const Usual usual = usual_figures(pairs, hosts);
  const double in_flight = usual.latency * usual.bandwidth;
  if (!(in_flight > 0) || (in_flight < kUsual * kFar && in_flight * kFar > kUsual)) return text;
  return text + fmt::format(
                    "; that suits networks with {} on their way at once, and here it is {}: give --all-reduce measured",
                    format_bytes(comm::AllReduceLimits::kUsuallyInFlight),
                    format_bytes(static_cast<std::size_t>(std::min(in_flight, 1e18))));
}

std::string describe_pairs(std::span<const comm::PairFigures> pairs, int hosts) {
  if (pairs.empty())
    return hosts < 2 ? "one host: nothing to measure" : "hosts that are one machine: nothing to compare";
  const Usual usual = usual_figures(pairs, hosts);
  double least = INFINITY, most = 0;
  std::size_t failed = 0;
  for (const comm::PairFigures& p : pairs) {
    if (!p.error.empty()) {
      ++failed;
      continue;
    }
    least = std::min(least, p.bandwidth());
    most = std::max(most, p.latency);
  }
  const auto all = static_cast<std::size_t>(hosts) * static_cast<std::size_t>(hosts - 1) / 2;
  std::string text = pairs.size() < all ? fmt::format("{} of {} pairs of hosts", pairs.size(), all)
                                        : fmt::format("{} of hosts", counted(all, "pair"));
  if (failed < pairs.size()) {
    text += fmt::format(", {}", bandwidth_text(usual.bandwidth));
    if (pairs.size() > 1) text += fmt::format(" (least {})", bandwidth_text(least));
    text += fmt::format(", {}", latency_text(usual.latency));
    if (pairs.size() > 1) text += fmt::format(" (most {})", latency_text(most));
  }
  return failed == 0 ? text : text + fmt::format(", {} failed", failed);
}

std::vector<Finding> judge_speed(std::span<const comm::PairFigures> pairs, std::span<const RankFacts> facts) {
  const std::vector<CommonSubnet> subnets = common_subnets(facts);
  if (pairs.empty() || subnets.empty() || subnets[0].megabits == 0) return {};
  const double wire = static_cast<double>(subnets[0].megabits) * 1e6 / 8;
  const double reached = usual_figures(pairs, static_cast<int>(facts.size())).bandwidth;
  if (reached == 0 || reached >= 0.4 * wire) return {};
  return {
      {.severity = Severity::warning,
       .what = fmt::format("pairs of hosts reach {} although {} joins them at {} ({} Mbit/s)", bandwidth_text(reached),
                           subnets[0].subnet, bandwidth_text(wire), subnets[0].megabits),
       .where = fmt::format("interface {}", list_some(subnets[0].interfaces)),
       .remedy = fmt::format("if MPI takes another interface, name this one: --mca btl_tcp_if_include {}; else look "
                             "for other traffic, or a processor that one TCP stream keeps busy",
                             subnets[0].subnet)}};
}

std::vector<Finding> judge_clocks(std::span<const comm::ClockOffset> offsets, std::span<const std::string> hosts) {
  constexpr double most = 1;
  std::vector<std::string> off, silent;
  for (std::size_t host = 0; host < offsets.size(); ++host) {
    const comm::ClockOffset& offset = offsets[host];
    if (!offset.error.empty()) {
      silent.push_back(hosts[host]);
    } else if (std::abs(offset.seconds) - offset.uncertainty > most) {
      off.push_back(fmt::format("{} is {:.3g} s {}", hosts[host], std::abs(offset.seconds),
                                offset.seconds > 0 ? "ahead" : "behind"));
    }
  }
  std::vector<Finding> findings;
  if (!off.empty()) {
    findings.push_back({.severity = Severity::warning,
                        .what = fmt::format("clocks differ by more than a second from that of {}", hosts[0]),
                        .where = list_some(off),
                        .remedy = "start chrony or ntpd there: times in logs and of checkpoints mislead, and `make` or "
                                  "a shared file system may take new files for old ones"});
  }
  if (!silent.empty()) {
    findings.push_back({.severity = Severity::warning,
                        .what = "hosts did not answer when asked for the time",
                        .where = list_some(silent),
                        .remedy = "see what the network says of them"});
  }
  return findings;
}

std::string describe_clocks(std::span<const comm::ClockOffset> offsets) {
  if (offsets.size() < 2) return "one host: nothing to compare";
  double most = 0, uncertainty = 0;
  for (const comm::ClockOffset& offset : offsets) {
    most = std::max(most, std::abs(offset.seconds));
    uncertainty = std::max(uncertainty, offset.uncertainty);
  }
  return fmt::format("within {} of the first host's (known to {})", latency_text(most), latency_text(uncertainty));
}

}  // namespace lockstep::app
