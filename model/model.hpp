/// \file
/// The arenas of a training run and what is done to them: one object per rank. Allocates everything in the
/// constructor and nothing afterwards.
///
/// One step is: stage() a batch, forward_backward() it (once per micro-step), reduce the gradients over the ranks,
/// tally() this rank's ballot, reduce the ballot, finish_gradients(), update(), post_results(). All of that is
/// enqueued; what came of it is in results() after synchronising. Nothing in between depends on a number that the host
/// would have to wait for: an update that must not happen (a rank failed, a number is not finite) closes its own gate.
///
/// Where ranks share the update (ModelOptions::owned) each one needs the sums of its own parts of the gradients alone.
/// Before the ballot goes out, finish_gradients() adds what a rank sees of their norm; after update() the owners bring
/// each other weights(), and parameters_were_brought().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/optimizer.hpp"
#include "model/owned_parts.hpp"

namespace lockstep::model {

/// Numbers that are summed over the ranks in each step; the first three are the model's (loss, metric, obstacles), the
/// others pass through.
inline constexpr std::size_t kBallotSize = 9;

/// One batch in host memory. x: [count, features] uint8, float32 or float64 (of images as stored, before augmentation),
/// or int32 tokens. y: int32 [count] labels for cross-entropy (of tokens: [count, context]), float32 [count, outputs]
/// for squared error. count may be 0: the rank still takes part.
struct Batch {
  const void* x = nullptr;
  ElementType x_type = ElementType::float32;
  const void* y = nullptr;
  std::int64_t count = 0;
  const std::uint64_t* keys = nullptr;  ///< one per sample (randomness.hpp); nullptr: nothing is random
  /// For networks that carry state: which lane of this rank the first sample belongs to, and whether the lanes begin
  /// anew (the state before is zero).
  std::int64_t first_lane = 0;
  bool begins = true;
};

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  InputTransform input_transform = {};
  /// Instead of the transform, for images; in evaluation without chance.
  std::optional<Augmentation> augmentation = {};
  float label_smoothing = 0;  ///< of the training loss
  OptimizerOptions optimizer = {};
  std::int64_t max_batch = 1;                      ///< samples per call of forward_backward or evaluate
  ElementType sample_type = ElementType::float32;  ///< of the largest x that will come, for batches that are copied
  /// Where the gradient arena lives (the communicator's reduction memory); nullptr: the backend's memory.
  std::pmr::memory_resource* gradient_memory = nullptr;
  /// Where the parameter arena lives, likewise: for owners of parts, who bring each other theirs.
  std::pmr::memory_resource* parameter_memory = nullptr;
  std::int64_t lanes = 0;            ///< most lanes of this rank, over all micro-batches; 0: max_batch
  SumOverRanks sum_over_ranks = {};  ///< for networks that synchronise within a pass; empty: a world of one
  /// The parts of the arenas that this model updates, and keeps the optimiser's state of; empty: all. Not with rules
  /// that look at whole parameters (lars, lamb).
  std::vector<ArenaRange> owned = {};
  bool training = true;  ///< false: no gradients and no optimiser state (eval); the average stays, if asked for
};

using PartUpdated = std::function<void(std::size_t index)>;

enum class Weights { current, average };

/// A named piece of the state, for checkpoints: the same order and names on every rank.
struct StateTensor {
  std::string group;  ///< "parameters", "velocity", "first_moment", "second_moment", "average"
  std::string name;   ///< parameter name
  std::vector<std::int64_t> shape;
  std::size_t offset = 0;  ///< elements, within the group's arena
  std::size_t count = 0;
};

/// Bytes by purpose, before anything is allocated.
struct MemoryPlan {
  std::size_t parameters = 0;  ///< with their copy in the compute type, where that is another one
  std::size_t gradients = 0, optimizer = 0, average = 0;
  std::size_t activations = 0;  ///< with what a network carries from batch to batch
  std::size_t input = 0;        ///< batches on their way to a device
  std::size_t total() const noexcept { return parameters + gradients + optimizer + average + activations + input; }
};
/// What an element takes where, and whether batches are copied.
struct MemoryTypes {
  ElementType compute = ElementType::float32;
  ElementType master = ElementType::float32;
  bool is_host = true;
};
MemoryTypes memory_types(const Backend& backend);
MemoryTypes memory_types_on_gpu(Precision precision) noexcept;
MemoryPlan plan_memory(const Network& network, const ModelOptions& options, const MemoryTypes& types);

class Model {
 public:
  /// backend and network must outlive the model.
  Model(Backend& backend, const Network& network, const ModelOptions& options);
  ~Model();
  Model(Model&& other) noexcept;

  const Network& network() const noexcept;
  /// For batches: copies from there to a device are the fastest.
  std::pmr::memory_resource* host_memory() const noexcept { return backend_.host_memory(); }
  void initialize(std::uint64_t seed);

  /// The batch that forward_backward works on next. Its memory must stay until wait_staged() on a device, and until the
  /// step is over on a host. A device copies it beside the computation: the next batch may be staged as soon as
  /// the one before has been released.
  void stage(const Batch& batch);
  /// No host memory given to stage() is needed by a device any more.
  void wait_staged();
  /// The slot of the batch that forward_backward works on next: recorded work differs by it.
  int slot() const noexcept { return staged_; }

