/// Implements decide_places() as a pure function of the views of all ranks.
#include <algorithm>
#include <functional>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/options/choices.hpp"
#include "app/place/placement.hpp"
#include "comm/consensus.hpp"
#include "comm/survey/topology.hpp"

namespace lockstep::app {
namespace {

using Views = std::vector<RankView>;
using Ranks = std::vector<int>;

const RankView& view_of(const Views& views, int rank) { return views[rank]; }

bool has_gpu(const RankView& view) { return !view.survey.devices.empty(); }

/// Returns "node1", "node1 and node2" or "node1, node2, node3 and 5 more".
std::string hosts_of(const Views& views, const Ranks& ranks) {
  std::vector<std::string> hosts;
  for (const int rank : ranks) {
    const std::string& host = view_of(views, rank).host;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  constexpr std::size_t kMaxNamed = 3;
  const std::size_t all = hosts.size();
  if (all > kMaxNamed) hosts.resize(kMaxNamed);
  const std::string last = all > kMaxNamed ? fmt::format("{} more", all - kMaxNamed) : hosts.back();
  if (all <= kMaxNamed) hosts.pop_back();
  return hosts.empty() ? last : fmt::format("{} and {}", fmt::join(hosts, ", "), last);
}

/// Returns "ranks 4-7 on node2"; only the host in a world of one.
std::string who(const Views& views, const Ranks& ranks) {
  const std::string hosts = hosts_of(views, ranks);
  return views.size() == 1 ? hosts : fmt::format("{} on {}", comm::name_ranks(ranks), hosts);
}

Ranks ranks_where(const Views& views, const std::function<bool(const RankView&)>& holds) {
  Ranks ranks;
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    if (holds(views[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// Groups ranks by `value`, in the order of the ranks. Omits ranks whose value is "".
std::vector<std::pair<std::string, Ranks>> grouped(const Views& views,
                                                   const std::function<std::string(const RankView&)>& value) {
  std::vector<std::pair<std::string, Ranks>> groups;
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    const std::string own = value(views[rank]);
    if (own.empty()) continue;
    const auto known =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == own; });
    (known == groups.end() ? groups.emplace_back(own, Ranks{}) : *known).second.push_back(static_cast<int>(rank));
  }
  return groups;
}

/// Groups the ranks without a GPU by obstacle, in the order of the ranks.
std::vector<std::pair<std::string, Ranks>> obstacles(const Views& views) {
  return grouped(views, [](const RankView& view) -> std::string {
    if (has_gpu(view)) return "";
    return view.survey.obstacle.empty() ? "no reason is known" : view.survey.obstacle;
  });
}

/// Returns an error for --precision tf32, which only GPUs have; otherwise "". `because`: the reason why there is no
/// GPU. The advice names an option to give, not one to omit: tf32 may come from the configuration of a resumed run.
std::string refused_on_cpu(const ExecutionOptions& options, const std::string& because) {
  if (options.precision == model::Precision::tf32) {
    return fmt::format(
        "--precision tf32 needs a GPU, and {}: CPUs compute in fp32, which --precision auto takes where there is no "
        "GPU, or in bf16",
        because);
  }
  return "";
}

/// Returns the bf16 unit that all CPUs use. Throws UsageError if a CPU has none, or if the units differ.
model::Bf16Unit choose_bf16_unit(const Views& views, const ExecutionOptions& options) {
  const auto sentence = [&](const std::vector<std::pair<std::string, Ranks>>& groups, std::string_view verb) {
    std::vector<std::string> parts;
    for (const auto& [value, ranks] : groups) {
      const bool alone = groups.size() == 1 && ranks.size() == views.size();
      parts.push_back(alone ? value : fmt::format("{}{}{}", who(views, ranks), verb, value));
    }
    return fmt::format("{}", fmt::join(parts, "; "));
  };
  const auto obstacles = grouped(
      views, [](const RankView& view) { return view.bf16.unit == model::Bf16Unit::none ? view.bf16.obstacle : ""; });
  if (!obstacles.empty()) {
    throw UsageError(fmt::format(
        "--precision bf16{}: {}; give --precision fp32, or --bf16-unit emulated-avx512 or emulated-amx for the bits of "
        "bf16, slowly",
        options.bf16_unit ? fmt::format(" --bf16-unit {}", model::name_of(*options.bf16_unit)) : "",
        sentence(obstacles, ": ")));
  }
  const auto units = grouped(views, [](const RankView& view) { return std::string(model::describe(view.bf16.unit)); });
  if (units.size() > 1) {
    throw UsageError(
        fmt::format("--precision bf16: CPUs differ, and so would their bits: {}; name one that all have "
                    "(--bf16-unit avx512), or leave hosts out",
                    sentence(units, " by ")));
  }
  return views.front().bf16.unit;
}

/// Returns CPU places for all ranks. `why`: the reason why they have no GPUs; "": the user chose CPUs.
std::vector<Place> cpus(const Views& views, const ExecutionOptions& options, const std::string& why) {
  Place place;
  if (options.precision == model::Precision::bf16) {
    place.precision = model::Precision::bf16;
    place.bf16_unit = choose_bf16_unit(views, options);
    place.note = fmt::format("precision: bf16 by {}", model::describe(place.bf16_unit));
    if (!options.bf16_unit) {
      const auto slowest = std::min_element(
          views.begin(), views.end(), [](const RankView& a, const RankView& b) { return a.bf16.gain < b.bf16.gain; });
      place.note += fmt::format(", measured: {:.1f} times as fast as fp32", slowest->bf16.gain);
    }
  }
  if (!why.empty()) {
    place.note = place.note.empty() ? fmt::format("device: cpu ({})", why)
                                    : fmt::format("device: cpu ({}); {}", why, place.note);
  }
  return std::vector<Place>(views.size(), place);
}

std::vector<Place> on_cpus(const Views& views, const ExecutionOptions& options) {
  if (options.device == DeviceChoice::cpu) {
    const std::string refused = refused_on_cpu(options, "--device cpu takes none");
    if (!refused.empty()) throw UsageError(refused);
    return cpus(views, options, "");
  }
  std::vector<std::string> reasons;
  const auto groups = obstacles(views);
  for (const auto& [obstacle, ranks] : groups) {
    reasons.push_back(groups.size() == 1 ? obstacle : fmt::format("{}: {}", who(views, ranks), obstacle));
  }
  const std::string why = fmt::format("{}", fmt::join(reasons, "; "));
  const std::string refused = refused_on_cpu(options, fmt::format("there is none ({})", why));
  if (!refused.empty()) throw comm::ConsensusError(refused);
  return cpus(views, options, why);
}

/// Returns the error text for ranks without a GPU.
std::string without_gpu(const Views& views, const ExecutionOptions& options) {
  std::vector<std::string> parts;
  for (const auto& [obstacle, ranks] : obstacles(views)) {
    parts.push_back(fmt::format("{} {} no GPU ({})", who(views, ranks), ranks.size() == 1 ? "sees" : "see", obstacle));
  }
  const Ranks with = ranks_where(views, has_gpu);
  const Ranks without = ranks_where(views, [](const RankView& view) { return !has_gpu(view); });
  std::string text = fmt::format("--device {}: {}", word_of(options.device), fmt::join(parts, ", "));
  if (with.empty()) return text + "; --device cpu computes without one";
  const bool whole_hosts = std::none_of(with.begin(), with.end(), [&](int rank) {
    return std::any_of(without.begin(), without.end(),
                       [&](int other) { return view_of(views, other).host == view_of(views, rank).host; });
  });
  return fmt::format(
      "{}, while {} {}; --device cpu computes on the CPU everywhere, or {}", text, who(views, with),
      with.size() == 1 ? "does" : "do",
      whole_hosts ? fmt::format("leave {} out", hosts_of(views, without)) : std::string("give every rank a GPU"));
}

/// Identifies a device: the text is equal for two ranks with the same device.
std::string device_of(const RankView& view, const model::Device& device) {
  return device.uuid.empty() ? view.host + " " + device.pci : device.uuid;
}

/// Identifies a GPU as NCCL sees it: slices of a GPU (MIG) are separate devices with the same PCI id.
std::string board_of(const RankView& view, const model::Device& device) {
  return device.name.find("MIG") == std::string::npos ? device_of(view, device) : view.host + " " + device.pci;
}

/// Chooses the device of each rank: device local rank modulo their number, or the next one that no lower rank has
/// taken.
std::vector<model::Device> choose_devices(const Views& views) {
  std::vector<model::Device> chosen;
  std::map<std::string, int> taken;
  for (const RankView& view : views) {
    const std::vector<model::Device>& visible = view.survey.devices;
    const std::size_t own = static_cast<std::size_t>(view.local_rank) % visible.size();
    std::size_t at = own;
    for (std::size_t step = 0; step < visible.size(); ++step) {
      const std::size_t candidate = (own + step) % visible.size();
      if (taken.count(board_of(view, visible[candidate])) == 0) {
        at = candidate;
        break;
      }
    }
    ++taken[board_of(view, visible[at])];
    chosen.push_back(visible[at]);
  }
  return chosen;
}

/// Groups ranks by shared device. Omits ranks that share nothing; orders groups by their lowest rank.
std::vector<Ranks> sharing(const Views& views, const std::vector<model::Device>& devices,
                           std::string (*key)(const RankView&, const model::Device&)) {
  std::map<std::string, Ranks> by_key;
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    by_key[key(views[rank], devices[rank])].push_back(static_cast<int>(rank));
  }
  std::vector<Ranks> groups;
  for (const auto& [name, ranks] : by_key) {
    if (ranks.size() > 1) groups.push_back(ranks);
  }
  std::sort(groups.begin(), groups.end());
  return groups;
}

std::string shared_gpus(const Views& views, const std::vector<model::Device>& devices, const std::vector<Ranks>& groups,
                        const ExecutionOptions& options) {
  constexpr std::size_t kMaxNamed = 3;
  std::vector<std::string> parts;
  for (const Ranks& ranks : groups) {
    if (parts.size() == kMaxNamed) {
      parts.push_back(fmt::format("and so on for {} more", groups.size() - kMaxNamed));
      break;
    }
    const RankView& first = view_of(views, ranks[0]);
    const model::Device& device = devices[ranks[0]];
    const bool slices = board_of(first, device) != device_of(first, device);
    parts.push_back(fmt::format("{} would share {}, {}", who(views, ranks), slices ? "slices of one GPU" : "one GPU",
                                name_with_pci(device)));
  }
  // CUDA_VISIBLE_DEVICES is shown if it has the same value on every rank of a group.
  const std::string& visible = view_of(views, groups[0][0]).visible_devices;
  const bool told_alike = std::all_of(groups[0].begin(), groups[0].end(),
                                      [&](int rank) { return view_of(views, rank).visible_devices == visible; });
  const std::string told =
      told_alike && !visible.empty() ? fmt::format(" (CUDA_VISIBLE_DEVICES is '{}' for each)", visible) : "";
  return fmt::format(
      "--device {}: {}{}; start as many ranks per host as it has GPUs, or compute with --device cpu. "
      "--share-gpu lets ranks share, for tests",
      word_of(options.device), fmt::join(parts, ", "), told);
}

bool has_precision(const model::Device& device, model::Precision precision) {
  return precision == model::Precision::fp32 || model::best_precision(device) == model::Precision::bf16;
}

/// Returns "the GPU of rank 3 on node2 has no bf16 (Tesla V100-SXM2-16GB, compute capability 7.0)"; "" if all have it.
std::string lacking(const Views& views, const std::vector<model::Device>& devices, model::Precision precision) {
  Ranks ranks;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    if (!has_precision(devices[rank], precision)) ranks.push_back(static_cast<int>(rank));
  }
  if (ranks.empty()) return "";
  const model::Device& device = devices[ranks[0]];
  return fmt::format("the {} of {} {} no {} ({}, compute capability {}.{})", ranks.size() == 1 ? "GPU" : "GPUs",
                     who(views, ranks), ranks.size() == 1 ? "has" : "have", model::name_of(precision), device.name,
                     device.major, device.minor);
}

struct ChosenPrecision {
  model::Precision precision;
  std::string note;
};

ChosenPrecision choose_precision(const Views& views, const std::vector<model::Device>& devices,
                                 const ExecutionOptions& options) {
  using model::Precision;
  if (!options.precision) {
    const std::string lack = lacking(views, devices, Precision::bf16);
    if (lack.empty()) return {Precision::bf16, "precision bf16"};
    return {Precision::fp32, fmt::format("precision fp32: {}", lack)};
  }
  const Precision wanted = *options.precision;
  const std::string lack = lacking(views, devices, wanted);
  if (!lack.empty()) {
    throw comm::ConsensusError(
        fmt::format("--precision {}: {}; --precision fp32 runs everywhere, without --precision all take the best that "
                    "all have",
                    model::name_of(wanted), lack));
  }
  return {wanted, fmt::format("precision {}", model::name_of(wanted))};
}

int communication_processors(const std::vector<model::Device>& devices) {
  constexpr int kMax = kMaxCommunicationProcessors;
  if (devices.size() == 1) return 0;
  const auto smallest = std::min_element(devices.begin(), devices.end(),
                                         [](const auto& a, const auto& b) { return a.processors < b.processors; });
  return std::clamp(smallest->processors / 8, 1, kMax);
}

std::vector<Place> on_gpus(const Views& views, const ExecutionOptions& options) {
  if (comm::keeps_errors(options.wire)) {
    throw UsageError(fmt::format("--wire {} is for CPUs (--device cpu): between GPUs give --wire bf16 or fp32",
                                 word_of(options.wire)));
  }
  const std::vector<model::Device> devices = choose_devices(views);
  const std::vector<Ranks> shared = sharing(views, devices, board_of);
  if (!shared.empty() && !options.share_gpu) {
    throw comm::ConsensusError(shared_gpus(views, devices, shared, options));
  }
  const ChosenPrecision precision = choose_precision(views, devices, options);
  const int processors = shared.empty() ? communication_processors(devices)
                                        : 1;  // the kernels of all sharing ranks must fit on the GPU together
  std::vector<Place> places;
  for (std::size_t rank = 0; rank < views.size(); ++rank) {
    places.push_back({.gpu = devices[rank],
                      .precision = precision.precision,
                      .host = views[rank].host,
                      .note = fmt::format("device: gpu ({})", precision.note),
                      .sharers = 1,
                      .gpus_are_shared = !shared.empty(),
                      .communication_processors = processors});
  }
  for (const Ranks& ranks : sharing(views, devices, device_of)) {
    for (const int rank : ranks) places[rank].sharers = static_cast<int>(ranks.size());
  }
  return places;
}

}  // namespace

std::vector<Place> decide_places(const std::vector<RankView>& ranks, const ExecutionOptions& options) {
  const std::size_t with = ranks_where(ranks, has_gpu).size();
  if (options.device == DeviceChoice::cpu || (options.device == DeviceChoice::automatic && with == 0))
    return on_cpus(ranks, options);
  if (with < ranks.size()) throw comm::ConsensusError(without_gpu(ranks, options));
  return on_gpus(ranks, options);
}

}  // namespace lockstep::app
