/// \file
/// Operations that compute nothing, for tests of the checked fronts. Compute and master type differ, as on a GPU.
#pragma once

#include "model/image_operations.hpp"
#include "model/sequence_operations.hpp"

namespace lockstep::model::test {

inline constexpr OperationTypes kIdleTypes{.compute = ElementType::float32, .master = ElementType::float64};

class IdleImages final : public ImageOperations {
 public:
  IdleImages() : ImageOperations(kIdleTypes) {}
  /// True for some shapes: all but products.
  bool adds_image_gradient(const Convolution& shape) const noexcept override { return shape.window.height > 1; }

 private:
  using T = const Tensor&;
  void do_augment(T, T, const Augmentation&, T) override {}
  void do_convolution_forward(const Convolution&, T, T, T, Activation, T) override {}
  void do_convolution_backward(const Convolution&, const LinearBackwardOperands&, Activation, Accumulate) override {}
  void do_add_image_gradient(const Convolution&, T, T, T) override {}
  void do_max_pool_forward(const Pool&, T, T, T) override {}
  void do_max_pool_backward(const Pool&, T, T, T) override {}
  void do_global_average_forward(const ImageShape&, T, T) override {}
  void do_global_average_backward(const ImageShape&, T, T) override {}
  void do_response_normalization_forward(const ResponseNormalization&, T, T) override {}
  void do_response_normalization_backward(const ResponseNormalization&, T, T, T, T) override {}
  void do_subsample_forward(const ImageShape&, const ImageShape&, std::int64_t, T, T) override {}
  void do_subsample_backward(const ImageShape&, const ImageShape&, std::int64_t, T, T) override {}
  void do_batch_norm_sums(const BatchNorm&, T, T) override {}
  void do_batch_norm_forward(const BatchNorm&, const BatchNormForwardOperands&) override {}
  void do_batch_norm_statistics(const BatchNorm&, T, double, Accumulate, T, T) override {}
  void do_batch_norm_inference(const BatchNorm&, const BatchNormInferenceOperands&) override {}
  void do_batch_norm_inference_backward(const BatchNorm&, const BatchNormInferenceBackwardOperands&) override {}
  void do_batch_norm_backward_sums(const BatchNorm&, const BatchNormBackwardSumsOperands&, Accumulate) override {}
  void do_batch_norm_backward(const BatchNorm&, const BatchNormBackwardOperands&) override {}
};

class IdleSequences final : public SequenceOperations {
 public:
  IdleSequences() : SequenceOperations(kIdleTypes) {}

 private:
  using T = const Tensor&;
  void do_to_time_major(T, T) override {}
  void do_embedding_forward(T, T, T, T) override {}
  void do_embedding_backward(T, T, Accumulate, T, T) override {}
  void do_project_forward(T, T, T) override {}
  void do_project_backward(T, T, T, Accumulate, T, T) override {}
  void do_layer_norm_forward(const LayerNormForwardOperands&) override {}
  void do_layer_norm_backward(const LayerNormBackwardOperands&, Accumulate) override {}
  void do_gelu_forward(T, T, T) override {}
  void do_gelu_backward(T, T, Accumulate, T) override {}
  void do_dropout(T, T, const Dropout&, T) override {}
  void do_attention_forward(const Attention&, const AttentionForwardOperands&) override {}
  void do_attention_backward(const Attention&, const AttentionBackwardOperands&) override {}
  void do_lstm_forward(const Lstm&, const LstmForwardOperands&) override {}
  void do_lstm_backward(const Lstm&, const LstmBackwardOperands&) override {}
};

}  // namespace lockstep::model::test
