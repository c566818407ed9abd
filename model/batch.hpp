/// \file
/// Copies batches from the host to memory that operations can read.
#pragma once

#include <array>
#include <cstdint>

#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model {

/// One batch in host memory. x: [count, features] uint8, float32 or float64 (images as stored, before augmentation), or
/// int32 tokens. y: int32 [count] classes (with tokens: [count, context]), float32 [count, outputs] for losses of
/// numbers and labels. count may be 0: the rank still takes part, and the types do not matter.
struct Batch {
  const void* x = nullptr;
  ElementType x_type = ElementType::float32;
  const void* y = nullptr;
  std::int64_t count = 0;
  const std::uint64_t* keys = nullptr;  ///< one per sample (randomness.hpp); nullptr: nothing is random
  /// One per sample, for ModelOptions::weighted: factors of its loss in training; nullptr: 1 each.
  const float* weights = nullptr;
  /// For networks with recurrent state: index of the first sample's sequence among this rank's sequences, and whether
  /// the sequences begin anew (with zero state).
  std::int64_t first_sequence = 0;
  bool begins = true;
};

/// The staging slots of batches, and the network's input made from them.
class BatchStage {
 public:
  /// backend and network must outlive the stage.
  BatchStage(Backend& backend, const Network& network, const ModelOptions& options, Purpose purpose);

  /// A batch that operations can read.
  struct Staged {
    StagedBatch data;
    std::int64_t first_sequence = 0;
  };
  /// Stages a training batch in the next slot; current_slot() is its number. The host memory must stay until wait() on
  /// a device, and until the operations are done on a host.
  void stage_next(const Batch& batch);
  const Staged& current() const noexcept { return slots_[static_cast<std::size_t>(current_slot_)]; }
  int current_slot() const noexcept { return current_slot_; }
  /// Marks the operations enqueued so far as the last that read the current batch. Exception: released() still reads
  /// the batch released last, until another one is staged in its slot.
  void release_current();
  const Staged& released() const noexcept { return slots_[static_cast<std::size_t>(released_slot_)]; }
  /// Stages a batch for evaluation, without keys, beside the batches of training.
  Staged stage_for_evaluation(const Batch& batch);
  void release_evaluation();
  /// Waits until no device needs the host memory of staged batches any more.
  void wait() { backend_.wait_staged(); }

  /// The samples in the form the network needs: in place if they already have it, else converted.
  Tensor network_input(const StagedBatch& batch);

  /// Memory of converted samples, and of one slot; in bytes.
  static std::size_t converted_bytes(const Network& network, const ModelOptions& options, ElementType compute);
  static std::size_t slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose);

 private:
  Staged stage(int slot, const Batch& batch, bool with_keys);

  static constexpr int kTrainingSlots = 2;  ///< one in use, one being copied; evaluation has another one
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
