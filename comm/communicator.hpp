/// \file
/// How ranks exchange numbers: one interface for the memory of hosts (serial, shared memory, ring, two-level) and of
/// GPUs (NCCL). Counts are elements. All spans lie where the communicator works: in host memory, or on the GPU whose
/// stream a device communicator was made for.
///
/// ASYNCHRONOUS. A collective is enqueued; its data belong to the communicator until join() or wait(). What is enqueued
/// is done in that order. On a GPU it starts when everything enqueued so far on the producer's stream is done, and runs
/// beside what is enqueued there next. Between hosts a thread drives it where that was asked for
/// (CommunicatorOptions::overlap). In shared memory, where a collective takes microseconds and no wire works meanwhile,
/// it is done when the call returns.
///
/// Checked front, virtual back: the public methods validate and keep the books; the private virtual ones do the work.
/// Every collective is called by all ranks in the same order with the same counts. No wait is unbounded: past the
/// deadline PeerError names the culprit. It ends the job: what a dead peer was in the middle of sending may still come,
/// so the data of collectives under way stay where they are until the process ends (MpiSession::conclude). Only a
/// SurvivorCommunicator goes on.
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

/// A part of [0, count) that one rank owns in reduce_scatter / all_gather.
struct Slice {
  std::size_t offset = 0;  ///< elements
  std::size_t count = 0;   ///< elements
  bool operator==(const Slice&) const = default;
};

/// The rule by which `size` ranks share `count` elements: count / size each, rounded down to whole cache lines
/// (multiples of 16 elements), and the rest to the last. Equal parts but for the rest are what NCCL can scatter.
Slice slice_of(std::size_t count, int rank, int size) noexcept;

/// What a rank brings to a sum in the order of a tree: the sums of its subtrees.
struct TreeTerms {
  const SummationTree* tree = nullptr;  ///< of as many ranks as the communicator has; outlives the sum
  std::span<float> data;                ///< the last subtree's, and the whole sum afterwards
  float* earlier = nullptr;             ///< those before it, `stride` elements apart
  std::size_t stride = 0;

  std::span<float> subtree(int index, int subtrees) const {
    return index + 1 == subtrees ? data : std::span(earlier + static_cast<std::size_t>(index) * stride, data.size());
  }
};

/// What a communicator's memory is for.
enum class MemoryUse {
  reduced,   ///< sums over ranks; formats that feed back keep as many float32 of rounding errors for it
  gathered,  ///< copies from rank to rank
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// What rank 0 of a group is called in messages: its rank in the job.
  int first_rank() const noexcept { return first_rank_; }
  /// Never `automatic`.
  virtual Transport transport() const noexcept = 0;
  /// More about it, for the log: "NCCL 2.28.9, ring 0 -> 1 -> 2 -> 3, 16 channels". May be empty.
  virtual std::string description() const { return {}; }
  /// What sums of float32 travel as. Doubles, and what is gathered or broadcast, travel as they are.
  virtual WireFormat wire_format() const noexcept { return WireFormat::fp32; }
  /// Data travel between processes as messages.
  virtual bool uses_network() const noexcept { return false; }
  /// Positions on the ring that sums between hosts travel: every rank on the flat ring, every machine on two levels;
  /// else 1, there is none.
  virtual int ring_length() const noexcept { return 1; }
  /// Ranks of this machine, this one among them, that each map the reduction memory of all of them.
  virtual int ranks_sharing_memory() const noexcept { return 1; }
  /// Which sums between hosts take which schedule; nullopt: there are none.
  virtual std::optional<AllReduceLimits> all_reduce_limits() const noexcept { return std::nullopt; }
  /// Why Transport::automatic fell back to the ring although all ranks share a host; empty when it did not. The same on
  /// every rank: a warning for rank 0 to print.
  const std::string& transport_note() const noexcept { return transport_note_; }

  /// Memory this communicator reduces in place without a copy (the shared-memory window, the GPU's memory, plain
  /// aligned memory otherwise). Collective: every rank passes the same `bytes`. The resource hands out at most `bytes`
  /// in total (each allocation rounded up to 256), lives as long as the caller keeps it and must go before the
  /// communicator. Throws AgreedError where some rank has none.
  std::unique_ptr<std::pmr::memory_resource> reduction_memory(std::size_t bytes, MemoryUse use = MemoryUse::reduced);

