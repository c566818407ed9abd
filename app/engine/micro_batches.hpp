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
    bool sums = false;  ///< step_count covers all ranks' samples, wherever they are computed; otherwise those of the
                        ///< communicator
  };
  /// Both must outlive the feed. `communicator`: between the ranks that make a step together. A rank whose reader is
  /// late tells its peers (a long operation).
  BatchFeed(io::Prefetcher& prefetcher, comm::Communicator& communicator, const Options& options);
  MicroBatch next();
  /// Continues with the first micro-batch of the step at `place`.
  void go_on_at(DataPlace place) { prefetcher_.go_on_at(place.epoch, place.position); }

 private:
  const io::InputBatch& wait();
  /// Samples of the communicator's ranks, out of `all` in the step.
  std::int64_t samples_together(std::int64_t all) const;

  io::Prefetcher& prefetcher_;
  comm::Communicator& communicator_;
  Options options_;
  std::pmr::vector<std::uint64_t> keys_;
  std::pmr::vector<float> weights_;
};

/// Options for a job of `ranks` ranks.
BatchFeed::Options feed_options(const Plan& plan, model::Backend& backend);

/// Delivers the next micro-batch; called once for each micro-step. May throw: the step then fails on all ranks.
using NextMicroBatch = std::function<MicroBatch()>;

/// The micro-batches of the steps, staged in the model. A device copies the next one while it works on the present one.
/// A rank whose reader fails gets empty batches for the rest of the step, because the other ranks wait for its part of
/// every sum.
class StagedInput {
 public:
  /// backend and model must outlive the input.
  StagedInput(model::Backend& backend, model::Model& model, NextMicroBatch next);

  /// `error`: reason why this rank fails the new step; empty: no failure so far.
  void begin_step(const std::string& error) { error_ = error; }
  /// Stages the next micro-batch.
  const MicroBatch& next();
  /// The micro-batch staged last.
  const MicroBatch& current() const noexcept { return current_; }
  /// Marks the work enqueued so far as the last that reads the current micro-batch.
  void release() { model_.release_batch(); }
  /// On a device: fetches and stages the micro-batch after the current one, which must have been released. It replaces
  /// the one before the current one.
  void fetch_ahead();

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
  double waited_seconds_ = 0;
};

}  // namespace lockstep::app
