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

/// The staging slots of batches, and the network's input made from them.
class BatchStage {
 public:
  /// backend and network must outlive the stage.
  BatchStage(Backend& backend, const Network& network, const ModelOptions& options, Purpose purpose);

  /// Stages a training batch in the next slot; current_slot() is its number. The host memory must stay until wait() on
  /// a device, and until the operations are done on a host.
  void stage_next(const Batch& batch);
  const Batch& current() const noexcept { return slots_[static_cast<std::size_t>(current_slot_)]; }
  int current_slot() const noexcept { return current_slot_; }
  /// Marks the operations enqueued so far as the last that read the current batch. Exception: released() still reads
  /// the batch released last, until another one is staged in its slot.
  void release_current();
  const Batch& released() const noexcept { return slots_[static_cast<std::size_t>(released_slot_)]; }
  /// Stages a batch for evaluation, without keys, beside the batches of training.
  Batch stage_for_evaluation(const Batch& batch);
  void release_evaluation();
  /// Waits until no device needs the host memory of staged batches any more.
  void wait() { backend_.wait_staged(); }

  /// The samples in the form the network needs: in place if they already have it, else converted.
  Tensor network_input(const Batch& batch);

  /// Memory of converted samples, and of one slot; in bytes.
  static std::size_t converted_bytes(const Network& network, const ModelOptions& options, ElementType compute);
  static std::size_t slot_bytes(const Network& network, const ModelOptions& options, Purpose purpose);

 private:
  Batch stage(int slot, Batch batch);

  static constexpr int kTrainingSlots = 2;  ///< one in use, one being copied; evaluation has another one
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
