/// \file
/// Reduces the gradient arena bucket by bucket while backward produces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Where gradients are cut into buckets. A static rule: nothing is measured at run time, so a run repeats bit for bit.
///
/// In shared memory one bucket holds everything up to 4 MiB (a bucket costs two barriers there).
///
/// Between hosts the first bucket is small (256 KiB) so that the wire starts early, later ones hold 4 MiB, 8 MiB in
/// large worlds. A ring passes a part of 1/`ring_length` of a bucket on 2 (ring_length - 1) times: below 128 KiB (32
/// KiB of the first) that would be all latency, and so would messages below 16 KiB where the ranks of a host share the
/// part. More than 8 MiB only leaves more at the end: between so many hosts sums go by halving (AllReduceLimits). No
/// bucket holds more than a 32nd of all gradients, for where the wire is as fast as the computation it runs
/// a bucket behind; nor more than half of what is left, for beside the last one nothing is left to compute; but
/// always as much as the first.
///
/// With NCCL, which wants more to fill its channels, 1 MiB and 16 MiB.
class BucketRule {
 public:
  /// `ring_length`: Communicator::ring_length(). `bucket_elements` > 0 is the size of
  /// all buckets instead.
  BucketRule(Transport transport, int ranks, int ring_length, std::size_t bucket_elements = 0);

  /// From the slices' ends (elements, ascending: the order in which backward finishes them). Throws
  /// std::invalid_argument.
  std::vector<Slice> cut(std::span<const std::size_t> slice_ends) const;
  /// The sizes, for the plan: "the first up to 256 KiB, then up to 4 MiB".
  std::string text() const;

 private:
  std::size_t first_ = 0, usual_ = 0;  ///< elements
  bool asked_for_ = false;
  bool shrinks_ = false;  ///< where little is left, or little there at all
};

/// Who gets the sums of a bucket: every rank all of them, or each rank those of its slice_of() the bucket, the rest of
/// which then holds no sums.
enum class SumsFor { everybody, owners };

/// Sums with the same bits at any number of ranks: a rank computes the gradients of several terms, one after the other.
struct OrderedTerms {
  const SummationTree* tree = nullptr;  ///< nullptr: one term per rank, in whatever order is the fastest
  std::span<float> kept = {};           ///< tree->most_kept() arrays like the gradients, from the same memory
};

class GradientReducer {
 public:
  /// `gradients` lie where the communicator works; both must outlive the reducer. Its slices become final in ascending
  /// order of offset (the arena is laid out in reverse layer order).
  GradientReducer(Communicator& communicator, std::span<float> gradients, std::vector<Slice> schedule,
                  SumsFor sums_for = SumsFor::everybody, const OrderedTerms& terms = {});

  bool sums_terms() const noexcept { return terms_.tree != nullptr; }
  /// The gradients that follow are those of this rank's term `index` (OrderedTerms): 0, 1, ... The last one comes after
  /// begin_step().
  void begin_term(std::int64_t index);
  void begin_step();
  /// gradients[0, end) is final on this rank: buckets that lie inside are reduced. Of a term before the last: added to
  /// the terms before it, or kept for those to come.
  void ready_up_to(std::size_t end);
  /// Everything is final: what is enqueued from here on (on a host: what is done next) sees the sums over ranks.
  void finish_step();
  /// Each rank's part of one bucket of `arena`, an array like the gradients, to all ranks; finish_gathering() as
  /// finish_step().
  void gather(std::span<float> arena, std::size_t bucket);
  void finish_gathering();

  const std::vector<Slice>& schedule() const noexcept { return schedule_; }
  /// A bucket of the step that has begun is being reduced, or has been.
  bool has_begun_to_reduce() const noexcept { return next_ > 0; }

 private:
  void fold(std::size_t end);

  Communicator& communicator_;
  std::span<float> gradients_;
  std::vector<Slice> schedule_;
  SumsFor sums_for_;
  std::size_t next_ = 0;
  OrderedTerms terms_;
  std::span<const SummationTree::Step> steps_;  ///< of this rank's terms
  std::size_t term_ = 0;
  std::size_t folded_ = 0;  ///< gradients of the term that have been added or kept
};

}  // namespace lockstep::comm
