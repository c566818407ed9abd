/// \file
/// One thread that reads the next batches while the current one is computed.
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
  SampleOrderOptions order = {};  ///< shard_counts, sample_bytes, block_multiple are filled in from the dataset
  /// Stateful batches instead of shuffled ones: sequence l of `global_batch` sequences goes through samples l W, l W +
  /// 1, ..., l W + W - 1 in this order, W = floor(samples / global batch); step k is sample k of every sequence. A rank
  /// (and each of its micro-batches) has the same sequences in every step: [r B / R, (r + 1) B / R). Samples behind the
  /// last sequence are left out. For networks that carry state from one batch to the next.
  bool stateful = false;
  std::int64_t global_batch = 1;  ///< samples per step over all ranks; the last step of an epoch may have fewer
  std::int64_t accumulate = 1;    ///< micro-batches a step is cut into: a step's part is delivered in this many batches
  int rank = 0;
  int world = 1;
  /// > 1: one reader for the ranks [rank, rank + parts), each of whose parts is a micro-batch; accumulate is 1 then.
  int parts = 1;
  std::int64_t first_epoch = 0;
  std::int64_t first_position = 0;              ///< within first_epoch; resume
  int depth = 3;                                ///< batches in flight
  std::pmr::memory_resource* memory = nullptr;  ///< pinned host memory for GPUs; nullptr: the default resource
};

/// Valid until the next call of next().
struct InputBatch {
  std::span<const std::byte> x;
  std::span<const std::byte> y;
  std::int64_t count = 0;       ///< this rank's samples in this micro-batch (may be 0)
  std::int64_t step_count = 0;  ///< samples of the whole step over all ranks and micro-batches: the divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t position = 0;              ///< of the step's first sample within the epoch
  std::int64_t next_position = 0;         ///< position after this step; == epoch_samples() at the end of an epoch
  std::int64_t micro = 0;                 ///< 0 … accumulate - 1, or parts - 1
  std::span<const std::int64_t> samples;  ///< their indices in the dataset
  std::int64_t first_sequence = 0;        ///< stateful: this micro-batch begins at this one of the rank's own sequences
};

/// Samples of an epoch: all of the dataset, or what stateful batches hold (PrefetcherOptions::stateful).
std::int64_t epoch_samples(std::int64_t samples, std::int64_t global_batch, bool stateful) noexcept;

class Prefetcher {
 public:
  /// dataset must outlive the prefetcher. Starts reading at once. Throws std::invalid_argument for stateful batches
  /// that are larger than the dataset, or from a position inside of a step.
  Prefetcher(const Dataset& dataset, PrefetcherOptions options);
  ~Prefetcher();  ///< stops the thread; never blocks longer than one batch's read

  /// The next micro-batch; goes on into the next epoch for ever. Rethrows what the reading thread met (FileError), at
  /// the batch where it met it.
  const InputBatch& next();
  /// The same, if it is there within `limit`; else nullptr.
  const InputBatch* next_within(std::chrono::milliseconds limit);
  /// The batches from here on are those of the step that begins at this position of this epoch (or, where the epoch
  /// ends there, of the next one's first step), and of the steps behind it. Costs at most the reading that it drops, no
  /// matter how far it is. What next() met is forgotten; the last batch is no longer valid.
  void go_on_at(std::int64_t epoch, std::int64_t position);
  /// Seconds next() has waited, in all: input stall.
  double stall_seconds() const noexcept;

 private:
  struct Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace lockstep::io
