#include "app/check/check_ranks.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/report/figures.hpp"
#include "comm/survey/topology.hpp"
#include "model/bf16_unit.hpp"

namespace lockstep::app {
namespace {

/// Formats a value for a message: shortened, in quotes.
std::string quoted(const std::string& value) {
  constexpr std::size_t most = 60;
  if (value.size() <= most) return fmt::format("\"{}\"", value);
  return fmt::format("\"{}…\" ({} characters)", value.substr(0, most), value.size());
}

/// Lists the values and their ranks, the largest group first.
std::string describe(std::span<const ValueGroup> groups, std::span<const HostGroup> hosts) {
  constexpr std::size_t most = 4;
  std::vector<std::string> parts;
  for (const ValueGroup& group : groups.first(std::min(groups.size(), most))) {
    parts.push_back(fmt::format("{} on {}", group.value, name_places(hosts, group.ranks)));
  }
  if (groups.size() > most) parts.push_back(fmt::format("{} others", groups.size() - most));
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Returns one finding if the values differ between ranks.
std::vector<Finding> judge_equal(std::span<const RankFacts> facts, Severity severity, const std::string& what,
                                 const std::string& remedy, const FactOf& value) {
  const std::vector<ValueGroup> groups = group_by(facts, value);
  if (groups.size() < 2) return {};
  const std::vector<HostGroup> hosts = hosts_of(facts);
  return {{.severity = severity,
           .what = what,
           .where = describe(groups, hosts),
           .remedy = remedy,
           .hosts = minority(groups, hosts, facts.size())}};
}

}  // namespace

std::vector<int> ranks_of(std::span<const ValueGroup> groups) {
  std::vector<int> ranks;
  for (const ValueGroup& group : groups) ranks.insert(ranks.end(), group.ranks.begin(), group.ranks.end());
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::vector<std::string> minority(std::span<const ValueGroup> groups, std::span<const HostGroup> hosts,
                                  std::size_t ranks) {
  if (2 * groups[0].ranks.size() <= ranks) return {};
  return whole_hosts(hosts, ranks_of(groups.subspan(1)));
}

std::vector<ValueGroup> group_by(std::span<const RankFacts> facts, const FactOf& value) {
  std::vector<ValueGroup> groups;
  for (const RankFacts& rank : facts) {
    const std::string text = value(rank);
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.value == text; });
    (known == groups.end() ? groups.emplace_back(ValueGroup{text, {}}) : *known).ranks.push_back(rank.rank);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const ValueGroup& a, const ValueGroup& b) { return a.ranks.size() > b.ranks.size(); });
  return groups;
}

std::string name_places(std::span<const HostGroup> hosts, std::span<const int> ranks) {
  const std::set<int> wanted(ranks.begin(), ranks.end());
  std::vector<std::string> names;
  for (const HostGroup& host : hosts) {
    const auto here = [&](int rank) { return wanted.contains(rank); };
    if (std::any_of(host.ranks.begin(), host.ranks.end(), here)) names.push_back(host.name);
  }
  return fmt::format("{} ({})", comm::name_ranks(ranks), list_some(names));
}

std::vector<std::string> whole_hosts(std::span<const HostGroup> hosts, std::span<const int> ranks) {
  const std::set<int> wanted(ranks.begin(), ranks.end());
  std::vector<std::string> names;
  for (const HostGroup& host : hosts) {
    const auto here = [&](int rank) { return wanted.contains(rank); };
    if (std::all_of(host.ranks.begin(), host.ranks.end(), here)) names.push_back(host.name);
  }
  return names;
}

std::vector<Finding> judge_names(std::span<const RankFacts> facts) {
  const std::vector<HostGroup> hosts = hosts_of(facts);
  std::map<std::string, std::vector<int>> first_ranks;  // for each name, the first ranks of its machines
  for (const HostGroup& host : hosts) {
    first_ranks[facts[host.ranks[0]].host].push_back(host.ranks[0]);
  }
  std::vector<Finding> findings;
  for (const auto& [name, ranks] : first_ranks) {
    if (ranks.size() < 2) continue;
    findings.push_back({.severity = Severity::warning,
                        .what = fmt::format("{} machines or containers call themselves {}", ranks.size(), name),
                        .where = fmt::format("the first {} on them", comm::name_ranks(ranks)),
                        .remedy = "give each host a name of its own, and start the ranks of a host in one container: "
                                  "GPUs are shared out and messages name culprits by host"});
  }
  return findings;
}

