/// \file
/// The arenas of a training run and what is done to them: one object per rank. Allocates everything in the
/// constructor and nothing afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/backend.hpp"
#include "model/network.hpp"
#include "model/optimizer.hpp"

namespace lockstep::model {

/// One batch in host memory. x: [count, features] uint8, float32 or float64. y: int32 [count] labels for cross-entropy,
/// float32 [count, outputs] for squared error. count may be 0: the rank still takes part.
struct Batch {
  const void* x = nullptr;
  ElementType x_type = ElementType::float32;
  const void* y = nullptr;
  std::int64_t count = 0;
};

struct ModelOptions {
  LossKind loss = LossKind::softmax_cross_entropy;
  InputTransform input_transform = {};
  OptimizerOptions optimizer = {};
  std::int64_t max_batch = 1;  ///< samples per call of forward_backward or evaluate
  /// Where the gradient arena lives (the communicator's reduction memory); nullptr: the backend's memory.
  std::pmr::memory_resource* gradient_memory = nullptr;
  bool training = true;  ///< false: no gradients and no optimiser state (eval); the average stays, if asked for
};

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
  std::size_t parameters = 0, gradients = 0, optimizer = 0, average = 0, activations = 0;
  std::size_t total() const noexcept { return parameters + gradients + optimizer + average + activations; }
};
MemoryPlan plan_memory(const Network& network, const ModelOptions& options, ElementType compute_type);

class Model {
 public:
  /// backend and network must outlive the model.
  Model(Backend& backend, const Network& network, const ModelOptions& options);
  ~Model();
  Model(Model&& other) noexcept;

  const Network& network() const noexcept;
  void initialize(std::uint64_t seed);

  /// Forward, loss, backward. Gradients of the loss times `scale` (1 / global batch, folded in here and nowhere else)
  /// are written (Accumulate::no) or added. Returns unscaled sums over this batch. A batch of 0 samples zeroes the
  /// gradients (Accumulate::no) and calls ready as usual. `ready` may be empty.
  LossSums forward_backward(const Batch& batch, double scale, Accumulate accumulate, const GradientReady& ready);
  /// This rank contributes nothing: zero gradients, ready called for the whole arena.
  void zero_gradients(const GradientReady& ready);
  LossSums evaluate(const Batch& batch, Weights weights = Weights::current);

  /// Adds the L2 gradient (if any) and returns the global norm. After the reduction, before update. NaN/inf come
  /// through.
  double finish_gradients();
  /// l2/2 |w|^2 over the decayed parameters: the part of the loss that no sample owns.
  double l2_loss();
  void update(const UpdateRule& rule);

  /// Runs forward and backward on `batch` without reducing and says where the first non-finite number appears, in the
  /// order of the computation: "input", "parameter dense_1/weight", "layer dense_2 (forward)", "loss", "gradient of
  /// dense_1/weight", or "" if all is finite here. Overwrites the gradients.
  std::string locate_not_finite(const Batch& batch);

  /// The gradient arena as fp32 host memory, for the reducer (CPU backends with float32 compute; throws otherwise).
  std::span<float> gradients();
  /// All state that a checkpoint holds.
  std::vector<StateTensor> state_tensors() const;
  std::vector<std::string> state_groups() const;
  /// Copy of one group's arena as fp32 host memory, `arena_elements` long, and back. Uploading "parameters" sets the
  /// average to the same values (as initialize does): upload "average" after it.
  void download_group(std::string_view group, std::span<float> out);
  void upload_group(std::string_view group, std::span<const float> in);
  std::size_t arena_elements() const noexcept;

 private:
  struct Arenas;
  /// The samples as the backend wants them: in place where it can read them so, else converted.
  Tensor input_of(const Batch& batch);
  NetworkMemory memory(Weights weights) const;
  LossSums loss(const Tensor& output, const Batch& batch, double scale, bool want_gradient);
  void require_training(const char* operation) const;
  const Tensor& group(std::string_view name) const;

  Backend& backend_;
  const Network& network_;
  ModelOptions options_;
  std::unique_ptr<Arenas> arenas_;
};

}  // namespace lockstep::model