  /// Forward, loss, backward on the staged batch. Gradients of the loss times `scale` (1 / global batch, folded in here
  /// and nowhere else; where a sample has several positions, so is the mean over them) are written (Accumulate::no) or
  /// added, and so are the sums of loss and metric. A batch of 0 samples zeroes the gradients (Accumulate::no) and
  /// calls ready as usual. `ready` may be empty.
  void forward_backward(double scale, Accumulate accumulate, const GradientReady& ready);
  /// forward_backward has been enqueued for the staged batch: nothing that comes later reads it, but for
  /// locate_not_finite. Outside recorded work, after every forward_backward.
  void release_batch();
  /// Instead of forward_backward, by a rank that has failed and contributes nothing: takes part in whatever the network
  /// sums over ranks, leaves gradients and sums zero, calls ready as usual.
  void take_part_with_nothing(const GradientReady& ready);
  /// Sums over the rows (samples, or positions of samples) of the batch; synchronises.
  LossSums evaluate(const Batch& batch, Weights weights = Weights::current);
  /// The network's output for row `row` of the batch, for generating text; y may be nullptr. Synchronises.
  void predict(const Batch& batch, Weights weights, std::int64_t row, std::span<float> out);

  /// Whether the loss of the micro-steps so far is a finite number; synchronises.
  bool sums_are_finite();

  /// What this rank says in the step's small reduction; outside recorded work.
  void write_ballot(std::span<const double, kBallotSize> ballot);
  /// Adds loss, metric and a possible obstacle (a loss that is not finite) to the ballot.
  void tally();
  /// The ballot in the backend's memory, for the reduction; where ranks share the update, with one more number: the sum
  /// of squares of the owned gradients, which finish_gradients() has put there.
  std::span<double> ballot();
  /// The numbers of the update; outside recorded work.
  void write_rule(const UpdateRule& rule);
  /// Adds the L2 gradient (if any) and takes the sum of squares, of the owned parts. After the reduction, before
  /// update.
  void finish_gradients();
  /// The owned parts, unless the ballot holds an obstacle or the gradients are not finite. `updated` is called once for
  /// each of ModelOptions::owned, in their order, when that part is as it will be; it may be empty.
  void update(const PartUpdated& updated = {});
  /// Nobody shares the update with this model.
  bool updates_all() const noexcept;
  /// The arena of the weights, float32 in the backend's memory, for owners who bring each other their parts; throws
  /// where it is not float32. The average has its owners' values in their parts alone until it is brought, too.
  std::span<float> weights(Weights weights);
  /// Somebody wrote to weights(Weights::current): brings the copy that products read up to date.
  void parameters_were_brought();
  /// Brings ballot and gradient norm to the host.
  void post_results();
  struct Results {
    std::array<double, kBallotSize> ballot;
    double gradient_norm = 0;  ///< NaN and infinity come through
  };
  /// After post_results() and synchronising.
  Results results() const;

  /// l2/2 |w|^2 over the decayed parameters: the part of the loss that no sample owns.
  double l2_loss();

  /// Runs forward and backward once more on the batch that was released last, without reducing, and says where
  /// the first non-finite number appears, in the order of the computation: "input", "parameter dense_1/weight",
  /// "layer dense_2 (forward)", "loss", "gradient of dense_1/weight", or "" if all is finite here. Overwrites the
  /// gradients.
  std::string locate_not_finite();

  /// The gradient arena, float32 in the backend's memory, for the reducer; throws where gradients are not float32.
  std::span<float> gradients();
  /// The same on the host.
  void download_gradients(std::span<float> out);
  /// All state that a checkpoint holds.
  std::vector<StateTensor> state_tensors() const;
  std::vector<std::string> state_groups() const;
  /// Copy of one group's arena as fp32 host memory, `arena_elements` long, and back. Uploading "parameters" sets the
  /// average to the same values (as initialize does): upload "average" after it. Of the optimiser's state the owned
  /// parts are copied; what others own is left alone.
  void download_group(std::string_view group, std::span<float> out);
  /// `out` = `range` of a group's arena; of the optimiser's state all of it must be in one owned part.
  void download_range(std::string_view group, const ArenaRange& range, std::span<float> out);
  void upload_group(std::string_view group, std::span<const float> in);
  std::size_t arena_elements() const noexcept;
  /// What the network carries from batch to batch in training, lane by lane: float32 [lanes, carried_elements()].
  std::int64_t carried_elements() const noexcept;
  void download_carried(std::int64_t lanes, std::span<float> out);
  void upload_carried(std::int64_t lanes, std::span<const float> in);

 private:
  struct Arenas;
  struct Staged;
  Staged bring(int slot, const Batch& batch, bool training);
  const Staged& batch(int slot) const;
  LossOptions loss_options(double scale) const;
  template <class Work>
  void for_each_carried(std::int64_t lanes, const Work& work);
  /// The samples as the network wants them: in place where they are so already, else converted.
  Tensor input(const StagedBatch& batch);
  Pass pass(const Staged& batch, Weights weights, bool training);
  Pass training_pass(const Staged& batch, double scale);
  void loss(const Pass& pass, const Tensor& output, const Tensor& y, const LossOptions& options, const Tensor& sums);
  void begin_lanes(const Batch& batch, bool training);
  Tensor evaluation_output(const Pass& pass, Weights weights);
  double scalar_now(std::size_t offset);
  double squares_now(const Tensor& x);
  void require_training(const char* operation) const;
  void update_part(const OwnedParts::Part& part);
  const Tensor& group(std::string_view name) const;
  bool is_optimizer_state(std::string_view name) const;
  void require_arena(std::size_t elements) const;
  /// Fills the copy of the weights that products read, where that is another arena.
  void refresh_shadow(Weights weights);

  Backend& backend_;
  const Network& network_;
  ModelOptions options_;
  std::unique_ptr<Arenas> arenas_;
  int staged_ = 0;  ///< slot of the batch that forward_backward takes next
  int worked_ = 0;  ///< slot of the batch that was released last
};

}  // namespace lockstep::model
