/// \file
/// The CPU's operations on images: fp32, or with a Bf16Unit images in bf16 and everything else in fp32. Convolutions
/// use oneDNN; everything else runs in our own vectorised loops.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "model/cpu/convolution.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/image_operations.hpp"

namespace lockstep::model::cpu {

/// Returns OperationTypes::narrow.
constexpr ElementType narrow_type(Bf16Unit unit) noexcept {
  return unit == Bf16Unit::none ? ElementType::float32 : ElementType::bfloat16;
}

class CpuImages final : public ImageOperations {
 public:
  CpuImages(ThreadPool& threads, Bf16Unit unit);

  /// Returns notes about operations that run slower than expected, found at the first call of a shape; normally empty.
  std::vector<std::string> notes() const { return convolver_.notes(); }
  /// False in fp32: recomputed values may differ from those of the forward pass by a rounding, and so might the mask.
  bool recomputes_relu() const noexcept override { return types().narrow == ElementType::bfloat16; }

 private:
  LOCKSTEP_IMAGE_OPERATIONS(void, override)

  /// Runs work(Slice) over parts of [0, count), where each item has `each` elements. Uses one thread for little work.
  template <class Work>
  void split(std::size_t count, std::size_t each, const Work& work);
  /// Like split(), with `each` elements of scratch for each part: work(Slice, scratch). elements: number of elements of
  /// the whole pass.
  template <class Work>
  void with_scratch(std::size_t count, std::size_t elements, std::size_t each, const Work& work);
  /// sums [2 channels] = sum over blocks of pixels of the sums that block(Slice, sums) writes. The number of blocks
  /// depends on the number of pixels alone, and blocks are added in order.
  template <class Block>
  void sum_of_blocks(std::size_t pixels, std::size_t channels, std::span<double> sums, const Block& block);
  /// Returns scratch memory, which grows with the shapes and is kept.
  template <class Element>
  static std::span<Element> at_least(std::vector<Element>& scratch, std::size_t count);

  ThreadPool& threads_;
  Convolver convolver_;
  std::vector<double> block_sums_;  ///< batch norm: sums, by block
  std::vector<float> numbers_;      ///< batch norm: factor and shift of each channel
  std::vector<float> rows_;         ///< response normalisation, upsampling: some rows per thread
  std::vector<double> colours_;     ///< augmentation: sums per thread
};

}  // namespace lockstep::model::cpu
