/// \file
/// How ranks exchange numbers. Counts are elements; all buffers are host memory in this interface's implementations
/// here (a device communicator is bound to its stream when it is built and takes device spans).
///
/// Checked front, virtual back: the public methods validate and keep the books (sequence number, seconds spent); the
/// private virtual ones do the work. Every method is collective: all ranks call it in the same order with the same
/// counts. No wait is unbounded: past the deadline PeerError names the culprit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/mpi_session.hpp"

namespace lockstep::comm {

enum class Transport { automatic, shared_memory, ring };

struct CommunicatorOptions {
  Transport transport = Transport::automatic;  ///< automatic: shared memory when all ranks share a host, else ring
  double deadline_seconds = 60;                ///< longest wait for a peer before it is called dead; > 0
};

/// A part of [0, count) that one rank owns in reduce_scatter / all_gather.
struct Slice {
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// "serial", "shared memory", "ring": for the plan and the logs.
  virtual std::string_view transport_name() const noexcept = 0;

  /// Memory this communicator reduces in place without a copy (the shared-memory window; plain aligned memory
  /// otherwise). Collective: every rank passes the same `bytes`. The resource hands out at most `bytes` in total
  /// (each allocation rounded up to 256), lives as long as the caller keeps it and must go before the communicator.
  std::unique_ptr<std::pmr::memory_resource> reduction_memory(std::size_t bytes);

  /// data[i] = sum over ranks of data[i], in place, the same bits on every rank; the order of the additions is fixed
  /// by rank, so a run repeats exactly. Wire: 2 (p-1)/p * count elements per rank (ring).
  void all_reduce_sum(std::span<float> data);
  void all_reduce_sum(std::span<double> data);
  /// The slice `rank` owns of `count` elements: nearly equal pieces, the first count % size one element longer.
  Slice own_slice(std::size_t count, int rank) const noexcept;
  /// After it, this rank's own_slice of data holds the sum; the rest of data is unspecified.
  void reduce_scatter_sum(std::span<float> data);
  /// Each rank contributes its own_slice of data; after it, all of data is equal on all ranks.
  void all_gather(std::span<float> data);
  void broadcast(std::span<std::byte> data, int root);
  void barrier();
  /// Every rank's text, in rank order, on every rank. Any length. For messages, not for the hot path.
  std::vector<std::string> all_gather_text(std::string_view text);

  /// What this rank is doing, for the message that peers print if it never arrives ("step 41: backward").
  /// `what` must be a string literal (kept by pointer and copied to shared state); cheap enough for every step.
  void note_activity(const char* what, std::int64_t step) noexcept;

  /// Seconds spent inside collectives since construction.
  double seconds() const noexcept { return seconds_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  virtual std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes) = 0;
  virtual void do_all_reduce_sum(std::span<float> data) = 0;
  virtual void do_all_reduce_sum(std::span<double> data) = 0;
  virtual void do_reduce_scatter_sum(std::span<float> data) = 0;
  virtual void do_all_gather(std::span<float> data) = 0;
  virtual void do_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void do_barrier() = 0;
  virtual void do_note_activity(const char* what, std::int64_t step) noexcept = 0;

  int rank_;
  int size_;
  double seconds_ = 0;
};

/// The one place that knows which implementations exist. Collective.
std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);

}  // namespace lockstep::comm
