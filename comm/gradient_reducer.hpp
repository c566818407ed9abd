/// \file
/// Reduces the gradient arena bucket by bucket while backward produces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/reduction.hpp"

namespace lockstep::comm {

/// Bucket boundaries from the slices' ends (elements, ascending: the order in which backward finishes them), by a
/// static rule: nothing measured at run time, so a run repeats bit for bit. In shared memory one bucket holds
/// everything up to 4 MiB (a bucket costs two barriers there); between hosts the first bucket is small (256 KiB) so
/// that the wire starts early, later ones 4 MiB, and both grow with the world once a rank's part of a bucket falls
/// below 128 KiB (`ranks` x 32 KiB and `ranks` x 128 KiB; 64 MiB at most): a ring passes that part on 2 (ranks - 1)
/// times, and smaller ones would be all latency. With NCCL, which wants more to fill its channels, 1 MiB and 16 MiB.
/// `transport`: a transport_name(). `bucket_elements` > 0 overrides.
std::vector<Slice> bucket_schedule(std::span<const std::size_t> slice_ends, std::string_view transport, int ranks,
                                   std::size_t bucket_elements = 0);

/// What the rule above says for this transport and world, in a sentence for the plan: "first 256 KiB, then 4 MiB".
std::string bucket_rule(std::string_view transport, int ranks, std::size_t bucket_elements = 0);

/// Gradients that travel as bfloat16: half the bytes. `pack` rounds a range of the gradients into the same range of
/// `buffer`, `unpack` brings all of it back; both are enqueued on the stream that makes the gradients.
struct Bf16Wire {
  std::span<std::uint16_t> buffer;  ///< as long as the gradients, where they live
  std::function<void(Slice)> pack;
  std::function<void()> unpack;
};

/// How gradients travel.
struct GradientWire {
  std::optional<Bf16Wire> device = {};  ///< on GPUs
  Wire host = {};                       ///< between hosts; a residual is as long as the gradients
};

/// Who gets the sums of a bucket: every rank all of them, or each rank those of its shard_of() the bucket, the rest of
/// which then holds no sums.
enum class SumsFor { everybody, owners };

class GradientReducer {
 public:
  /// `gradients` must outlive the reducer; its slices become final in ascending order of offset (the arena is laid
  /// out in reverse layer order).
  GradientReducer(Reduction& reduction, std::span<float> gradients, std::vector<Slice> schedule, GradientWire wire = {},
                  SumsFor sums_for = SumsFor::everybody);

  void begin_step();
  /// gradients[0, end) is final on this rank: buckets that lie inside are reduced.
  void ready_up_to(std::size_t end);
  /// Everything is final: what is enqueued from here on (on a host: what is done next) sees the sums over ranks.
  void finish_step();
  /// Each rank's shard of one bucket of `arena`, an array like the gradients, to all ranks; finish_gathering() as
  /// finish_step().
  void gather(std::span<float> arena, std::size_t bucket);
  void finish_gathering();

  const std::vector<Slice>& schedule() const noexcept { return schedule_; }

 private:
  Reduction& reduction_;
  std::span<float> gradients_;
  std::vector<Slice> schedule_;
  GradientWire wire_;
  SumsFor sums_for_;
  std::size_t next_ = 0;
};

}  // namespace lockstep::comm