  /// Where each rank has what this one has at `data`, in memory of reduction_memory() that all lay out alike; nullptr
  /// where that is out of reach: on another host, and where a transport shares no memory. Not collective.
  std::vector<std::byte*> mapped(std::span<std::byte> data) const;

  /// data[i] = sum over ranks of data[i], in place, the same bits on every rank; the order of the additions is fixed
  /// by rank, so a run repeats exactly. Wire: 2 (p-1)/p * count elements per rank (ring).
  void all_reduce(std::span<float> data);
  void all_reduce(std::span<double> data);
  /// The same sums with the same bits, at once: they are there when it returns. Up to 128 KiB overtake what is
  /// enqueued and not done between hosts (ring and two-level, where a thread drives them), so that ranks may also
  /// differ in what they have enqueued before. Else it is all_reduce() and join(): on a GPU the sums are there for what
  /// comes next on the producer's stream.
  void urgent_all_reduce(std::span<double> data);
  /// terms.data = the sum over the subtrees of all ranks, in the order of the tree, the same bits on every rank and at
  /// any number of ranks. In memory of reduction_memory, where the communicator shares any, and laid out alike on all
  /// ranks. Wire: (s + 1) (p-1)/p * count elements per rank with s subtrees, always float32. GPUs want to be made for
  /// the tree (DeviceCommunicatorOptions).
  void all_reduce(const TreeTerms& terms);
  /// Of this rank alone, where the data live, in the order of what is enqueued on the producer's stream (on a host: at
  /// once): to = from, and to[i] += from[i], of as many elements.
  void copy_here(std::span<const float> from, std::span<float> to);
  void add_here(std::span<const float> from, std::span<float> to);
  /// slice_of in this world: the slice that `rank` owns of `count` elements.
  Slice own_slice(std::size_t count, int rank) const noexcept { return slice_of(count, rank, size_); }
  /// The first half of a sum: after it, this rank's own_slice of data holds the sum; the rest of data is unspecified.
  void reduce_scatter(std::span<float> data);
  /// Each rank contributes its own_slice of data; after it, all of data is equal on all ranks.
  void all_gather(std::span<float> data);
  void all_gather(std::span<std::byte> data);
  void broadcast(std::span<std::byte> data, int root);
  void barrier();

  /// What comes next where the data live (on the producer's stream; on a host: what this thread does next) sees the
  /// results of everything enqueued so far. Throws what went wrong meanwhile.
  void join();
  /// join(), and waits on the host until everything enqueued so far is done, the producer's stream included. `what` is
  /// a string literal, for messages. Throws PeerError past the deadline, or when a peer has died or its device failed:
  /// names rank, host, device and what was waited for. After that a device communicator takes no more calls.
  void wait(const char* what = "a collective", std::int64_t step = -1);
  /// A step ends here: join(), and a mark on the producer's stream. wait_for_step() waits for the mark as wait() does,
  /// and for nothing that was enqueued after it, as the next batch's upload. Until then neither another step may end
  /// nor wait() be called; else std::logic_error. (On a host, where nothing is enqueued, it is wait() itself.)
  void end_step();
  void wait_for_step(const char* what, std::int64_t step);

  /// What rounding on the wire has kept back so far is forgotten (formats that feed back; else nothing happens).
  virtual void forget_rounding_errors() noexcept {}

  /// What this rank is doing, for the message that peers print if it never arrives ("step 41: backward").
  /// `what` must be a string literal (kept by pointer and copied to shared state); cheap enough for every step.
  void note_activity(const char* what, std::int64_t step) noexcept { do_note_activity(what, step); }

  /// What this rank waits for, if that is not its peers: "waiting for input (x.h5, 12 s)", cut to 127 bytes; "": for
  /// nothing. For the message that peers print. From any thread.
  void note_wait(std::string_view text) { do_note_wait(text); }

  /// From here to end_long_operation this rank may keep its peers waiting past the deadline (it writes a checkpoint, it
  /// reads a slow file system) as long as its process lives; peers call it stuck after 30 deadlines, or
  /// CommunicatorOptions::excuse_seconds if that is longer. Cheap enough for every step. In shared memory
  /// peers look at its process; on the ring a thread sends them heartbeats. Not collective; may be nested; no
  /// collective call before the end. `what` is a string literal, or nullptr: as last noted.
  void begin_long_operation(const char* what = nullptr);
  void end_long_operation() noexcept;