std::vector<Finding> judge_machines(std::span<const RankFacts> facts) {
  std::map<std::uint64_t, std::set<std::string>> names;
  for (const RankFacts& rank : facts) {
    if (rank.machine != 0) names[rank.machine].insert(rank.host);
  }
  std::vector<Finding> findings;
  for (const auto& [machine, hosts] : names) {
    if (hosts.size() < 2) continue;
    const std::vector<std::string> list(hosts.begin(), hosts.end());
    findings.push_back({.severity = Severity::warning,
                        .what = "one machine calls itself by several names, and counts as so many hosts",
                        .where = list_some(list),
                        .remedy = "start all ranks of a machine under one host name: they share memory then, and its "
                                  "GPUs and cores are shared out among them"});
  }
  return findings;
}

std::vector<Finding> judge_program(std::span<const RankFacts> facts) {
  std::vector<Finding> findings =
      judge_equal(facts, Severity::error, "the program is not the same file on all ranks",
                  "install one build of lockstep on all hosts, or start it from a folder that all of them share",
                  [](const RankFacts& f) { return f.program; });
  const std::vector<Finding> library =
      judge_equal(facts, Severity::error, "the MPI library is not the same on all ranks",
                  "load the same MPI module on all hosts, and mpirun's own LD_LIBRARY_PATH",
                  [](const RankFacts& f) { return f.mpi; });
  findings.insert(findings.end(), library.begin(), library.end());
  return findings;
}

std::vector<Finding> judge_processors(std::span<const RankFacts> facts) {
  return judge_equal(facts, Severity::warning, "the hosts have different processors: all wait for the slowest",
                     "ask for hosts of one kind (Slurm: --constraint), or expect the pace of the slowest",
                     [](const RankFacts& f) { return f.processor.empty() ? "an unknown processor" : f.processor; });
}

std::vector<Finding> judge_devices(std::span<const RankFacts> facts) {
  return judge_equal(facts, Severity::warning, "the ranks compute on different devices: all wait for the slowest",
                     "ask for devices of one kind (Slurm: --gres=gpu:KIND:N)",
                     [](const RankFacts& f) { return f.device; });
}

std::vector<Finding> judge_environment(std::span<const RankFacts> facts) {
  std::set<std::string> names;
  for (const RankFacts& rank : facts) {
    for (const std::string& entry : rank.environment) names.insert(entry.substr(0, entry.find('=')));
  }
  std::vector<Finding> findings;
  for (const std::string& name : names) {
    const auto value_of = [&](const RankFacts& rank) -> std::string {
      for (const std::string& entry : rank.environment) {
        if (entry.starts_with(name + "=")) return quoted(entry.substr(name.size() + 1));
      }
      return "not set";
    };
    std::vector<Finding> found =
        judge_equal(facts, Severity::warning, fmt::format("{} differs between ranks", name),
                    fmt::format("set it alike: mpirun -x {}, or in the job script", name), value_of);
    for (Finding& finding : found) finding.hosts.clear();  // the launcher is the usual cause, not the host
    findings.insert(findings.end(), found.begin(), found.end());
  }
  return findings;
}

std::vector<Finding> judge_limits(std::span<const RankFacts> facts, const Wants& wants) {
  constexpr std::uint64_t registered = std::uint64_t{64} << 20;  // bytes that a large message needs at least
  const std::vector<HostGroup> hosts = hosts_of(facts);
  std::vector<int> few_files, little_space, little_locked;
  for (const RankFacts& rank : facts) {
    if (rank.open_files < wants.open_files) few_files.push_back(rank.rank);
    if (rank.address_space < rank.memory_wanted) little_space.push_back(rank.rank);
    const bool has_fabric =
        std::any_of(rank.fabric.begin(), rank.fabric.end(), [](const auto& port) { return port.state == "ACTIVE"; });
    if ((has_fabric || wants.gpus) && rank.locked_bytes < registered) little_locked.push_back(rank.rank);
  }
  std::vector<Finding> findings;
  if (!few_files.empty()) {
    findings.push_back({.severity = Severity::error,
                        .what = fmt::format("a rank needs {} open files and may have {}", wants.open_files,
                                            facts[few_files[0]].open_files),
                        .where = name_places(hosts, few_files),
                        .remedy = "raise the limit (ulimit -n) before mpirun, or pack the data into fewer shards"});
  }
  if (!little_space.empty()) {
    const RankFacts& first = facts[little_space[0]];
    findings.push_back({.severity = Severity::error,
                        .what = fmt::format("a rank wants {} of memory and may address {}",
                                            format_bytes(first.memory_wanted), format_bytes(first.address_space)),
                        .where = name_places(hosts, little_space),
                        .remedy = "raise the limit (ulimit -v unlimited) before mpirun"});
  }
  if (!facts.empty() && facts[0].file_size < wants.file_size) {
    findings.push_back({.severity = Severity::error,
                        .what = fmt::format("a checkpoint has {} and no file may have more than {}",
                                            format_bytes(wants.file_size), format_bytes(facts[0].file_size)),
                        .where = name_places(hosts, std::vector<int>{0}),
                        .remedy = "raise the limit (ulimit -f unlimited) before mpirun"});
  }
  if (!little_locked.empty()) {
    findings.push_back({.severity = Severity::warning,
                        .what = fmt::format("a rank may lock {} of memory, which {} needs for its buffers",
                                            format_bytes(facts[little_locked[0]].locked_bytes),
                                            wants.gpus ? "a GPU or the fabric" : "the fabric"),
                        .where = name_places(hosts, little_locked),
                        .remedy = "ulimit -l unlimited where the job starts (Slurm: PropagateResourceLimitsExcept)"});
  }
  return findings;
}

