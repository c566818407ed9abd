/// \file
/// Communication between ranks: one interface for host memory (serial, shared memory, ring, two-level) and for GPUs
/// (NCCL). Counts are elements. All spans are in the communicator's memory: host memory, or the GPU of the stream that
/// a device communicator was made for.
///
/// ASYNCHRONOUS. A collective is enqueued; its data belong to the communicator until join() or wait(). Collectives run
/// in the order of the calls. On a GPU a collective starts after all work enqueued so far on the producer's stream, and
/// runs concurrently with work enqueued there later. Between hosts a thread drives it, if requested
/// (CommunicatorOptions::overlap). In shared memory a collective takes microseconds and no network works meanwhile, so
/// it is complete when the call returns.
///
/// Checked front, virtual back: the public methods validate and keep the books; the private virtual ones do the work.
/// All ranks call every collective in the same order with the same counts. No wait is unbounded: past the deadline
/// PeerError names the culprit. It ends the job: messages that a dead peer had begun may still arrive, so the data of
/// unfinished collectives stay allocated until the process ends (MpiSession::conclude). Only a SurvivorCommunicator
/// continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator_options.hpp"
#include "comm/session/mpi_session.hpp"
#include "comm/summation_tree.hpp"

namespace lockstep::comm {

/// The part of [0, count) that one rank owns in reduce_scatter / all_gather.
struct Slice {
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
  bool operator==(const Slice&) const = default;
};

/// Shares `count` elements among `size` ranks: count / size each, rounded down to whole cache lines (multiples of 16
/// elements), and the rest to the last. NCCL can only scatter equal parts plus a rest.
Slice slice_of(std::size_t count, int rank, int size) noexcept;

/// A rank's terms of a sum in the order of a tree: the sums of its subtrees.
struct TreeTerms {
  const SummationTree* tree = nullptr;  ///< for as many ranks as the communicator has; outlives the sum
  std::span<float> data;                ///< the last subtree, and afterwards the whole sum
  float* earlier = nullptr;             ///< the earlier subtrees, `stride` elements apart
  std::size_t stride = 0;

  std::span<float> subtree(int index, int subtrees) const {
    return index + 1 == subtrees ? data : std::span(earlier + static_cast<std::size_t>(index) * stride, data.size());
  }
};

/// Purpose of a communicator's memory.
enum class MemoryUse {
  reduced,   ///< sums over ranks; formats with error feedback need as many float32 again for the rounding errors
  gathered,  ///< copies from rank to rank
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Number of a group's rank 0 in messages: its rank in the job.
  int first_rank() const noexcept { return first_rank_; }
  /// Never `automatic`.
  virtual Transport transport() const noexcept = 0;
  /// Details for the log: "NCCL 2.28.9, ring 0 -> 1 -> 2 -> 3, 16 channels". May be empty.
  virtual std::string description() const { return {}; }
  /// Wire format of float32 sums. Doubles, and gathered or broadcast data, keep their type.
  virtual WireFormat wire_format() const noexcept { return WireFormat::fp32; }
  /// True if data travel between processes as messages.
  virtual bool uses_network() const noexcept { return false; }
  /// Number of positions on the ring between hosts: every rank on the flat ring, every machine on two levels; 1 without
  /// a ring.
  virtual int ring_length() const noexcept { return 1; }
  /// Number of ranks of this machine, including this one, that map each other's reduction memory.
  virtual int ranks_sharing_memory() const noexcept { return 1; }
  /// Limits of the schedules for sums between hosts; nullopt: no such sums.
  virtual std::optional<AllReduceLimits> all_reduce_limits() const noexcept { return std::nullopt; }
  /// The reason why Transport::automatic fell back to the ring although all ranks share a host; otherwise empty. The
  /// same on every rank: a warning for rank 0 to print.
  const std::string& transport_note() const noexcept { return transport_note_; }

  /// Memory that this communicator reduces in place without a copy (the shared-memory window, the GPU's memory, plain
  /// aligned memory otherwise). Collective: every rank passes the same `bytes`. The resource hands out at most `bytes`
  /// in total (each allocation rounded up to 256), lives as long as the caller keeps it, and must be destroyed before
  /// the communicator. Throws ConsensusError if any rank cannot allocate it.
  std::unique_ptr<std::pmr::memory_resource> reduction_memory(std::size_t bytes, MemoryUse use = MemoryUse::reduced);

