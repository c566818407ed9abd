#include "app/plan/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <unistd.h>

#include "app/place/control_group.hpp"
#include "app/report/figures.hpp"
#include "comm/consensus.hpp"
#include "comm/host/memory_limit.hpp"
#include "comm/messages.hpp"
#include "comm/survey/topology.hpp"
#include "io/datasets/prefetcher.hpp"

namespace lockstep::app {
namespace {

std::uint64_t batch_bytes(const io::Dataset& dataset, std::int64_t batch) {
  return static_cast<std::uint64_t>(std::min(batch, dataset.info().samples)) * (dataset.x_bytes() + dataset.y_bytes());
}

/// Returns the memory for masks, in bytes: labels and weights of positions in the network's format, and the scores of
/// the classes if answers are counted.
std::uint64_t mask_bytes(const io::Dataset& dataset, std::int64_t batch, bool counts_answers) {
  const io::DatasetInfo& info = dataset.info();
  if (!info.has_masks()) return 0;
  const std::int64_t numbers = 2 + (counts_answers ? info.classes : 0);
  return static_cast<std::uint64_t>(std::min(batch, info.samples) * info.y.elements() * numbers) * sizeof(float);
}

HostMemoryPlan on_host(const Place& place, const model::MemoryPlan& plan) {
  HostMemoryPlan memory;
  if (place.gpu) {
    memory.program = std::uint64_t{1} << 30;  // includes CUDA's libraries and context
  } else {
    memory.arenas = plan.total();
  }
  return memory;
}

std::uint64_t free_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return MemoryView::kUnknown;
  std::uint64_t pages = 0;
  if (!(std::ifstream("/proc/self/statm") >> pages)) return MemoryView::kUnknown;
  const std::uint64_t used = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return used < limit.rlim_cur ? limit.rlim_cur - used : 0;
}

std::string bytes_text(std::uint64_t bytes) { return format_bytes(bytes); }

/// Ranks that share the same memory.
struct Takers {
  std::vector<const MemoryView*> ranks;
  std::uint64_t free = MemoryView::kUnknown;

  void add(const MemoryView& rank, std::uint64_t sees) {
    ranks.push_back(&rank);
    free = std::min(free, sees);
  }
  std::uint64_t wanted() const {
    std::uint64_t sum = 0;
    for (const MemoryView* rank : ranks) sum += rank->wanted.total();
    return sum;
  }
  bool lack() const { return wanted() > free; }
};

constexpr const char* kRemedy = "take a smaller network, --batch or --evaluation-batch, or fewer ranks per host";

std::string complaint(const Takers& takers, const std::string& has) {
  const auto most = std::max_element(takers.ranks.begin(), takers.ranks.end(), [](const auto* a, const auto* b) {
    return a->wanted.total() < b->wanted.total();
  });
  const std::string who = takers.ranks.size() == 1
                              ? "one rank wants"
                              : fmt::format("the {} ranks on {} want", takers.ranks.size(), (*most)->host);
  return fmt::format("{} {} of memory, {}: {} ({}{})", who, bytes_text(takers.wanted()), has, kRemedy,
                     takers.ranks.size() == 1 ? "" : "one of them: ", describe((*most)->wanted));
}

/// Returns the text form for the other ranks, without the host.
std::string to_text(const MemoryView& view) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", view.wanted.arenas, view.wanted.snapshot, view.wanted.input,
                     view.wanted.page_tables, view.wanted.program, view.host_free, view.host_bytes, view.group_free,
                     view.group_limit, view.address_space, view.group);
}
MemoryView view_from_text(const std::string& text, std::string host) {
  MemoryView view{.host = std::move(host), .wanted = {}, .group = {}};
  std::istringstream words(text);
  words >> view.wanted.arenas >> view.wanted.snapshot >> view.wanted.input >> view.wanted.page_tables >>
      view.wanted.program >> view.host_free >> view.host_bytes >> view.group_free >> view.group_limit >>
      view.address_space >> std::ws;
  std::getline(words, view.group);
  return view;
}

}  // namespace

std::string describe(const HostMemoryPlan& memory) {
  std::vector<std::string> parts;
  const auto add = [&](std::uint64_t bytes, const char* what) {
    if (bytes > 0) parts.push_back(fmt::format("{} for {}", bytes_text(bytes), what));
  };
  add(memory.arenas, "the network");
  add(memory.snapshot, "checkpoints");
  add(memory.input, "input");
  add(memory.page_tables, "page tables");
  add(memory.program, "the program itself");
  return fmt::format("{}", fmt::join(parts, ", "));
}

