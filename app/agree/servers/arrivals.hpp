/// \file
/// Records the order in which gradients made updates. With --agree async or quorum, the result of a run depends on this
/// order. The run folder keeps the record, and --replay repeats it.
///
/// A file `arrivals-N` holds the updates of one process that began after N steps. If each gradient makes an update,
/// every server has its own order; the other servers' files are `arrivals-N.1` and so on.
///
/// A file starts with the name of its format and an ArrivalHead. Records of eight bytes follow. Each accepted gradient
/// has one: the worker's rank, then the gradient's staleness in updates, or, with sums, the low 32 bits of the update's
/// number. Each end of a round has one: -1, then a checksum of all bytes before it. Files of format 2, whose records
/// have four bytes, can be read, too.
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
  std::int64_t first = 0;  ///< updates made before the file begins
  std::int32_t workers = 0;
  std::int32_t sums = 0;  ///< 1: updates are sums of gradients
};

/// The record of a run that --replay repeats.
struct ArrivalScript {
  ArrivalHead head;
  std::vector<std::vector<Arrival>> updates;  ///< arrivals of each update
  std::vector<std::int64_t> round_ends;       ///< number of updates made at the end of each round, ascending

  /// Discards everything after the first `last` updates of the run.
  void end_at(std::int64_t last);
  std::int64_t end() const noexcept { return head.first + static_cast<std::int64_t>(updates.size()); }
  const std::vector<Arrival>& at(std::int64_t update) const {
    return updates[static_cast<std::size_t>(update - head.first)];
  }
};

/// Encodes arrivals in the format of the file.
class ArrivalRecord {
 public:
  explicit ArrivalRecord(const ArrivalHead& head);
  void add(const Arrival& arrival);
  void end_round();
  /// Returns the bytes added since the last call.
  std::string take() { return std::exchange(bytes_, {}); }

 private:
  void append(std::string_view bytes);

  std::string bytes_;
  std::uint32_t hash_;
};

/// Returns a server's file of arrivals: `file` for the first server, `file`.N for server N. Only updates by single
/// gradients need files of the other servers.
std::filesystem::path arrivals_of(const std::filesystem::path& file, int server);

/// Reads a file up to its last end of a round; bytes after it may be incomplete, because a process may die during a
/// write. Throws std::runtime_error if the file cannot be read, is damaged, or is not from a run like `of`.
ArrivalScript read_arrivals(const std::filesystem::path& file, const ArrivalHead& of);

}  // namespace lockstep::app
