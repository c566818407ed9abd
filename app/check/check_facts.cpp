#include "app/check/check_facts.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/place/control_group.hpp"
#include "app/plan/host_memory.hpp"
#include "app/report/machine.hpp"
#include "comm/host/memory_limit.hpp"
#include "comm/messages.hpp"
#include "comm/session/launcher.hpp"
#include "comm/session/peers.hpp"
#include "io/files/checksum.hpp"
#include "io/files/durable_file.hpp"
#include "model/bf16_unit.hpp"

namespace lockstep::app {
namespace {

std::uint64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return limit.rlim_cur;
}

std::vector<std::string> watched_environment() {
  std::vector<std::string> watched;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (is_watched_variable(text.substr(0, text.find('=')))) watched.emplace_back(text);
  }
  std::sort(watched.begin(), watched.end());
  return watched;
}

std::uint64_t gigaflops(double rate) { return static_cast<std::uint64_t>(rate / 1e9); }

std::string digest(const std::string& text) { return io::to_hex(io::checksum(std::as_bytes(std::span(text)))); }

// Facts as text have one line "KEY VALUE" each; a list repeats its key for each element. Values contain no line breaks:
// values that might are escaped.

std::string to_value(const std::string& text) {
  std::string result;
  for (const char c : text) result += c == '\\' ? "\\\\" : c == '\n' ? "\\n" : std::string(1, c);
  return result;
}
std::string to_value(const comm::InterfaceAddress& a) {
  return fmt::format("{} {} {} {:d} {:d} {} {}", a.interface, a.address, a.prefix, a.loopback, a.is_virtual, a.megabits,
                     a.mtu);
}
std::string to_value(const comm::FabricPort& p) { return fmt::format("{}|{}|{}", p.name, p.state, p.rate); }
std::string to_value(std::integral auto number) { return fmt::format("{}", number); }

void from_value(const std::string& text, std::string& value) {
  value.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    value += !escape ? text[i] : text[++i] == 'n' ? '\n' : text[i];
  }
}
void from_value(const std::string& text, comm::InterfaceAddress& a) {
  std::istringstream words(text);
  words >> a.interface >> a.address >> a.prefix >> a.loopback >> a.is_virtual >> a.megabits >> a.mtu;
}
void from_value(const std::string& text, comm::FabricPort& p) {
  std::istringstream parts(text);
  std::getline(parts, p.name, '|');
  std::getline(parts, p.state, '|');
  std::getline(parts, p.rate);
}
void from_value(const std::string& text, bool& value) { value = text == "true" || text == "1"; }
void from_value(const std::string& text, std::integral auto& number) {
  std::from_chars(text.data(), text.data() + text.size(), number);
}

struct Writer {
  std::string text;

  template <class T>
  void operator()(const char* key, const T& value) {
    text += fmt::format("{} {}\n", key, to_value(value));
  }
  template <class T>
  void operator()(const char* key, const std::vector<T>& list) {
    for (const T& value : list) (*this)(key, value);
  }
};

struct Reader {
  explicit Reader(const std::string& text) {
    std::istringstream lines(text);
    for (std::string key, value; lines >> key && lines.get() && std::getline(lines, value);)
      values[key].push_back(value);
  }
  template <class T>
  void operator()(const char* key, T& value) {
    if (values.contains(key)) from_value(values[key].front(), value);
  }
  template <class T>
  void operator()(const char* key, std::vector<T>& list) {
    for (const std::string& value : values[key]) from_value(value, list.emplace_back());
  }

  std::map<std::string, std::vector<std::string>> values;
};

/// Visits every fact with its key, for writing and for reading.
template <class Visitor, class Facts>
void visit(Visitor& visitor, Facts& f) {
  visitor("rank", f.rank);
  visitor("host", f.host);
  visitor("machine", f.machine);
  visitor("program", f.program);
  visitor("mpi", f.mpi);
  visitor("processor", f.processor);
  visitor("device", f.device);
  visitor("environment", f.environment);
  visitor("address", f.addresses);
  visitor("fabric", f.fabric);
  visitor("open_files", f.open_files);
  visitor("locked_bytes", f.locked_bytes);
  visitor("address_space", f.address_space);
  visitor("file_size", f.file_size);
  visitor("memory_total", f.memory_total);
  visitor("memory_available", f.memory_available);
  visitor("group", f.group);
  visitor("group_limit", f.group_limit);
  visitor("group_free", f.group_free);
  visitor("fp32_rate", f.fp32_rate);
  visitor("bf16_rate", f.bf16_rate);
  visitor("bf16_unit", f.bf16_unit);
  visitor("shared_memory_free", f.shared_memory_free);
  visitor("memory_wanted", f.memory_wanted);
  visitor("processors", f.processors);
  visitor("load_percent", f.load_percent);
  visitor("data.opened", f.data.opened);
  visitor("data.error", f.data.error);
  visitor("data.misfit", f.data.misfit);
  visitor("data.fingerprint", f.data.fingerprint);
  visitor("data.files", f.data.files);
  visitor("data.bytes", f.data.bytes);
  visitor("data.sizes", f.data.sizes);
  visitor("data.times", f.data.times);
  visitor("data.verified", f.data.verified);
  visitor("data.samples_read", f.data.samples_read);
  visitor("data.samples_due", f.data.samples_due);
  visitor("data.twins", f.data.twins);
  visitor("data.leak", f.data.leak);
  visitor("data.refused", f.data.refused);
  visitor("data.damage", f.data.damage);
}

}  // namespace