HostMemoryPlan training_memory(const Place& place, const model::MemoryPlan& plan, const Workload& workload, int rank,
                               int sharing) {
  HostMemoryPlan memory = on_host(place, plan);
  if (!place.gpu) memory.page_tables = page_table_bytes(static_cast<std::uint64_t>(sharing) * plan.gradients);
  if (rank == 0) memory.snapshot = plan.snapshot;
  if (workload.training) {
    memory.input = static_cast<std::uint64_t>(io::PrefetcherOptions{}.depth) *
                       batch_bytes(*workload.training, workload.work.largest_part) +
                   workload.training->cache_bytes() + mask_bytes(*workload.training, workload.work.largest_part, false);
  }
  if (workload.validation) {
    memory.input += batch_bytes(*workload.validation, workload.model.max_batch) + workload.validation->cache_bytes() +
                    mask_bytes(*workload.validation, workload.model.max_batch, true);
  }
  return memory;
}

HostMemoryPlan evaluation_memory(const Place& place, const model::MemoryPlan& plan, const io::Dataset& dataset,
                                 std::int64_t batch) {
  HostMemoryPlan memory = on_host(place, plan);
  memory.input = batch_bytes(dataset, batch) + dataset.cache_bytes() + mask_bytes(dataset, batch, true);
  return memory;
}

std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& name, std::uint64_t otherwise) {
  const std::size_t at = meminfo.find(name + ":");
  std::uint64_t kilobytes = 0;
  if (at == std::string::npos || !(std::istringstream(meminfo.substr(at + name.size() + 1)) >> kilobytes)) {
    return otherwise;
  }
  return kilobytes * 1024;
}

MemoryView look_at_memory(const HostMemoryPlan& wanted) {
  MemoryView view{.host = {}, .wanted = wanted, .group = {}};
  const std::string meminfo = comm::read_meminfo();
  view.host_bytes = meminfo_bytes(meminfo, "MemTotal", MemoryView::kUnknown);
  view.host_free = meminfo_bytes(meminfo, "MemAvailable", MemoryView::kUnknown);
  if (view.host_free != MemoryView::kUnknown) view.host_free += meminfo_bytes(meminfo, "SwapFree", 0);
  if (const auto group = tightest_memory_group()) {
    view.group = group->name;
    view.group_free = group->free();
    view.group_limit = group->limit;
  }
  view.address_space = free_address_space();
  return view;
}

std::string host_memory_complaint(std::span<const MemoryView> ranks) {
  std::map<std::string, Takers> hosts, groups;
  for (const MemoryView& rank : ranks) {
    hosts[rank.host].add(rank, rank.host_free);
    if (!rank.group.empty()) groups[rank.host + " " + rank.group].add(rank, rank.group_free);
  }
  // Reports the narrowest limit that is exceeded: that of one process, then of a control group, then of a host.
  for (const MemoryView& rank : ranks) {
    Takers alone;
    alone.add(rank, rank.address_space);
    if (!alone.lack()) continue;
    return complaint(alone, fmt::format("and may address no more than {} (raise `ulimit -v`)", bytes_text(alone.free)));
  }
  for (const auto& [name, takers] : groups) {
    if (!takers.lack()) continue;
    const MemoryView& one = *takers.ranks.front();
    return complaint(takers, fmt::format("and the control group {} on {} has {} free of {} (Slurm: --mem)", one.group,
                                         one.host, bytes_text(takers.free), bytes_text(one.group_limit)));
  }
  for (const auto& [host, takers] : hosts) {
    if (!takers.lack()) continue;
    return complaint(takers, fmt::format("and the host has {} free of {}", bytes_text(takers.free),
                                         bytes_text(takers.ranks.front()->host_bytes)));
  }
  return "";
}

void require_host_memory(comm::Communicator& communicator, const HostMemoryPlan& wanted) {
  const std::vector<comm::RankPlace> places = comm::gather_topology(communicator, "");
  const std::vector<std::string> texts = comm::all_gather_text(communicator, to_text(look_at_memory(wanted)));
  std::vector<MemoryView> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    ranks.push_back(view_from_text(texts[rank], places[rank].host));
  }
  const std::string complaint = host_memory_complaint(ranks);
  if (!complaint.empty()) throw comm::ConsensusError(fmt::format("out of memory before the start: {}", complaint));
}

}  // namespace lockstep::app
