#include "comm/survey/topology.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "comm/messages.hpp"
#include "comm/session/control_groups.hpp"
#include "comm/session/own_cores.hpp"
#include "comm/session/this_process.hpp"
#include "comm/survey/numa_nodes.hpp"

namespace lockstep::comm {
namespace {

using Rows = std::vector<std::vector<std::string>>;

/// Columns as wide as their widest cell, two spaces between, the first right-aligned (it holds rank numbers).
std::string table(const Rows& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:>{}}", row[i], widths[i]) : fmt::format("  {:<{}}", row[i], widths[i]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

/// Groups ranks by host, hosts in the order of their first appearance.
std::vector<std::vector<RankPlace>> by_host(const std::vector<RankPlace>& places) {
  std::vector<std::vector<RankPlace>> hosts;
  for (const RankPlace& place : places) {
    const auto known = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h[0].host == place.host; });
    (known == hosts.end() ? hosts.emplace_back() : *known).push_back(place);
  }
  return hosts;
}

std::set<int> rank_numbers(const std::vector<RankPlace>& places) {
  std::set<int> numbers;
  for (const RankPlace& place : places) numbers.insert(place.rank);
  return numbers;
}

std::string plural(std::size_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

std::string name_ranks(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", folded({ranks.begin(), ranks.end()}));
}

std::vector<RankPlace> gather_topology(Communicator& communicator, const std::string& device,
                                       const std::string& identity) {
  const std::vector<int> cores = own_cores();
  const std::vector<NumaNode> nodes = numa_nodes();
  const auto with_cores = std::ranges::count_if(nodes, [](const NumaNode& node) { return !node.cores.empty(); });
  const CpuGroup group = tightest_cpu_group().value_or(CpuGroup{});
  // One line per value.
  const std::vector<std::string> texts =
      all_gather_text(communicator, fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", host_name(), getpid(),
                                                folded({cores.begin(), cores.end()}), sysconf(_SC_NPROCESSORS_ONLN),
                                                device, identity, folded(nodes_of(cores, nodes)), with_cores,
                                                folded(network_card_nodes()), group.name, group.cpus));
  std::vector<RankPlace> places;
  std::map<std::string, int> ranks_on_host;
  for (const std::string& text : texts) {
    std::istringstream lines(text);
    RankPlace place;
    std::string pid, host_cores, host_nodes, group_cpus;
    std::getline(lines, place.host);
    std::getline(lines, pid);
    std::getline(lines, place.cores);
    std::getline(lines, host_cores);
    std::getline(lines, place.device);
    std::getline(lines, place.identity);
    std::getline(lines, place.nodes);
    std::getline(lines, host_nodes);
    std::getline(lines, place.card_nodes);
    std::getline(lines, place.cpu_group);
    std::getline(lines, group_cpus);
    place.pid = std::stoi(pid);
    place.host_cores = std::stoi(host_cores);
    place.host_nodes = std::stoi(host_nodes);
    place.group_cpus = std::stod(group_cpus);
    place.rank = static_cast<int>(places.size());
    place.local_rank = ranks_on_host[place.host]++;
    places.push_back(std::move(place));
  }
  return places;
}

std::string format_topology(const std::vector<RankPlace>& places, int max_rows) {
  if (places.size() <= static_cast<std::size_t>(std::max(max_rows, 0))) {
    const bool identified =
        std::any_of(places.begin(), places.end(), [](const auto& p) { return !p.identity.empty(); });
    const bool several_nodes = std::ranges::any_of(places, [](const RankPlace& p) { return p.host_nodes > 1; });
    const bool cards = std::ranges::any_of(places, [](const RankPlace& p) { return !p.card_nodes.empty(); });
    Rows rows{{"rank", "host", "local", "pid", "device", "identity", "cores", "NUMA", "network card's NUMA"}};
    for (const RankPlace& place : places) {
      rows.push_back({fmt::format("{}", place.rank), place.host, fmt::format("{}", place.local_rank),
                      fmt::format("{}", place.pid), place.device, place.identity, place.cores, place.nodes,
                      place.card_nodes});
    }
    for (auto& row : rows) {
      row.resize(row.size() - (!several_nodes ? 2 : !cards ? 1 : 0));
      if (!identified) row.erase(row.begin() + 5);
    }
    return table(rows);
  }
  Rows rows{{"ranks", "host", "devices"}};
  for (const std::vector<RankPlace>& host : by_host(places)) {
    std::vector<std::string> kinds;
    std::map<std::string, int> counts;
    for (const RankPlace& place : host) {
      if (counts[place.device]++ == 0) kinds.push_back(place.device);
    }
    for (std::string& kind : kinds) kind = fmt::format("{} x {}", counts[kind], kind);
    rows.push_back({folded(rank_numbers(host)), host[0].host, fmt::format("{}", fmt::join(kinds, ", "))});
  }
  return table(rows);
}