std::vector<Finding> judge_load(std::span<const RankFacts> facts) {
  std::vector<Finding> findings;
  for (const HostGroup& host : hosts_of(facts)) {
    const RankFacts& its = facts[host.ranks[0]];
    if (its.processors == 0 || its.load_percent <= 100 * its.processors) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .what = fmt::format("the machine is busy: in the last minute {:.1f} processes wanted to compute "
                             "at a time, and it has {}",
                             static_cast<double>(its.load_percent) / 100,
                             counted(static_cast<std::int64_t>(its.processors), "processor")),
         .where = host.name,
         .remedy = "look who computes there (top), wait, or take another machine: times that are measured "
                   "now say little, and a rank that waits for a processor makes all others wait",
         .hosts = {host.name},
         .busy = true});
  }
  return findings;
}

std::string describe_load(std::span<const RankFacts> facts) {
  const RankFacts* busiest = nullptr;
  const auto share = [](const RankFacts& f) {
    return static_cast<double>(f.load_percent) / static_cast<double>(std::max<std::uint64_t>(1, f.processors));
  };
  for (const RankFacts& f : facts) {
    if (busiest == nullptr || share(f) > share(*busiest)) busiest = &f;
  }
  if (busiest == nullptr || busiest->processors == 0) return "not known here";
  return fmt::format("{:.1f} on {}{}", static_cast<double>(busiest->load_percent) / 100,
                     counted(static_cast<std::int64_t>(busiest->processors), "processor"),
                     hosts_of(facts).size() > 1 ? fmt::format(" of {}, the busiest", busiest->host) : "");
}

std::string describe_products(std::span<const RankFacts> facts) {
  const auto gain = [](const RankFacts& f) {
    return static_cast<double>(f.bf16_rate) / static_cast<double>(std::max<std::uint64_t>(1, f.fp32_rate));
  };
  const RankFacts* slowest = nullptr;
  for (const RankFacts& f : facts) {
    if (slowest == nullptr || gain(f) < gain(*slowest)) slowest = &f;
  }
  if (slowest == nullptr || slowest->bf16_rate == 0) {
    return fmt::format("fp32; no instructions for bf16{}", hosts_of(facts).size() > 1 ? " on " + slowest->host : "");
  }
  return fmt::format("bf16 by {} at {} GFLOP/s a thread, fp32 at {}{}: {}", slowest->bf16_unit, slowest->bf16_rate,
                     slowest->fp32_rate,
                     hosts_of(facts).size() > 1 ? fmt::format(" on {}, which gains the least", slowest->host) : "",
                     gain(*slowest) >= model::kMinBf16Gain ? "--precision bf16 is faster" : "fp32 is as fast");
}

std::vector<Finding> judge_shared_memory(std::span<const RankFacts> facts, bool gpus) {
  const std::uint64_t each = (gpus ? std::uint64_t{32} : std::uint64_t{8}) << 20;
  std::vector<Finding> findings;
  for (const HostGroup& host : hosts_of(facts)) {
    const std::uint64_t free = facts[host.ranks[0]].shared_memory_free;
    const std::uint64_t wanted = each * host.ranks.size();
    if (host.ranks.size() < 2 || free >= wanted) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .what = fmt::format("/dev/shm has {} left, and MPI{} may take {} there", format_bytes(free),
                             gpus ? " and NCCL" : "", format_bytes(wanted)),
         .where = host.name,
         .remedy = "remove what dead jobs left there (ls -l /dev/shm); in a container give it more: --shm-size=1g"});
  }
  return findings;
}

}  // namespace lockstep::app
