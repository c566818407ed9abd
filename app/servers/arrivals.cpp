#include "app/servers/arrivals.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lockstep::app {

namespace {

constexpr std::string_view kArrivalMagic = "lockstep arrivals 2\n";
constexpr std::uint16_t kRoundEnd = 0xffff;
constexpr std::uint32_t kHashBegin = 2166136261u;

/// FNV-1a, goes on from `hash`.
std::uint32_t arrival_hash(std::uint32_t hash, std::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 16777619u;
  return hash;
}

/// What the end of a round says of all before it.
std::uint16_t folded(std::uint32_t hash) { return static_cast<std::uint16_t>(hash ^ hash >> 16); }

template <class Value>
std::string_view bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

ArrivalRecord::ArrivalRecord(const ArrivalHead& head) : hash_(kHashBegin) {
  append(kArrivalMagic);
  append(bytes_of(head));
}

void ArrivalRecord::append(std::string_view bytes) {
  bytes_ += bytes;
  hash_ = arrival_hash(hash_, bytes);
}

void ArrivalRecord::add(const Arrival& arrival) { append(bytes_of(arrival)); }

void ArrivalRecord::end_round() { append(bytes_of(Arrival{.worker = kRoundEnd, .late = folded(hash_)})); }

void ArrivalScript::end_at(std::int64_t last) {
  updates.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(last - head.first, 0, std::ssize(updates))));
  std::erase_if(round_ends, [last](std::int64_t round) { return round > last; });
}

std::filesystem::path arrivals_of(const std::filesystem::path& file, int server) {
  return server == 0 ? file : std::filesystem::path(fmt::format("{}.{}", file.string(), server));
}

ArrivalScript read_arrivals(const std::filesystem::path& path, const ArrivalHead& of) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error(fmt::format("--replay {}: there is no such file, or it cannot be read", path.string()));
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t begin = kArrivalMagic.size() + sizeof(ArrivalHead);
  if (bytes.size() < begin || !bytes.starts_with(kArrivalMagic)) {
    throw std::runtime_error(
        fmt::format("--replay {}: this is no record of arrivals (arrivals-0 of a run folder)", path.string()));
  }
  ArrivalScript script;
  std::memcpy(&script.head, bytes.data() + kArrivalMagic.size(), sizeof script.head);
  if (script.head.workers != of.workers || script.head.sums != of.sums) {
    throw std::runtime_error(fmt::format("--replay {}: it is of {} workers {}, and this run has {} {}", path.string(),
                                         script.head.workers, script.head.sums != 0 ? "in sums" : "each by itself",
                                         of.workers, of.sums != 0 ? "in sums" : "each by itself"));
  }
  if (script.head.first != of.first) {
    throw std::runtime_error(fmt::format(
        "--replay {}: it begins after update {}, and this run after {}: begin where that run began (--resume FILE)",
        path.string(), script.head.first, of.first));
  }
  std::uint32_t hash = arrival_hash(kHashBegin, std::string_view(bytes).substr(0, begin));
  for (std::size_t at = begin; at + sizeof(Arrival) <= bytes.size(); at += sizeof(Arrival)) {
    Arrival arrival;
    std::memcpy(&arrival, bytes.data() + at, sizeof arrival);
    const std::uint32_t before = std::exchange(hash, arrival_hash(hash, bytes_of(arrival)));
    if (arrival.worker == kRoundEnd) {
      if (arrival.late != folded(before)) {
        throw std::runtime_error(fmt::format("--replay {}: damaged before byte {}", path.string(), at));
      }
      script.round_ends.push_back(script.end());
      continue;
    }
    const bool sums = script.head.sums != 0;
    if (!sums || script.updates.empty() || static_cast<std::uint16_t>(script.end() - 1) != arrival.late) {
      script.updates.emplace_back();
    }
    std::vector<Arrival>& update = script.updates.back();
    // A gradient is of weights that this process has had; of a sum, it counts once, and in its turn.
    const bool possible =
        sums ? static_cast<std::uint16_t>(script.end() - 1) == arrival.late &&
                   std::ranges::none_of(update, [&](const Arrival& other) { return other.worker == arrival.worker; })
             : arrival.late < script.updates.size();
    if (arrival.worker >= script.head.workers || !possible) {
      throw std::runtime_error(fmt::format("--replay {}: damaged at byte {}", path.string(), at));
    }
    update.push_back(arrival);
  }
  const std::int64_t whole = script.round_ends.empty() ? script.head.first : script.round_ends.back();
  script.updates.resize(static_cast<std::size_t>(whole - script.head.first));
  return script;
}

}  // namespace lockstep::app
