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
#include "app/plan/workload.hpp"
#include "comm/communicator.hpp"
#include "io/datasets/prefetcher.hpp"
#include "model/backend.hpp"
#include "model/model.hpp"

namespace lockstep::app {

/// This rank's share of a micro-step, and the step's position in the data.
struct MicroBatch {
  model::Batch batch;
  std::int64_t step_count = 0;  ///< samples of the whole step, or of an island's: the divisor of the loss
  std::int64_t epoch = 0;
  std::int64_t next_position = 0;  ///< position in the epoch after this step
  double waited = 0;               ///< seconds until the reader delivered it
  /// Masks: all positions of the step over those that have a class, by which its metric is a mean over these.
  double metric_scale = 1;
};

/// Micro-batches from the reading thread, each sample with its key and its weight.
class BatchFeed {
 public:
  struct Options {
    io::FileType x_type = io::FileType::float32, y_type = io::FileType::int32;
    std::uint64_t seed = 1;
    bool stateful = false;                        ///< sequences begin anew with each epoch
    std::int64_t most = 1;                        ///< largest number of samples of a micro-batch
    std::pmr::memory_resource* memory = nullptr;  ///< host memory for the keys
    int ranks = 1;                                ///< number of ranks that share the samples of a step
    const LossWeights* weights = nullptr;         ///< weights of the samples; nullptr: 1 each
    const io::Dataset* labels = nullptr;  ///< masks that need weights: the data, for labels of later micro-batches
    std::int64_t micro_steps = 1;         ///< micro-batches of this rank in a step
    bool sums = false;  ///< step_count covers all ranks' samples, wherever they are computed; otherwise those of the
                        ///< communicator
  };
  /// Both must outlive the feed. `communicator`: between the ranks that make a step together. A rank whose reader is
  /// late tells its peers (a long operation).
  BatchFeed(io::Prefetcher& prefetcher, comm::Communicator& communicator, const Options& options, MaskLabels masks);
  /// The next micro-batch. Collective for the first one of a step whose masks need weights: ranks add up the positions
  /// of each class, even if the reader of one fails.
  MicroBatch next();
  /// Stands for next() at the begin of a step in which this rank fails already.
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
  std::vector<float> factors_;  ///< factor of each class' losses: its weight over the mean weight of a position
  double metric_scale_ = 1;
};

/// The feed of a job's rank: `parts` of its samples come from `prefetcher`.
BatchFeed make_feed(const Plan& plan, model::Backend& backend, io::Prefetcher& prefetcher,
                    comm::Communicator& communicator, std::int64_t micro_steps);

/// Delivers micro-batches.
struct NextMicroBatch {
  /// The next one; called once for each micro-step. May throw: the step then fails on all ranks.
  std::function<MicroBatch()> next;
  /// Called instead at the begin of a step that fails already; empty: nothing to do.
  std::function<void()> miss = {};
};
/// Both from the feed, which must outlive them.
NextMicroBatch batches_of(BatchFeed& feed);

/// The micro-batches of the steps, staged in the model. A device copies the next one while it works on the present one.
/// A rank whose reader fails gets empty batches for the rest of the step, because the other ranks wait for its part of
/// every sum.
class StagedInput {
 public:
  /// backend and model must outlive the input.
  StagedInput(model::Backend& backend, model::Model& model, NextMicroBatch next);

  /// `error`: reason why this rank fails the new step; empty: no failure so far.
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
  /// The step of the micro-batch after the current one.
  enum class Ahead { same_step, next_step };
  /// On a device: fetches and stages the micro-batch after the current one, which must have been released. It replaces
  /// the one before the current one.
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
  std::optional<MicroBatch> ahead_;  ///< already fetched and staged
  std::exception_ptr ahead_error_;   ///< error of fetching it: fails the next step
  std::string error_;
  bool begins_ = false;  ///< the next micro-batch is the first one of a step
  double waited_seconds_ = 0;
};

}  // namespace lockstep::app
