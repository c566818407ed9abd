/// \file
/// The operations on images of the CPU: fp32, convolutions through oneDNN, everything else in our own vectorised loops.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/cpu/convolution.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

class CpuImages final : public ImageOperations {
 public:
  explicit CpuImages(ThreadPool& threads);

  /// Remarks about operations that run slower than expected, found at the first call of a shape; normally empty.
  std::vector<std::string> notes() const { return convolver_.notes(); }

 private:
  void do_augment(const Tensor& images, const Tensor& keys, const Augmentation& spec, const Tensor& out) override;
  void do_convolution_forward(const Convolution& shape, const Tensor& x, const Tensor& w, const Tensor& bias,
                              Activation activation, const Tensor& y) override;
  void do_convolution_backward(const Convolution& shape, const LinearBackwardOperands& operands, Activation activation,
                               Accumulate accumulate) override;
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

  /// Runs work(Slice) over the parts of [0, count), each item of `each` elements; on one thread if that is little.
  template <class Work>
  void split(std::size_t count, std::size_t each, const Work& work);
  /// sums [2 channels] = those of block(Slice, part of the sums) over blocks of pixels. The number of blocks depends on
  /// the number of pixels alone, and they are added in order.
  template <class Block>
  void sum_of_blocks(std::size_t pixels, std::size_t channels, std::span<double> sums, const Block& block);
  /// Scratch that grows with the shapes and stays.
  template <class Element>
  static std::span<Element> at_least(std::vector<Element>& scratch, std::size_t count);

  ThreadPool& threads_;
  Convolver convolver_;
  std::vector<double> block_sums_;  ///< batch norm: one set of sums per block
  std::vector<float> numbers_;      ///< batch norm: factor and shift of each channel
  std::vector<float> rows_;         ///< response normalisation: some rows per thread
  std::vector<double> colours_;     ///< augmentation: sums per thread
};

}  // namespace lockstep::model::cpu
