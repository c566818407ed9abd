/// \file
/// Batches on their way from the host to the operations.
#pragma once

#include <array>
#include <cstdint>

#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model {

/// One batch in host memory. x: [count, features] uint8, float32 or float64 (of images as stored, before augmentation),
/// or int32 tokens. y: int32 [count] classes (of tokens: [count, context]), float32 [count, outputs] for the losses of
/// numbers and labels. count may be 0: the rank still takes part, and the types do not matter.
struct Batch {
  const void* x = nullptr;
  ElementType x_type = ElementType::float32;
  const void* y = nullptr;
  std::int64_t count = 0;
  const std::uint64_t* keys = nullptr;  ///< one per sample (randomness.hpp); nullptr: nothing is random
  /// One per sample, of ModelOptions::weighted: factors of its loss in training; nullptr: 1 each.
  const float* weights = nullptr;
  /// For networks with recurrent state: which of this rank's sequences the first sample belongs to, and whether the
  /// sequences begin anew (their state before is zero).
  std::int64_t first_sequence = 0;
  bool begins = true;
};

/// The slots that batches are copied to, and the network's input that is made of them.
class BatchStage {
 public:
  /// backend and network must outlive the stage.
  BatchStage(Backend& backend, const Network& network, const ModelOptions& options, Purpose purpose);

  /// A batch that operations can read.
  struct Staged {
    StagedBatch data;
    std::int64_t first_sequence = 0;
  };
  /// For training: into the next slot; current_slot() is its number. The host memory must stay until wait() on a
  /// device, and until the operations are done on a host.
  void stage_next(const Batch& batch);
  const Staged& current() const noexcept { return slots_[static_cast<std::size_t>(current_slot_)]; }
  int current_slot() const noexcept { return current_slot_; }
  /// The operations enqueued so far are the last to read the current batch; but for released(), which looks at the
  /// batch that was released last, until another one is staged in its slot.
  void release_current();
  const Staged& released() const noexcept { return slots_[static_cast<std::size_t>(released_slot_)]; }
  /// For evaluation, beside the batches of training, without keys.
  Staged stage_for_evaluation(const Batch& batch);
  void release_evaluation();
  /// No host memory that was staged is needed by a device any more.
  void wait() { backend_.wait_staged(); }

  /// The samples as the network wants them: in place where they are so already, else converted.
  Tensor network_input(const StagedBatch& batch);

  /// What all this takes besides the batches, and for the batches: bytes.
  static std::size_t converted_bytes(const Network& network, const ModelOptions& options, ElementType compute);
  static std::size_t slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose);

 private:
  Staged stage(int slot, const Batch& batch, bool with_keys);

  static constexpr int kTrainingSlots = 2;  ///< one that is worked on, one on its way; an evaluation has one more
  int evaluation_slot() const noexcept { return purpose_ == Purpose::training ? kTrainingSlots : 0; }

  Backend& backend_;
  const Network& network_;
  ModelOptions options_;
  Purpose purpose_;
  Arena converted_;
  std::array<Staged, kTrainingSlots> slots_;
  int current_slot_ = 0, released_slot_ = 0;
};

}  // namespace lockstep::model