  /// From here on this rank waits so long for its peers (> 0); returns how long it did before. Not collective.
  double set_deadline(double seconds);
  /// For a rank that waits for something else than its peers, every 0.1 s or so: true while a peer is in a long
  /// operation and may keep the others waiting. Throws PeerError when a peer is seen to have died. Not collective,
  /// cheap; not inside a long operation, nor while something is enqueued.
  bool look_at_peers();

  /// Peers that are seen to have died without a word, as far as this rank can see: those on its machine, and its
  /// neighbours. Calls no MPI. Not collective.
  virtual std::vector<int> dead_peers() const { return {}; }

  /// Seconds since construction that computation stood still for collectives (exposed communication).
  virtual double exposed_seconds() const noexcept { return seconds_; }
  /// From here on exposed_seconds() is right for each step. Else a device may read it in some steps only, and take the
  /// steps between for the same: reading costs it a little.
  virtual void measure_every_step() noexcept {}
  /// Seconds that collectives took, hidden by computation or not. Negative: not known (a device's).
  virtual double busy_seconds() const noexcept { return seconds_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  /// Of a communicator that goes on with other ranks.
  void set_position(int rank, int size, int first_rank) noexcept {
    rank_ = rank, size_ = size, first_rank_ = first_rank;
  }
  void set_transport_note(std::string note) { transport_note_ = std::move(note); }
  /// own_slice of data that consist of elements of so many bytes, in bytes.
  Slice own_bytes(std::size_t bytes, std::size_t element_bytes, int rank) const noexcept;

 private:
  virtual std::unique_ptr<std::pmr::memory_resource> do_reduction_memory(std::size_t bytes, MemoryUse use) = 0;
  /// Fills in what other ranks have.
  virtual void do_map(std::span<std::byte>, std::vector<std::byte*>&) const {}
  virtual void do_all_reduce(std::span<float> data) = 0;
  virtual void do_all_reduce(std::span<double> data) = 0;
  virtual void do_urgent_all_reduce(std::span<double> data);
  virtual void do_all_reduce(const TreeTerms& terms);
  virtual void do_copy_here(std::span<const float> from, std::span<float> to);
  virtual void do_add_here(std::span<const float> from, std::span<float> to);
  virtual void do_reduce_scatter(std::span<float> data) = 0;
  /// Of elements of so many bytes.
  virtual void do_all_gather(std::span<std::byte> data, std::size_t element_bytes) = 0;
  virtual void do_broadcast(std::span<std::byte> data, int root) = 0;
  virtual void do_barrier() = 0;
  /// As they are where every collective is done when its call returns.
  virtual void do_join() {}
  virtual void do_wait(const char*, std::int64_t) { do_join(); }
  /// As they are on a host.
  virtual void do_end_step() {}
  virtual void do_wait_for_step(const char* what, std::int64_t step) { do_wait(what, step); }
  virtual void do_note_activity(const char* what, std::int64_t step) noexcept = 0;
  virtual void do_begin_long_operation(const char* what) = 0;
  virtual void do_end_long_operation() noexcept = 0;
  /// These as they are for ranks that wait for nobody.
  virtual void do_note_wait(std::string_view) {}
  virtual double do_set_deadline(double seconds) { return seconds; }
  virtual bool do_look_at_peers() { return false; }

  friend std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);
  void set_first_rank(int rank) noexcept { first_rank_ = rank; }
  /// Checks that no long operation is open, runs `work` and books its time.
  template <class Work>
  void collective(Work work);

  int rank_;
  int size_;
  int first_rank_ = 0;
  int long_operations_ = 0;
  bool step_ended_ = false;  ///< and nobody has waited for it
  double seconds_ = 0;       ///< inside collectives, join() and wait()
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

/// The one place that knows which implementations for hosts exist. Collective. A world of one is serial whatever
/// `options` ask. Transport::automatic is shared memory when all ranks share a machine, two-level when some do, else
/// the ring; the ring with a transport_note() where ranks of a machine cannot share memory. Throws AgreedError when a
/// transport that shares memory is asked for and that cannot be.
std::unique_ptr<Communicator> make_communicator(MpiSession& session, const CommunicatorOptions& options);

}  // namespace lockstep::comm