  /// Addresses, in this process, of each rank's copy of `data`, which all ranks have allocated at the same position of
  /// reduction_memory(); nullptr for ranks on other hosts, and for transports without shared memory. Not collective.
  std::vector<std::byte*> mapped(std::span<std::byte> data) const;

  /// data[i] = sum over ranks of data[i], in place, the same bits on every rank; the order of the additions is fixed
  /// by rank, so a run repeats exactly. Wire: 2 (p-1)/p * count elements per rank (ring).
  void all_reduce(std::span<float> data);
  void all_reduce(std::span<double> data);
  /// As all_reduce(), with the same bits, but complete on return. Sums of up to 128 KiB overtake unfinished work
  /// between hosts (ring and two-level, if a thread drives them), so the ranks' earlier calls may also differ.
  /// Otherwise equal to all_reduce() and join(): on a GPU later work on the producer's stream sees the sums.
  void urgent_all_reduce(std::span<double> data);
  /// terms.data = the sum over the subtrees of all ranks, in the order of the tree, with the same bits on every rank
  /// and for any number of ranks. The terms are in reduction_memory if the communicator shares any, in the same layout
  /// on all ranks. Wire: (s + 1) (p-1)/p * count elements per rank with s subtrees, always float32. Device
  /// communicators must be made for the tree (DeviceCommunicatorOptions).
  void all_reduce(const TreeTerms& terms);
  /// Local operations in the communicator's memory, in the order of the producer's stream (on a host: immediately).
  /// copy_here: to[i] = from[i]; add_here: to[i] += from[i].
  void copy_here(std::span<const float> from, std::span<float> to);
  void add_here(std::span<const float> from, std::span<float> to);
  /// slice_of in this world: the slice of `count` elements that `rank` owns.
  Slice own_slice(std::size_t count, int rank) const noexcept { return slice_of(count, rank, size_); }
  /// The first half of a sum: after it, this rank's own_slice of data holds the sum; the rest of data is unspecified.
  void reduce_scatter(std::span<float> data);
  /// Each rank contributes its own_slice of data; after it, all of data is equal on all ranks.
  void all_gather(std::span<float> data);
  void all_gather(std::span<std::byte> data);
  void broadcast(std::span<std::byte> data, int root);
  void barrier();

  /// Later work on the communicator's memory (on the producer's stream; on a host: in this thread) sees the results of
  /// everything enqueued so far. Throws errors that occurred meanwhile.
  void join();
  /// join(), and waits on the host until everything enqueued so far is done, including the producer's stream. `what` is
  /// a string literal, for messages. Throws PeerError past the deadline, or if a peer has died or its device failed; it
  /// names rank, host, device and the awaited operation. After that a device communicator accepts no calls.
  void wait(const char* what = "a collective", std::int64_t step = -1);
  /// Marks the end of a step: join(), and a mark on the producer's stream. wait_for_step() waits for the mark as wait()
  /// does, but not for later work such as the next batch's upload. Before that, another end of a step or wait() is
  /// std::logic_error. (On a host, which enqueues nothing, it equals wait().)
  void end_step();
  void wait_for_step(const char* what, std::int64_t step);

  /// Discards the rounding errors kept so far (formats with error feedback; otherwise does nothing).
  virtual void forget_rounding_errors() noexcept {}

  /// Records this rank's activity, for the message that peers print if it never arrives ("step 41: backward"). `what`
  /// must be a string literal (kept by pointer and copied to shared state); cheap enough for every step.
  void note_activity(const char* what, std::int64_t step) noexcept { do_note_activity(what, step); }

  /// Records another cause of waiting than peers: "waiting for input (x.h5, 12 s)", cut to 127 bytes; "": none. For the
  /// message that peers print. Any thread may call it.
  void note_wait(std::string_view text) { do_note_wait(text); }

