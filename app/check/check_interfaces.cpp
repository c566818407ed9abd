/// Judgements about interfaces: the common network of the hosts, and interfaces that only seem to be one.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/check/check_network.hpp"

namespace lockstep::app {
namespace {

std::string variable(const RankFacts& facts, std::string_view name) {
  for (const std::string& entry : facts.environment) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
      return entry.substr(name.size() + 1);
    }
  }
  return "";
}

/// Non-loopback addresses that several hosts have.
std::set<std::string> repeated_addresses(std::span<const RankFacts> facts) {
  std::map<std::string, int> hosts_with;
  for (const RankFacts& host : facts) {
    std::set<std::string> own;
    for (const comm::InterfaceAddress& a : host.addresses) {
      if (!a.loopback) own.insert(a.address);
    }
    for (const std::string& address : own) ++hosts_with[address];
  }
  std::set<std::string> repeated;
  for (const auto& [address, count] : hosts_with) {
    if (count > 1) repeated.insert(address);
  }
  return repeated;
}

/// True if every host has an address that no other host has.
bool have_own_addresses(std::span<const RankFacts> facts) {
  const std::set<std::string> repeated = repeated_addresses(facts);
  return std::all_of(facts.begin(), facts.end(), [&](const RankFacts& host) {
    return std::any_of(host.addresses.begin(), host.addresses.end(),
                       [&](const auto& a) { return !a.loopback && !repeated.contains(a.address); });
  });
}

/// Returns the most frequent of `values`; among equally frequent ones, the greatest.
template <class T>
T usual(const std::vector<T>& values) {
  std::map<T, std::size_t> counts;
  for (const T& value : values) ++counts[value];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second <= b.second; })
      ->first;
}

std::string include_advice(std::span<const CommonSubnet> subnets) {
  if (subnets.empty()) {
    return "tell MPI which interface joins the hosts: mpirun --mca btl_tcp_if_include NAME --mca oob_tcp_if_include "
           "NAME, export NCCL_SOCKET_IFNAME=NAME";
  }
  return fmt::format(
      "mpirun --mca btl_tcp_if_include {0} --mca oob_tcp_if_include {0}; for NCCL: export NCCL_SOCKET_IFNAME={1}",
      subnets[0].subnet, fmt::join(subnets[0].interfaces, ","));
}

std::vector<Finding> judge_include(std::span<const RankFacts> facts, std::span<const std::string> hosts,
                                   std::span<const CommonSubnet> subnets) {
  std::vector<std::string> without;
  std::string list;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    const std::string own = variable(facts[host], "OMPI_MCA_btl_tcp_if_include");
    if (own.empty()) continue;
    list = own;
    const auto& addresses = facts[host].addresses;
    const bool found = std::any_of(addresses.begin(), addresses.end(),
                                   [&](const comm::InterfaceAddress& a) { return comm::is_in_list(a, own); });
    if (!found) without.push_back(hosts[host]);
  }
  if (without.empty()) return {};
  std::vector<std::string> there;
  for (const CommonSubnet& subnet : subnets) {
    there.push_back(fmt::format("{} ({})", subnet.subnet, fmt::join(subnet.interfaces, ",")));
  }
  return {{.severity = Severity::error,
           .what = fmt::format("btl_tcp_if_include {} names nothing that is there", list),
           .where = list_some(without),
           .remedy = there.empty() ? "name an interface or subnet that these hosts have (ip -br address)"
                                   : fmt::format("all hosts have {}", list_some(there)),
           .hosts = without}};
}

std::vector<Finding> judge_repeated(std::span<const RankFacts> facts, std::span<const std::string> hosts,
                                    std::span<const CommonSubnet> subnets) {
  const std::set<std::string> repeated = repeated_addresses(facts);
  std::set<std::string> what, where;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    const std::string include = variable(facts[host], "OMPI_MCA_btl_tcp_if_include");
    const std::string exclude = variable(facts[host], "OMPI_MCA_btl_tcp_if_exclude");
    for (const comm::InterfaceAddress& a : facts[host].addresses) {
      if (!repeated.contains(a.address)) continue;
      const bool taken = include.empty() ? !comm::is_in_list(a, exclude) : comm::is_in_list(a, include);
      if (!taken) continue;
      what.insert(fmt::format("{} {}", a.interface, a.address));
      where.insert(hosts[host]);
    }
  }
  if (what.empty()) return {};
  const std::vector<std::string> names(what.begin(), what.end()), places(where.begin(), where.end());
  return {{.severity = Severity::warning,
           .what = fmt::format("several hosts have the address {}: MPI may take it for a way between them, and hang",
                               list_some(names)),
           .where = list_some(places),
           .remedy = include_advice(subnets)}};
}

/// Adds a finding if addresses of one subnet differ in a property.
template <class T, class Property>
std::vector<Finding> judge_alike(std::span<const RankFacts> facts, std::span<const std::string> hosts,
                                 const CommonSubnet& subnet, const std::string& property, const std::string& remedy,
                                 Property of) {
  std::vector<T> values;
  for (const RankFacts& host : facts) {
    for (const comm::InterfaceAddress& a : host.addresses) {
      if (a.subnet() == subnet.subnet) values.push_back(of(a));
    }
  }
  const T common = usual(values);
  std::vector<std::string> others, names;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    for (const comm::InterfaceAddress& a : facts[host].addresses) {
      if (a.subnet() != subnet.subnet || of(a) == 0 || of(a) == common) continue;
      others.push_back(fmt::format("{} of {} has {}", a.interface, hosts[host], of(a)));
      if (of(a) < common) names.push_back(hosts[host]);
    }
  }
  if (others.empty() || common == 0) return {};
  return {{.severity = Severity::warning,
           .what = fmt::format("the interfaces in {} differ in {}: most have {}", subnet.subnet, property, common),
           .where = list_some(others),
           .remedy = remedy,
           .hosts = names}};
}

}  // namespace

