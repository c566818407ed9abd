/// \file
/// The reference for operations on images: float64, one obvious loop each.
#pragma once

#include "model/image_operations.hpp"

namespace lockstep::model {

class ReferenceImages final : public ImageOperations {
 public:
  ReferenceImages() : ImageOperations({ElementType::float64, ElementType::float64}) {}
  bool recomputes_relu() const noexcept override { return true; }
  bool adds_image_gradient(const Convolution&) const noexcept override { return true; }

 private:
  void do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) override;
  void do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                              Activation activation, const Tensor& y) override;
  void do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                               Accumulate accumulate) override;
  void do_add_image_gradient(const Convolution& shape, const Tensor& w, const Tensor& d_y, const Tensor& d_x) override;
  void do_max_pool_forward(const Pool& shape, const Tensor& x, const Tensor& y, const Tensor& chosen) override;
  void do_max_pool_backward(const Pool& shape, const Tensor& chosen, const Tensor& d_y, const Tensor& d_x) override;
  void do_global_average_forward(const ImageShape& in, const Tensor& x, const Tensor& y) override;
  void do_global_average_backward(const ImageShape& in, const Tensor& d_y, const Tensor& d_x) override;
  void do_response_normalization_forward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y) override;
  void do_response_normalization_backward(const ResponseNormalization& norm, const Tensor& x, const Tensor& y,
                                          const Tensor& d_y, const Tensor& d_x) override;
  void do_subsample_forward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& x,
                            const Tensor& y) override;
  void do_subsample_backward(const ImageShape& in, const ImageShape& out, std::int64_t stride, const Tensor& d_y,
                             const Tensor& d_x) override;
  void do_batch_norm_sums(const BatchNorm& norm, const Tensor& x, const Tensor& sums) override;
  void do_batch_norm_forward(const BatchNorm& norm, const BatchNormForwardOperands& operands) override;
  void do_batch_norm_statistics(const BatchNorm& norm, const Tensor& sums, double weight, Accumulate accumulate,
                                const Tensor& d_mean, const Tensor& d_variance) override;
  void do_batch_norm_inference(const BatchNorm& norm, const BatchNormInferenceOperands& operands) override;
  void do_batch_norm_inference_backward(const BatchNorm& norm,
                                        const BatchNormInferenceBackwardOperands& operands) override;
  void do_batch_norm_backward_sums(const BatchNorm& norm, const BatchNormBackwardSumsOperands& operands,
                                   Accumulate accumulate) override;
  void do_batch_norm_backward(const BatchNorm& norm, const BatchNormBackwardOperands& operands) override;
};

}  // namespace lockstep::model
