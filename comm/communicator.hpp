/// \file
/// How ranks exchange numbers. Counts are elements; all buffers are host memory in this interface's implementations
/// here (a device communicator is bound to its stream when it is built and takes device spans).
///
/// Checked front, virtual back: the public methods validate and keep the books (sequence number, seconds spent); the
/// private virtual ones do the work. Every method is collective: all ranks call it in the same order with the same
/// counts. No wait is unbounded: past the deadline PeerError names the culprit.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/mpi_session.hpp"

namespace lockstep::comm {

enum class Transport { automatic, shared_memory, two_level, ring };

struct CommunicatorOptions {
  Transport transport = Transport::automatic;  ///< automatic: as the ranks lie, see make_communicator
  double deadline_seconds = 60;                ///< longest wait for a peer before it is called dead; > 0
  int pretended_machine = 0;  ///< ranks that differ here believe in different machines, wherever they are (tests)
};

/// A part of [0, count) that one rank owns in reduce_scatter / all_gather.
struct Slice {
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
  bool operator==(const Slice&) const = default;
};

/// The rule by which `size` ranks share `count` elements: count / size each, rounded down to whole cache lines
/// (multiples of 16 elements), and the rest to the last. Equal parts but for the rest are what NCCL can scatter.
Slice shard_of(std::size_t count, int rank, int size) noexcept;

/// How sums travel between hosts. Within a host they are read where they lie, in full.
struct Wire {
  /// Half the bytes: each rank rounds what it passes on to bfloat16 (to nearest, ties to even), once per element, and
  /// adds in float32. All ranks end with the same bits.
  bool bf16 = false;
  /// With bf16, as long as the data, or empty: what this rank's rounding took away is kept there and added to its
  /// part of the next sum (error feedback: Seide et al. 2014; Karimireddy et al. 2019). Zero at the start.
  std::span<float> residual = {};
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// "serial", "shared memory", "two-level", "ring": for the plan and the logs.
  virtual std::string_view transport_name() const noexcept = 0;
  /// Sums travel between processes as messages: worth a thread that drives them beside the computation.
  virtual bool uses_network() const noexcept { return false; }
  /// Places on the ring that sums between hosts travel: every rank on the flat ring, every machine on two levels; else
  /// 1, there is none.
  virtual int ring_length() const noexcept { return 1; }
  /// Why Transport::automatic fell back to the ring although all ranks share a host; empty when it did not. The same on
  /// every rank: a warning for rank 0 to print.
  const std::string& transport_note() const noexcept { return transport_note_; }

  /// Memory this communicator reduces in place without a copy (the shared-memory window; plain aligned memory
  /// otherwise). Collective: every rank passes the same `bytes`. The resource hands out at most `bytes` in total
  /// (each allocation rounded up to 256), lives as long as the caller keeps it and must go before the communicator.
  std::unique_ptr<std::pmr::memory_resource> reduction_memory(std::size_t bytes);

  /// data[i] = sum over ranks of data[i], in place, the same bits on every rank; the order of the additions is fixed
  /// by rank, so a run repeats exactly. Wire: 2 (p-1)/p * count elements per rank (ring).
  void all_reduce_sum(std::span<float> data, const Wire& wire = {});
  void all_reduce_sum(std::span<double> data);
  /// shard_of in this world: the slice that `rank` owns of `count` elements.
  Slice own_slice(std::size_t count, int rank) const noexcept { return shard_of(count, rank, size_); }
  /// After it, this rank's own_slice of data holds the sum; the rest of data is unspecified.
  void reduce_scatter_sum(std::span<float> data, const Wire& wire = {});
  /// Each rank contributes its own_slice of data; after it, all of data is equal on all ranks.
  void all_gather(std::span<float> data);
  void broadcast(std::span<std::byte> data, int root);
  void barrier();
  /// Every rank's text, in rank order, on every rank. Any length. For messages, not for the hot path.
  std::vector<std::string> all_gather_text(std::string_view text);

  /// What this rank is doing, for the message that peers print if it never arrives ("step 41: backward").
  /// `what` must be a string literal (kept by pointer and copied to shared state); cheap enough for every step.
  void note_activity(const char* what, std::int64_t step) noexcept;

  /// From here to end_long_operation this rank may keep its peers waiting past the deadline (it writes a checkpoint, it
  /// reads a slow file system) as long as its process lives; peers call it stuck after 30 deadlines. In shared memory
  /// peers look at its process; on the ring a thread sends them signs of life. Not collective; may be nested; no
  /// collective call before the end. `what` is a string literal, or nullptr: as last noted.
  void begin_long_operation(const char* what = nullptr);
  void end_long_operation() noexcept;

  /// From here on this rank waits so long for its peers (> 0); returns how long it did before. Not collective.
  double set_deadline(double seconds);
  /// For a rank that waits for something else than its peers, every 0.1 s or so: true while a peer is in a long
  /// operation and may keep the others waiting. Throws PeerError when a peer is seen to have died. Not collective,
  /// cheap; not inside a long operation.
  bool look_at_peers();

  /// Whether somebody stands still until a collective is done: then this rank polls for messages at full speed, else it
  /// leaves the core to computation between its looks. True at the start. From any thread.
  void set_urgent(bool urgent) noexcept;
  bool urgent() const noexcept { return urgent_.load(std::memory_order_relaxed); }
  /// Leaves the core for so long, or until it gets urgent.
  void sleep_unless_urgent(std::chrono::microseconds time) const;

  /// Seconds spent inside collectives since construction.
  double seconds() const noexcept { return seconds_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  void set_transport_note(std::string note) { transport_note_ = std::move(note); }

 private:
  virtual std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes) = 0;
  virtual void do_all_reduce_sum(std::span<float> data, const Wire& wire) = 0;
  virtual void do_all_reduce_sum(std::span<double> data) = 0;
  virtual void do_reduce_scatter_sum(std::span<float> data, const Wire& wire) = 0;
  virtual void do_all_gather(std::span<float> data) = 0;
  virtual void do_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void do_barrier() = 0;
  virtual void do_note_activity(const char* what, std::int64_t step) noexcept = 0;
  virtual void do_begin_long_operation(const char* what) = 0;
  virtual void do_end_long_operation() noexcept = 0;
  /// These two as they are for ranks that wait for nobody.
  virtual double do_set_deadline(double seconds) { return seconds; }
  virtual bool do_look_at_peers() { return false; }

  void check_wire(std::span<const float> data, const Wire& wire) const;
  /// Checks that no long operation is open, runs `work` and books its time.
  template <typename Work>
  void collective(Work work);

  int rank_;
  int size_;
  int long_operations_ = 0;
  std::atomic<bool> urgent_{true};
  mutable std::mutex urgency_mutex_;
  mutable std::condition_variable gets_urgent_;
  double seconds_ = 0;
  std::string transport_note_;
};

/// Scope of a long operation.
class LongOperation {
 public:
  explicit LongOperation(Communicator& communicator, const char* what = nullptr) : communicator_(communicator) {
    communicator_.begin_long_operation(what);
  }
  ~LongOperation() { communicator_.end_long_operation(); }
  LongOperation(const LongOperation&) = delete;
  LongOperation& operator=(const LongOperation&) = delete;

 private:
  Communicator& communicator_;
};

/// The one place that knows which implementations exist. Collective. A world of one is serial whatever `options` ask.
/// Transport::automatic is shared memory when all ranks share a machine, two-level when some do, else the ring; the
/// ring with a transport_note() where ranks of a machine cannot share memory. Throws AgreedError when a transport that
/// shares memory is asked for and that cannot be.
std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);

}  // namespace lockstep::comm
