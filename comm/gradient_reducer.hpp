/// \file
/// Reduces the gradient arena bucket by bucket during the backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Cuts gradients into buckets. A static rule: nothing is measured at run time, so a run repeats bit for bit.
///
/// In shared memory one bucket holds everything up to 4 MiB (each bucket costs two barriers there).
///
/// Between hosts the first bucket is small (256 KiB), so that communication starts early. Later ones hold 4 MiB, or 8
/// MiB in large worlds. A ring sends a part of 1/`ring_length` of a bucket 2 (ring_length - 1) times. Parts below 128
/// KiB (32 KiB in the first bucket) would only cost latency, and so would messages below 16 KiB if the ranks of a host
/// share the part. More than 8 MiB would only leave more communication at the end, because sums between so many hosts
/// use halving (AllReduceLimits).
///
/// A bucket holds at most 1/32 of all gradients, because a network as fast as the computation runs one bucket behind.
/// It holds at most half of the remaining ones, because nothing overlaps with the last bucket. It never holds less than
/// the first bucket.
///
/// With NCCL the sizes are 1 MiB and 16 MiB, because it needs more to fill its channels.
class BucketRule {
 public:
  /// `ring_length`: Communicator::ring_length(). `bucket_elements` > 0 replaces the size of all buckets.
  BucketRule(Transport transport, int ranks, int ring_length, std::size_t bucket_elements = 0);

  /// Cuts at the ends of slices (elements, ascending: the order in which backward finishes them). Throws
  /// std::invalid_argument.
  std::vector<Slice> cut(std::span<const std::size_t> slice_ends) const;
  /// The sizes, for the plan: "the first up to 256 KiB, then up to 4 MiB".
  std::string text() const;

 private:
  std::size_t first_ = 0, usual_ = 0;  ///< elements
  bool asked_for_ = false;
  bool shrinks_ = false;  ///< smaller buckets near the end, and for few gradients
};

/// Ranks that receive a bucket's sums. everybody: each rank receives all of them. owners: each rank receives those of
/// its slice_of() the bucket; the rest of the bucket is then unspecified.
enum class SumsFor { everybody, owners };

/// Sums with the same bits for any number of ranks: a rank computes the gradients of several terms in sequence.
struct OrderedTerms {
  const SummationTree* tree = nullptr;  ///< nullptr: one term per rank, in the fastest order
  std::span<float> kept = {};           ///< tree->most_kept() arrays like the gradients, in the same memory
};

class GradientReducer {
 public:
  /// `gradients` are in the communicator's memory; both must outlive the reducer. The slices become final in ascending
  /// order of offset (the arena is laid out in reverse layer order).
  GradientReducer(Communicator& communicator, std::span<float> gradients, std::vector<Slice> schedule,
                  SumsFor sums_for = SumsFor::everybody, const OrderedTerms& terms = {});

  bool sums_terms() const noexcept { return terms_.tree != nullptr; }
  /// Announces the gradients of this rank's term `index` (OrderedTerms): 0, 1, ... The last term comes after
  /// begin_step().
  void begin_term(std::int64_t index);
  void begin_step();
  /// gradients[0, end) is final on this rank: reduces the buckets inside. For a term before the last: adds it to the
  /// earlier terms, or keeps it for later ones.
  void ready_up_to(std::size_t end);
  /// All gradients are final on this rank: later work on the communicator's memory sees the sums over ranks.
  void finish_step();
  /// Gathers each rank's part of one bucket of `arena`, an array like the gradients, on all ranks; finish_gathering()
  /// corresponds to finish_step().
  void gather(std::span<float> arena, std::size_t bucket);
  void finish_gathering();

  const std::vector<Slice>& schedule() const noexcept { return schedule_; }
  /// True if a bucket of the present step has been enqueued.
  bool has_begun_to_reduce() const noexcept { return next_ > 0; }

 private:
  void fold(std::size_t end);

  Communicator& communicator_;
  std::span<float> gradients_;
  std::vector<Slice> schedule_;
  SumsFor sums_for_;
  std::size_t next_ = 0;
  OrderedTerms terms_;
  std::span<const SummationTree::Step> steps_;  ///< steps of this rank's terms
  std::size_t term_ = 0;
  std::size_t folded_ = 0;  ///< elements of the term that have been added or kept
};

}  // namespace lockstep::comm
