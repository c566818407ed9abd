/// \file
/// State that a recurrent network carries from one batch to the next: sample i of a batch continues sample i of the
/// preceding batch.
#pragma once

#include <cstdint>
#include <span>

#include "model/activation_table.hpp"
#include "model/backend.hpp"
#include "model/model_options.hpp"
#include "model/network.hpp"
#include "model/state/arena.hpp"

namespace lockstep::model {

/// Owns the state of up to `sequences` sequences, for training and for evaluation; empty if the network has no state.
class RecurrentState {
 public:
  /// sequences: number of this rank's sequences, over all micro-batches. backend and network must outlive the state.
  RecurrentState(Backend& backend, const Network& network, std::int64_t sequences, Purpose purpose);

  const ActivationLayout& layout() const noexcept { return layout_; }
  void* data(Purpose purpose) const noexcept { return arena(purpose).data(); }
  /// Enqueues zeroing the state of sequences [first, first + count).
  void reset(Purpose purpose, std::int64_t first, std::int64_t count);

  std::int64_t elements() const noexcept { return network_.recurrent_state().elements_per_sample(); }
  /// Copies the training state of the first `sequences` sequences: float32 [sequences, elements()].
  void download(std::int64_t sequences, std::span<float> out) const;
  void upload(std::int64_t sequences, std::span<const float> in);
  /// Bytes of one of the two states.
  static std::size_t bytes(const Network& network, std::int64_t sequences, const OperationTypes& types);

 private:
  const Arena& arena(Purpose purpose) const noexcept { return purpose == Purpose::training ? training_ : evaluation_; }
  template <class Work>
  void for_each(std::int64_t sequences, const Work& work) const;

  Backend& backend_;
  const Network& network_;
  ActivationLayout layout_;
  Arena training_, evaluation_;
};

}  // namespace lockstep::model
