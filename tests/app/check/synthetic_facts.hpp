/// \file
/// Synthetic facts for the judgements of `lockstep check`.
#pragma once

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/check/check_facts.hpp"
#include "app/check/check_report.hpp"

namespace lockstep::app {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

inline comm::InterfaceAddress interface_at(std::string name, std::string address, int prefix = 24) {
  comm::InterfaceAddress a;
  a.interface = std::move(name);
  a.address = std::move(address);
  a.prefix = prefix;
  a.mtu = 1500;
  a.megabits = 10000;
  return a;
}

inline comm::InterfaceAddress loopback() {
  comm::InterfaceAddress a = interface_at("lo", "127.0.0.1", 8);
  a.loopback = true;
  a.mtu = 65536;
  a.megabits = 0;
  return a;
}

/// A healthy cluster: hosts node0, node1 …, each with so many ranks.
inline std::vector<RankFacts> healthy(int hosts, int ranks_per_host = 1) {
  std::vector<RankFacts> facts;
  for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
    const int host = rank / ranks_per_host;
    RankFacts& f = facts.emplace_back();
    f.rank = rank;
    f.host = "node" + std::to_string(host);
    f.machine = 100 + static_cast<std::uint64_t>(host);
    f.program = "lockstep 1.0 abc";
    f.mpi = "Open MPI v4.1.4";
    f.processor = "A Processor";
    f.device = "cpu (1 thread)";
    f.environment = {"OMP_NUM_THREADS=1"};
    f.addresses = {loopback(), interface_at("eth0", "10.0.0." + std::to_string(host + 1))};
    f.open_files = 1024;
    f.memory_total = 16 * kGiB;
    f.memory_available = 12 * kGiB;
    f.memory_wanted = kGiB;
    f.shared_memory_free = kGiB;
    f.data.opened = true;
    f.data.fingerprint = "0123456789abcdef";
    f.data.files = 3;
    f.data.bytes = 1000;
    f.data.sizes = "sizes";
    f.data.times = "times";
  }
  return facts;
}

inline std::vector<std::string> names_of(const std::vector<RankFacts>& facts) {
  std::vector<std::string> names;
  for (const HostGroup& host : hosts_of(facts)) names.push_back(host.name);
  return names;
}

inline auto what(const testing::Matcher<const std::string&>& m) { return testing::Field("what", &Finding::what, m); }
inline auto where(const testing::Matcher<const std::string&>& m) { return testing::Field("where", &Finding::where, m); }
inline auto remedy(const testing::Matcher<const std::string&>& m) {
  return testing::Field("remedy", &Finding::remedy, m);
}
inline auto blames(const std::vector<std::string>& hosts) { return testing::Field("hosts", &Finding::hosts, hosts); }
inline auto error() { return testing::Field("severity", &Finding::severity, Severity::error); }
inline auto warning() { return testing::Field("severity", &Finding::severity, Severity::warning); }

}  // namespace lockstep::app
