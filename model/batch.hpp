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

/// Owns the staging slots of batches, and makes the network's input from a staged batch.
class BatchStage {
 public:
  /// backend and network must outlive the stage.
  BatchStage(Backend& backend, const Network& network, const ModelOptions& options, Purpose purpose);

  /// Stages a training batch in the next slot, which becomes current_slot(). The host memory must stay valid until
  /// wait() on a device, and until the operations are done on a host.
  void stage_next(const Batch& batch);
  const Batch& current() const noexcept { return slots_[static_cast<std::size_t>(current_slot_)]; }
  int current_slot() const noexcept { return current_slot_; }
  /// Marks the operations enqueued so far as the last that read the current batch, whose slot may then be overwritten.
  /// released() returns this batch until another one is staged in its slot.
  void release_current();
  const Batch& released() const noexcept { return slots_[static_cast<std::size_t>(released_slot_)]; }
  /// Stages a batch for evaluation in a slot of its own, without keys.
  Batch stage_for_evaluation(const Batch& batch);
  void release_evaluation();
  /// Waits until no device reads the host memory of staged batches any more.
  void wait() { backend_.wait_staged(); }

  /// Returns the samples as the network's input: the batch's own memory if it needs no conversion, else a converted
  /// copy.
  Tensor network_input(const Batch& batch);

  /// Bytes for converted samples, and bytes of one slot.
  static std::size_t converted_bytes(const Network& network, const ModelOptions& options, ElementType compute);
  static std::size_t slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose);

 private:
  Batch stage(int slot, Batch batch);

  static constexpr int kTrainingSlots = 2;  ///< one in use, one being copied; evaluation has a third
  int evaluation_slot() const noexcept { return purpose_ == Purpose::training ? kTrainingSlots : 0; }

  Backend& backend_;
  const Network& network_;
  ModelOptions options_;
  Purpose purpose_;
  Arena converted_;
  std::array<Batch, kTrainingSlots> slots_;
  int current_slot_ = 0, released_slot_ = 0;
};

}  // namespace lockstep::model
