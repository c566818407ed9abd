/// \file
/// A thread that reads the next batches during the computation of the current one.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>

#include "io/datasets/dataset.hpp"
#include "io/datasets/sample_order.hpp"

namespace lockstep::io {

struct PrefetcherOptions {
  SampleOrderOptions order = {};  ///< shard_counts, sample_bytes, block_multiple come from the dataset
  /// Stateful batches instead of shuffled ones, for networks that carry state from one batch to the next. Sequence l of
  /// `global_batch` sequences consists of samples l W, l W + 1, ..., l W + W - 1 in this order, W = floor(samples /
  /// global batch); step k has sample k of every sequence. A rank (and each of its micro-batches) has the same
  /// sequences in every step: [r B / R, (r + 1) B / R). Samples after the last sequence are left out.
  bool stateful = false;
  std::int64_t global_batch = 1;  ///< samples per step over all ranks; the last step of an epoch may have fewer
  std::int64_t accumulate = 1;    ///< micro-batches per step: a rank's share of a step comes in this many batches
  int rank = 0;
  int world = 1;
  /// > 1: one reader for the ranks [rank, rank + parts); the share of each is one micro-batch, and accumulate is 1.
  int parts = 1;
  std::int64_t first_epoch = 0;
  std::int64_t first_position = 0;              ///< position within first_epoch; for resume
  int depth = 3;                                ///< batches in flight
  bool foresees_steps = false;                  ///< InputBatch::of_step is filled in
  std::pmr::memory_resource* memory = nullptr;  ///< pinned host memory for GPUs; nullptr: the default resource
};

/// A batch; valid until the next call of next().
struct InputBatch {
  std::span<const std::byte> x;
  std::span<const std::byte> y;
  std::int64_t count = 0;       ///< this rank's samples in this micro-batch (may be 0)
  std::int64_t step_count = 0;  ///< samples of the whole step over all ranks and micro-batches: divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t position = 0;              ///< position of the step's first sample within the epoch
  std::int64_t next_position = 0;         ///< position after this step; == epoch_samples() at the end of an epoch
  std::int64_t micro = 0;                 ///< 0 … accumulate - 1, or parts - 1
  std::span<const std::int64_t> samples;  ///< indices in the dataset
  /// First micro-batch of a step, with foresees_steps: the samples of all of this reader's micro-batches of the step.
  std::span<const std::int64_t> of_step;
  std::int64_t first_sequence = 0;  ///< stateful: index of this micro-batch's first sequence among the rank's own
};

/// Samples of an epoch: the whole dataset, or the samples in stateful batches (PrefetcherOptions::stateful).
std::int64_t epoch_samples(std::int64_t samples, std::int64_t global_batch, bool stateful) noexcept;

class Prefetcher {
 public:
  /// dataset must outlive the prefetcher. Reading starts at once. Throws std::invalid_argument for stateful batches
  /// that are larger than the dataset, or for a position inside a step.
  Prefetcher(const Dataset& dataset, PrefetcherOptions options);
  ~Prefetcher();  ///< stops the thread; blocks at most for one batch's read

  /// The next micro-batch; never ends, but continues with the next epoch. Rethrows the reading thread's exception
  /// (FileError) at the batch that it concerns.
  const InputBatch& next();
  /// As next(), if the batch arrives within `limit`; otherwise nullptr.
  const InputBatch* next_within(std::chrono::milliseconds limit);
  /// Continues with the step at this position of this epoch (or, if the epoch ends there, with the next one's first
  /// step). Costs at most the batches already read, at any distance. Forgets an exception that next() threw; the last
  /// batch is no longer valid.
  void go_on_at(std::int64_t epoch, std::int64_t position);
  /// Total seconds for which next() has waited: input stall.
  double stall_seconds() const noexcept;

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace lockstep::io