  /// From here to end_long_operation this rank may exceed the deadline (it writes a checkpoint, or reads a slow file
  /// system) as long as its process lives. Peers call it stuck after 30 deadlines, or
  /// CommunicatorOptions::excuse_seconds if that is longer. Cheap enough for every step. In shared memory peers look at
  /// its process; on the ring a thread sends them heartbeats. Not collective; may be nested; no collective call before
  /// the end. `what` is a string literal, or nullptr to keep the last activity.
  void begin_long_operation(const char* what = nullptr);
  void end_long_operation() noexcept;

  /// Sets this rank's deadline for peers (> 0); returns the previous one. Not collective.
  double set_deadline(double seconds);
  /// For a rank that waits for something else than its peers; call it every 0.1 s or so. Returns true while a peer is
  /// in a long operation and may keep the others waiting. Throws PeerError if a peer has died visibly. Not collective,
  /// cheap; not inside a long operation, nor while work is enqueued.
  bool check_peers();

  /// Peers that have died without a message, as far as this rank can see: those on its machine, and its neighbours.
  /// Calls no MPI. Not collective.
  virtual std::vector<int> dead_peers() const { return {}; }

  /// Seconds since construction during which computation waited for collectives (exposed communication).
  virtual double exposed_seconds() const noexcept { return seconds_; }
  /// Makes exposed_seconds() exact for each step. Otherwise a device may measure only some steps, and assume the same
  /// for the others, because reading costs it a little.
  virtual void measure_every_step() noexcept {}
  /// Seconds that collectives took, hidden by computation or not. Negative: unknown (for a device).
  virtual double busy_seconds() const noexcept { return seconds_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  /// For a communicator that continues with other ranks.
  void set_position(int rank, int size, int first_rank) noexcept {
    rank_ = rank, size_ = size, first_rank_ = first_rank;
  }
  void set_transport_note(std::string note) { transport_note_ = std::move(note); }
  /// own_slice, in bytes, of data with elements of `element_bytes`.
  Slice own_bytes(std::size_t bytes, std::size_t element_bytes, int rank) const noexcept;

 private:
  virtual std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) = 0;
  /// Fills in the addresses of other ranks' data.
  virtual void do_map(std::span<std::byte>, std::vector<std::byte*>&) const {}
  virtual void do_all_reduce(std::span<float> data) = 0;
  virtual void do_all_reduce(std::span<double> data) = 0;
  virtual void do_urgent_all_reduce(std::span<double> data);
  virtual void do_all_reduce(const TreeTerms& terms);
  virtual void do_copy_here(std::span<const float> from, std::span<float> to);
  virtual void do_add_here(std::span<const float> from, std::span<float> to);
  virtual void do_reduce_scatter(std::span<float> data) = 0;
  /// `element_bytes`: size of an element.
  virtual void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) = 0;
  virtual void do_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void do_barrier() = 0;
  /// Defaults for communicators whose collectives are complete when their calls return.
  virtual void do_join() {}
  virtual void do_wait(const char*, std::int64_t) { do_join(); }
  /// Defaults for a host.
  virtual void do_end_step() {}
  virtual void do_wait_for_step(const char* what, std::int64_t step) { do_wait(what, step); }
  virtual void do_note_activity(const char* what, std::int64_t step) noexcept = 0;
  virtual void do_begin_long_operation(const char* what) = 0;
  virtual void do_end_long_operation() noexcept = 0;
  /// Defaults for ranks that wait for nobody.
  virtual void do_note_wait(std::string_view) {}
  virtual double do_set_deadline(double seconds) { return seconds; }
  virtual bool do_check_peers() { return false; }

  friend std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);
  void set_first_rank(int rank) noexcept { first_rank_ = rank; }
  /// Checks that no long operation is open, runs `work` and adds its time to seconds_.
  template <class Work>
  void collective(Work work);

  int rank_;
  int size_;
  int first_rank_ = 0;
  int long_operations_ = 0;
  bool step_ended_ = false;  ///< a step has ended and nobody has waited for it
  double seconds_ = 0;       ///< time inside collectives, join() and wait()
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

/// The factory of the implementations for hosts. Collective. A world of one is serial with any `options`.
/// Transport::automatic selects shared memory if all ranks share a machine, two-level if some do, and otherwise the
/// ring; it also selects the ring, with a transport_note(), if ranks of a machine cannot share memory. Throws
/// ConsensusError if the options demand shared memory and the ranks cannot share it.
std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);

}  // namespace lockstep::comm
