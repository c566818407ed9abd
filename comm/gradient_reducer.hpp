/// \file
/// Reduces the gradient arena bucket by bucket while backward produces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

/// Bucket boundaries from the slices' ends (elements, ascending: the order in which backward finishes them), by a
/// static rule: nothing measured at run time, so a run repeats bit for bit. In shared memory one bucket holds
/// everything up to 4 MiB (a bucket costs two barriers there); on the ring the first bucket is small (256 KiB) so that
/// the wire starts early, later ones 4 MiB. `bucket_elements` > 0 overrides.
std::vector<Slice> bucket_schedule(std::span<const std::size_t> slice_ends, const Communicator& communicator,
                                   std::size_t bucket_elements = 0);

class GradientReducer {
 public:
  /// `gradients` must outlive the reducer; its slices become final in ascending order of offset (the arena is laid
  /// out in reverse layer order).
  GradientReducer(Communicator& communicator, std::span<float> gradients, std::vector<Slice> schedule);

  void begin_step();
  /// gradients[0, end) is final on this rank: buckets that lie inside are reduced.
  void ready_up_to(std::size_t end);
  /// Everything is final; returns when every bucket is the sum over ranks.
  void finish_step();

  const std::vector<Slice>& schedule() const noexcept { return schedule_; }
  /// Seconds the calling thread spent waiting for communication since construction (exposed communication).
  double exposed_seconds() const noexcept { return exposed_seconds_; }

 private:
  Communicator& communicator_;
  std::span<float> gradients_;
  std::vector<Slice> schedule_;
  std::size_t next_ = 0;
  double exposed_seconds_ = 0;
};

}  // namespace lockstep::comm