std::string to_text(const TopologyWarning& warning) { return fmt::format("{}: {}", warning.what, warning.remedy); }

std::vector<TopologyWarning> topology_warnings(const std::vector<RankPlace>& places, int threads_per_rank) {
  const auto threads = static_cast<std::size_t>(std::max(threads_per_rank, 1));
  std::vector<TopologyWarning> warnings;
  for (const std::vector<RankPlace>& host : by_host(places)) {
    std::set<int> usable;
    for (const RankPlace& place : host) usable.merge(unfolded(place.cores));
    const std::size_t cores = std::max(static_cast<std::size_t>(std::max(host[0].host_cores, 0)), usable.size());
    const auto describe = [threads](std::size_t ranks) {
      return threads == 1 ? plural(ranks, "rank") : fmt::format("{} of {} threads", plural(ranks, "rank"), threads);
    };
    const std::string work = describe(host.size());
    std::map<std::string, std::vector<const RankPlace*>> groups;
    for (const RankPlace& place : host) {
      if (!place.cpu_group.empty()) groups[place.cpu_group].push_back(&place);
    }
    bool group_is_full = false;
    for (const auto& [name, ranks] : groups) {
      const double cpus = ranks.front()->group_cpus;
      if (static_cast<double>(ranks.size() * threads) <= cpus) continue;
      group_is_full = true;
      warnings.push_back({.host = host[0].host,
                          .what = fmt::format("{} runs {} on {:.3g} of its {} (control group {})", host[0].host,
                                              describe(ranks.size()), cpus, plural(cores, "core"), name),
                          .remedy = "start fewer ranks, use fewer threads, or ask for more CPUs (Slurm: "
                                    "--cpus-per-task, containers: --cpus)"});
    }
    if (group_is_full) continue;
    if (cores > 0 && host.size() * threads > cores) {
      warnings.push_back({.host = host[0].host,
                          .what = fmt::format("{} runs {} on {}", host[0].host, work, plural(cores, "core")),
                          .remedy = "start fewer ranks per host, or use fewer threads"});
      continue;
    }
    std::set<int> spread;  // ranks that may run on several nodes
    for (const RankPlace& place : host) {
      if (unfolded(place.nodes).size() > 1) spread.insert(place.rank);
    }
    if (!spread.empty() && host.size() >= static_cast<std::size_t>(host[0].host_nodes)) {
      warnings.push_back({.host = host[0].host,
                          .what = fmt::format("{}: {} {} may run on several of {} NUMA nodes, far from {} memory",
                                              host[0].host, spread.size() == 1 ? "rank" : "ranks", folded(spread),
                                              host[0].host_nodes, spread.size() == 1 ? "its" : "their"),
                          .remedy = "start mpirun with `--map-by numa --bind-to numa`, or srun with "
                                    "`--cpu-bind=ldoms`"});
    }
    std::set<int> near;
    for (const RankPlace& place : host) near.merge(unfolded(place.nodes));
    const std::set<int> cards = unfolded(host[0].card_nodes);
    if (places.size() > host.size() && !near.empty() && !cards.empty() &&
        std::ranges::none_of(cards, [&](int node) { return near.contains(node); })) {
      warnings.push_back(
          {.host = host[0].host,
           .what = fmt::format("{}: the network card is at NUMA node {}, and {} may run on node {} alone", host[0].host,
                               folded(cards), host.size() == 1 ? "its rank" : "its ranks", folded(near)),
           .remedy = fmt::format("start mpirun with `--bind-to none`, and the program by `numactl "
                                 "--cpunodebind={}`",
                                 *cards.begin())});
    }
    // Ranks bound to the same cores, which are too few for them while the host has others.
    std::vector<std::vector<RankPlace>> bindings;
    for (const RankPlace& place : host) {
      const auto known =
          std::find_if(bindings.begin(), bindings.end(), [&](const auto& b) { return b[0].cores == place.cores; });
      (known == bindings.end() ? bindings.emplace_back() : *known).push_back(place);
    }
    for (const std::vector<RankPlace>& binding : bindings) {
      const std::size_t bound_to = unfolded(binding[0].cores).size();
      if (bound_to == 0 || binding.size() * threads <= bound_to) continue;
      warnings.push_back(
          {.host = host[0].host,
           .what = fmt::format("{}: {} {} bound to {} {} for {}, while the host has {}", host[0].host,
                               binding.size() == 1 ? "rank" : "ranks", folded(rank_numbers(binding)),
                               bound_to == 1 ? "core" : "cores", binding[0].cores,
                               plural(binding.size() * threads, "thread"), plural(cores, "core")),
           .remedy = fmt::format("start mpirun with `--bind-to none` or `--map-by slot:PE={}`", threads)});
    }
  }
  return warnings;
}

}  // namespace lockstep::comm