bool is_watched_variable(std::string_view name) {
  // Skips variables that the launcher sets for each process.
  for (const std::string_view own : {"OMPI_MCA_orte_", "OMPI_MCA_ess", "OMPI_MCA_pmix", "OMPI_MCA_initial_wdir",
                                     "OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_MCA_mpi_oversubscribe"}) {
    if (name.starts_with(own)) return false;
  }
  for (const std::string_view prefix : {"OMPI_MCA_", "NCCL_", "UCX_", "FI_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_",
                                        "HDF5_", "MALLOC_", "DNNL_", "ONEDNN_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "LD_LIBRARY_PATH" || name == "LD_PRELOAD" || name == "GLIBC_TUNABLES" || name == "CUDA_MODULE_LOADING";
}

RankFacts own_facts(int rank, const std::string& program) {
  const comm::PeerInfo info = comm::own_info();
  const std::string meminfo = comm::read_meminfo();
  RankFacts facts;
  facts.rank = rank;
  facts.host = info.host.data();
  facts.machine = info.machine;
  facts.program = program;
  facts.mpi = comm::mpi_library_version();
  facts.processor = own_processor().model;
  const model::Bf16Facts rates = model::measure_bf16();
  const bool takes_amx = rates.amx > rates.avx512;
  facts.fp32_rate = gigaflops(rates.fp32);
  facts.bf16_rate = gigaflops(std::max(rates.amx, rates.avx512));
  if (facts.bf16_rate > 0) facts.bf16_unit = describe(takes_amx ? model::Bf16Unit::amx : model::Bf16Unit::avx512);
  facts.environment = watched_environment();
  facts.addresses = comm::interface_addresses();
  facts.fabric = comm::fabric_ports();
  facts.open_files = limit_of(RLIMIT_NOFILE);
  facts.locked_bytes = limit_of(RLIMIT_MEMLOCK);
  facts.address_space = limit_of(RLIMIT_AS);
  facts.file_size = limit_of(RLIMIT_FSIZE);
  facts.memory_total = meminfo_bytes(meminfo, "MemTotal", 0);
  facts.memory_available = meminfo_bytes(meminfo, "MemAvailable", 0);
  if (const auto group = tightest_memory_group()) {
    facts.group = group->name;
    facts.group_limit = group->limit;
    facts.group_free = group->free();
  }
  facts.processors = static_cast<std::uint64_t>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  facts.load_percent = static_cast<std::uint64_t>(100 * load_average().value_or(0));
  facts.shared_memory_free = io::free_bytes("/dev/shm").value_or(kNoLimit);
  return facts;
}

void add_files(DataFacts& facts, std::span<const io::Dataset* const> datasets) {
  std::string fingerprint, sizes, times;
  for (const io::Dataset* dataset : datasets) {
    if (dataset == nullptr) continue;
    fingerprint += dataset->fingerprint();
    for (const io::ShardInfo& shard : dataset->shards()) {
      ++facts.files;
      facts.bytes += shard.bytes;
      struct stat status {};
      if (::stat(shard.file.c_str(), &status) != 0) status = {};
      sizes += fmt::format("{} {}\n", shard.file.filename().string(), shard.bytes);
      times += fmt::format("{}.{:09}\n", status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
    }
  }
  facts.opened = true;
  facts.fingerprint = digest(fingerprint);
  facts.sizes = digest(sizes);
  facts.times = digest(times);
}

std::string to_text(const RankFacts& facts) {
  Writer writer;
  visit(writer, facts);
  return writer.text;
}

RankFacts facts_from(const std::string& text) {
  RankFacts facts;
  Reader reader(text);
  visit(reader, facts);
  return facts;
}

std::vector<RankFacts> gather_facts(comm::Communicator& communicator, const RankFacts& mine) {
  std::vector<RankFacts> all;
  for (const std::string& text : comm::all_gather_text(communicator, to_text(mine))) {
    RankFacts& facts = all.emplace_back(facts_from(text));
    facts.rank = static_cast<int>(all.size()) - 1;
  }
  return all;
}

std::vector<HostGroup> hosts_of(std::span<const RankFacts> facts) {
  struct Machine {
    std::string host;
    std::uint64_t number;
  };
  std::vector<HostGroup> groups;
  std::vector<Machine> machines;
  for (const RankFacts& rank : facts) {
    const auto known = std::find_if(machines.begin(), machines.end(),
                                    [&](const Machine& m) { return m.host == rank.host && m.number == rank.machine; });
    const auto index = static_cast<std::size_t>(known - machines.begin());
    if (known == machines.end()) {
      machines.push_back({rank.host, rank.machine});
      groups.push_back({.name = rank.host, .ranks = {}});
    }
    groups[index].ranks.push_back(rank.rank);
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto namesakes =
        std::count_if(machines.begin(), machines.end(), [&](const Machine& m) { return m.host == machines[i].host; });
    if (namesakes > 1) groups[i].name += fmt::format(" (of rank {})", groups[i].ranks[0]);
  }
  return groups;
}

}  // namespace lockstep::app
