#include "app/agree/servers/arrivals.hpp"

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

constexpr std::string_view kArrivalMagic = "lockstep arrivals 3\n", kNarrowMagic = "lockstep arrivals 2\n";
static_assert(kArrivalMagic.size() == kNarrowMagic.size());
constexpr std::int32_t kRoundEnd = -1;
constexpr std::uint32_t kHashBegin = 2166136261u;

/// FNV-1a, continued from `hash`.
std::uint32_t arrival_hash(std::uint32_t hash, std::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 16777619u;
  return hash;
}

/// An arrival in format 2. At the end of a round, `late` is the checksum folded to 16 bits.
struct NarrowArrival {
  static constexpr std::uint16_t kRoundEnd = 0xffff;
  std::uint16_t worker = 0;
  std::uint16_t late = 0;
};

template <class Value>
std::string_view bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class Value>
Value value_of(std::string_view bytes) {
  Value value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

Arrival widened(const NarrowArrival& narrow) {
  return {.worker = narrow.worker == NarrowArrival::kRoundEnd ? kRoundEnd : narrow.worker, .late = narrow.late};
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

void ArrivalRecord::end_round() { append(bytes_of(Arrival{.worker = kRoundEnd, .late = hash_})); }

void ArrivalScript::end_at(std::int64_t last) {
  updates.resize(static_cast<std::size_t>(std::clamp<std::int64_t>(last - head.first, 0, std::ssize(updates))));
  std::erase_if(round_ends, [last](std::int64_t round) { return round > last; });
}

std::filesystem::path arrivals_of(const std::filesystem::path& file, int server) {
  return server == 0 ? file : std::filesystem::path(fmt::format("{}.{}", file.string(), server));
}

ArrivalScript read_arrivals(const std::filesystem::path& path, const ArrivalHead& of) {
  const auto refuse = [&](const std::string& why) -> void {
    throw std::runtime_error(fmt::format("--replay {}: {}", path.string(), why));
  };
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse("there is no such file, or it cannot be read");
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < kArrivalMagic.size() + sizeof(ArrivalHead) ||
      !(bytes.starts_with(kArrivalMagic) || bytes.starts_with(kNarrowMagic))) {
    refuse("this is no record of arrivals (arrivals-0 of a run folder)");
  }
  ArrivalScript script{.head = value_of<ArrivalHead>(std::string_view(bytes).substr(kArrivalMagic.size())),
                       .updates = {},
                       .round_ends = {}};
  if (script.head.workers != of.workers || script.head.sums != of.sums) {
    refuse(fmt::format("it is of {} workers {}, and this run has {} {}", script.head.workers,
                       script.head.sums != 0 ? "in sums" : "each by itself", of.workers,
                       of.sums != 0 ? "in sums" : "each by itself"));
  }
  if (script.head.first != of.first) {
    refuse(fmt::format("it begins after update {}, and this run after {}: begin where that run began (--resume FILE)",
                       script.head.first, of.first));
  }
  const bool sums = script.head.sums != 0;
  std::vector<std::int64_t> last(static_cast<std::size_t>(std::max(0, of.workers)), script.head.first - 1);
  const bool narrow = bytes.starts_with(kNarrowMagic);
  const std::size_t head = kArrivalMagic.size() + sizeof(ArrivalHead);
  const std::size_t size = narrow ? sizeof(NarrowArrival) : sizeof(Arrival);
  std::uint32_t hash = arrival_hash(kHashBegin, std::string_view(bytes).substr(0, head));
  for (std::size_t at = head; at + size <= bytes.size(); at += size) {
    const std::string_view own = std::string_view(bytes).substr(at, size);
    const Arrival arrival = narrow ? widened(value_of<NarrowArrival>(own)) : value_of<Arrival>(own);
    const std::uint32_t before = std::exchange(hash, arrival_hash(hash, own));
    if (arrival.worker == kRoundEnd) {
      if (arrival.late != (narrow ? (before ^ before >> 16) & 0xffff : before)) {
        refuse(fmt::format("damaged before byte {}", at));
      }
      script.round_ends.push_back(script.end());
      continue;
    }
    const auto is_of_last_update = [&] {
      const std::int64_t number = script.end() - 1;
      return (narrow ? static_cast<std::uint16_t>(number) : static_cast<std::uint32_t>(number)) == arrival.late;
    };
    if (!sums || script.updates.empty() || !is_of_last_update()) script.updates.emplace_back();
    std::vector<Arrival>& update = script.updates.back();
    // Without sums, a gradient comes from weights that this process had. With sums, a worker counts once in an update,
    // and updates follow each other.
    const bool possible =
        sums ? is_of_last_update() &&
                   std::ranges::none_of(update, [&](const Arrival& other) { return other.worker == arrival.worker; })
             : arrival.late < script.updates.size();
    if (arrival.worker < 0 || arrival.worker >= script.head.workers || !possible) {
      refuse(fmt::format("damaged at byte {}", at));
    }
    // A worker reads weights after its previous gradient made an update. So 16 bits can overflow only if more than
    // 65,536 updates lie between its two gradients.
    const std::int64_t previous = std::exchange(last[static_cast<std::size_t>(arrival.worker)], script.end() - 1);
    if (!sums && narrow && script.end() - 1 - previous > 0x10000) {
      refuse(
          fmt::format("update {} is of a gradient that may be more than 65,535 updates late, which a record of this "
                      "older format cannot tell: it cannot be repeated",
                      script.end() - 1));
    }
    update.push_back(arrival);
  }
  const std::int64_t whole = script.round_ends.empty() ? script.head.first : script.round_ends.back();
  script.updates.resize(static_cast<std::size_t>(whole - script.head.first));
  return script;
}

}  // namespace lockstep::app