std::vector<CommonSubnet> common_subnets(std::span<const RankFacts> facts) {
  const std::set<std::string> repeated = repeated_addresses(facts);
  struct Members {
    CommonSubnet subnet;
    std::set<std::size_t> hosts;
    bool is_4 = true;
  };
  std::map<std::string, Members> subnets;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    for (const comm::InterfaceAddress& a : facts[host].addresses) {
      const std::string name = a.subnet();
      if (a.loopback || name.empty() || repeated.contains(a.address)) continue;
      Members& members = subnets[name];
      CommonSubnet& subnet = members.subnet;
      if (members.hosts.empty()) {
        subnet = {.subnet = name, .interfaces = {}, .megabits = a.megabits, .mtu = a.mtu};
        members.is_4 = a.address.find(':') == std::string::npos;
      }
      members.hosts.insert(host);
      if (std::find(subnet.interfaces.begin(), subnet.interfaces.end(), a.interface) == subnet.interfaces.end()) {
        subnet.interfaces.push_back(a.interface);
      }
      subnet.megabits = std::min(subnet.megabits, a.megabits);
      subnet.mtu = std::min(subnet.mtu, a.mtu);
    }
  }
  std::vector<Members> common;
  for (auto& [name, members] : subnets) {
    if (members.hosts.size() == facts.size()) common.push_back(std::move(members));
  }
  std::stable_sort(common.begin(), common.end(), [](const Members& a, const Members& b) {
    return std::tuple(b.is_4, b.subnet.megabits) < std::tuple(a.is_4, a.subnet.megabits);
  });
  std::vector<CommonSubnet> result;
  for (Members& members : common) result.push_back(std::move(members.subnet));
  return result;
}

std::vector<Finding> judge_interfaces(std::span<const RankFacts> facts, std::span<const std::string> hosts) {
  if (facts.size() < 2) return {};
  const std::vector<CommonSubnet> subnets = common_subnets(facts);
  std::vector<Finding> findings = judge_include(facts, hosts, subnets);
  const auto add = [&](std::vector<Finding> more) { findings.insert(findings.end(), more.begin(), more.end()); };

  std::vector<std::string> alone;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    const auto& addresses = facts[host].addresses;
    if (std::all_of(addresses.begin(), addresses.end(), [](const auto& a) { return a.loopback; })) {
      alone.push_back(hosts[host]);
    }
  }
  if (!alone.empty()) {
    add({{.severity = Severity::error,
          .what = "no network interface has an address but loopback",
          .where = list_some(alone),
          .remedy = "bring one up (ip -br address), or leave the host out; a container needs --network host",
          .hosts = alone}});
  } else if (subnets.empty() && have_own_addresses(facts)) {
    std::vector<std::string> some;
    for (std::size_t host = 0; host < facts.size(); ++host) {
      const auto& addresses = facts[host].addresses;
      const auto first = std::find_if(addresses.begin(), addresses.end(), [](const auto& a) { return !a.loopback; });
      some.push_back(fmt::format("{} in {}", hosts[host], first->subnet()));
    }
    add({{.severity = Severity::warning,
          .what = "no subnet has an address of its own on every host: messages are routed",
          .where = list_some(some),
          .remedy = "a job is fastest, and MPI surest, within one network; if there is one, its interface is down on "
                    "some host (ip -br address)"}});
  }
  add(judge_repeated(facts, hosts, subnets));
  for (const CommonSubnet& subnet : subnets) {
    add(judge_alike<int>(facts, hosts, subnet, "their largest packet (MTU)",
                         "set one MTU on all hosts (ip link set NAME mtu N): large messages may be lost without a word",
                         [](const comm::InterfaceAddress& a) { return a.mtu; }));
    add(judge_alike<std::int64_t>(facts, hosts, subnet, "speed, in Mbit/s",
                                  "look at cable and switch port (ethtool NAME), or leave the slow ones out",
                                  [](const comm::InterfaceAddress& a) { return a.megabits; }));
  }
  return findings;
}

std::vector<Finding> judge_fabric(std::span<const RankFacts> facts, std::span<const std::string> hosts) {
  if (facts.size() < 2) return {};
  const auto active = [](const RankFacts& host) {
    std::vector<std::string> rates;
    for (const comm::FabricPort& port : host.fabric) {
      if (port.state == "ACTIVE") rates.push_back(port.rate);
    }
    std::sort(rates.begin(), rates.end());
    return fmt::format("{}", fmt::join(rates, ", "));
  };
  std::vector<std::string> all;
  for (const RankFacts& host : facts) all.push_back(active(host));
  const std::string common = usual(all);
  std::vector<std::string> others, names;
  for (std::size_t host = 0; host < facts.size(); ++host) {
    if (all[host] == common) continue;
    others.push_back(fmt::format("{} has {}", hosts[host], all[host].empty() ? "none" : all[host]));
    names.push_back(hosts[host]);
  }
  if (others.empty()) return {};
  return {{.severity = Severity::warning,
           .what = fmt::format("the hosts differ in their active InfiniBand ports: most have {}",
                               common.empty() ? "none" : common),
           .where = list_some(others),
           .remedy = "look at the ports (ibstat); a host without one talks over the slow network, or not at all",
           .hosts = names}};
}

}  // namespace lockstep::app
