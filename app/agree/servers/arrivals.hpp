/// \file
/// The order in which gradients made updates: what a run of --agree async or quorum depends on besides its options,
/// kept in the run folder, and what --replay repeats.
///
/// A file `arrivals-N` holds the updates of one process that began with N steps done; where each of several servers
/// makes them in an order of its own, those of the others are in `arrivals-N.1` and so on. It is a head, then eight
/// bytes for each gradient that counted (its rank; by how many updates it was late, or in sums the last 32 bits of the
/// update's number) and eight for each end of a round, which hold a checksum of all before them. Files of format 2,
/// which have half as many bytes for each of these, are read, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::app {

struct Arrival {
  std::int32_t worker = 0;
  std::uint32_t late = 0;
};

struct ArrivalHead {
  std::int64_t first = 0;  ///< updates made before
  std::int32_t workers = 0;
  std::int32_t sums = 0;  ///< 1: updates are sums
};

/// A run to be repeated.
struct ArrivalScript {
  ArrivalHead head;
  std::vector<std::vector<Arrival>> updates;  ///< arrivals that made each
  std::vector<std::int64_t> round_ends;       ///< updates made by then, ascending

  /// Forgets everything after so many updates.
  void end_at(std::int64_t last);
  std::int64_t end() const noexcept { return head.first + static_cast<std::int64_t>(updates.size()); }
  const std::vector<Arrival>& at(std::int64_t update) const {
    return updates[static_cast<std::size_t>(update - head.first)];
  }
};

/// The bytes of a record, as they come.
class ArrivalRecord {
 public:
  explicit ArrivalRecord(const ArrivalHead& head);
  void add(const Arrival& arrival);
  void end_round();
  /// Takes the bytes that have come since the last call.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  void append(std::string_view bytes);

  std::string bytes_;
  std::uint32_t hash_;
};

/// The file of one server's arrivals if each gradient is an update: `file` for the first server, one beside it for each
/// of the others.
std::filesystem::path arrivals_of(const std::filesystem::path& file, int server);

/// Up to the last end of a round: behind it a process may have died in the middle of a write.
/// Throws std::runtime_error with a sentence where the file is none, is damaged, or is not of such a run.
ArrivalScript read_arrivals(const std::filesystem::path& file, const ArrivalHead& of);

}  // namespace lockstep::app
