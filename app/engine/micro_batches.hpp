/// \file
/// Micro-batches between the reader and the model.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory_resource>
#include <optional>
#include <string>
#include <vector>

#include "app/engine/mask_labels.hpp"
#include "app/plan/plan.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/prefetcher.hpp"
#include "model/backend.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// This rank's share of a micro-step, and the step's position in the data.
struct MicroBatch {
  model::Batch batch;
  std::int64_t step_count = 0;  ///< samples of the step on all ranks, or on the island: the divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t next_position = 0;  ///< position in the epoch after this step
  double waited = 0;               ///< seconds until the reader delivered it
  /// Masks: number of all positions of the step over the number that have a class. It makes the metric a mean over the
  /// latter.
  double metric_scale = 1;
};

/// Micro-batches from the reading thread, each sample with its key and its weight.
class BatchFeed {
 public:
  struct Options {
    io::FileType x_type = io::FileType::float32, y_type = io::FileType::int32;
    std::uint64_t seed = 1;
    /// The network carries recurrent state, which begins anew with each epoch.
    bool stateful = false;
    std::int64_t most = 1;                        ///< largest number of samples of a micro-batch
    std::pmr::memory_resource* memory = nullptr;  ///< host memory for the keys
    int ranks = 1;                                ///< number of ranks that share the samples of a step
    const LossWeights* weights = nullptr;         ///< weights of the samples; nullptr: 1 each
    /// Masks that need weights: the dataset, from which labels of later micro-batches are read.
    const io::Dataset* labels = nullptr;
    std::int64_t micro_steps = 1;  ///< micro-batches of this rank in a step
    bool sums = false;  ///< true: step_count counts the samples of all ranks; false: those of the communicator's ranks
  };
  /// `prefetcher` and `communicator` must outlive the feed. `communicator` connects the ranks that make a step
  /// together. A rank that waits for its reader tells its peers (a long operation).
  BatchFeed(io::Prefetcher& prefetcher, comm::Communicator& communicator, const Options& options, MaskLabels masks);
  /// Returns the next micro-batch. Collective for the first micro-batch of a step if masks need weights: the ranks add
  /// up the positions of each class, even if one rank's reader fails.
  MicroBatch next();
  /// Call instead of next() at the beginning of a step in which this rank has already failed.
  void miss();
  /// Continues with the first micro-batch of the step at `cursor`.
  void go_on_at(DataCursor cursor) {
    prefetcher_.go_on_at(cursor.epoch, cursor.position);
    micro_ = 0;
  }

 private:
  void take_labels(const io::InputBatch& input, model::Batch& batch);
  void count_labels(const io::InputBatch& input, std::span<const std::int32_t> labels);
  void share_counts();
  void set_factors(std::int64_t samples);
  const io::InputBatch& wait();
  /// Samples of the communicator's ranks, out of `all` in the step.
  std::int64_t samples_together(std::int64_t all) const;

  io::Prefetcher& prefetcher_;
  comm::Communicator& communicator_;
  Options options_;
  std::pmr::vector<std::uint64_t> keys_;
  std::pmr::vector<float> weights_;
  MaskLabels masks_;
  std::int64_t micro_ = 0;      ///< number of the next micro-batch in its step
  std::vector<double> counts_;  ///< positions of each class in the step, on all ranks
  std::vector<float> factors_;  ///< factor of the losses of each class: its weight over the mean weight of a position
  double metric_scale_ = 1;
};

/// Makes the feed of a rank in a job. `prefetcher` delivers this rank's samples.
BatchFeed make_feed(const Plan& plan, model::Backend& backend, io::Prefetcher& prefetcher,
                    comm::Communicator& communicator, std::int64_t micro_steps);

/// Delivers micro-batches.
struct NextMicroBatch {
  /// Returns the next micro-batch; called once for each micro-step. May throw: then the step fails on all ranks.
  std::function<MicroBatch()> next;
  /// Called instead at the beginning of a step that has already failed; may be empty.
  std::function<void()> miss = {};
};
/// Returns the functions of `feed`, which must outlive them.
NextMicroBatch batches_of(BatchFeed& feed);

/// Stages the micro-batches of the steps in the model. A device copies the next micro-batch while it computes the
/// present one. If the reader of a rank fails, this rank gets empty batches for the rest of the step, because the other
/// ranks wait for its part of every sum.
class StagedInput {
 public:
  /// backend and model must outlive the input.
  StagedInput(model::Backend& backend, model::Model& model, NextMicroBatch next);

  /// `error`: reason why this rank has already failed the new step; empty: no failure.
  void begin_step(const std::string& error) {
    error_ = error;
    begins_ = true;
  }
  /// Stages the next micro-batch.
  const MicroBatch& next();
  /// The micro-batch staged last.
  const MicroBatch& current() const noexcept { return current_; }
  /// Marks the work enqueued so far as the last that reads the current micro-batch.
  void release() { model_.release_batch(); }
  /// Says if the next micro-batch belongs to the same step or the next one.
  enum class Ahead { same_step, next_step };
  /// On a device: fetches and stages the next micro-batch. Call after release(). It overwrites the micro-batch before
  /// the current one.
  void fetch_ahead(Ahead ahead);

  /// Reason why this rank fails the step; empty: no failure.
  const std::string& error() const noexcept { return error_; }
  /// Seconds that readers made this rank wait, since construction.
  double waited_seconds() const noexcept { return waited_seconds_; }

 private:
  MicroBatch fetch();
  void take();

  model::Backend& backend_;
  model::Model& model_;
  NextMicroBatch next_;
  MicroBatch current_;
  std::optional<MicroBatch> ahead_;  ///< next micro-batch, if it is fetched and staged already
  std::exception_ptr ahead_error_;   ///< error while fetching it; fails the next step
  std::string error_;
  bool begins_ = false;  ///< the next micro-batch is the first of a step
  double waited_seconds_ = 0;
};

}  // namespace lockstep::app
