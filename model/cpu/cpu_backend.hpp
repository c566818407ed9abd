/// \file
/// The backend of the CPU: fp32, with matrix multiplications through gemm() and our own vectorised loops for everything
/// else. With a Bf16Unit, factors of products and convolutions are rounded to bf16. Tensors are fp32, except values
/// between operations that accept bf16 (Holds::narrow).
#pragma once

#include <string>
#include <vector>

#include "model/cpu/arena_memory.hpp"
#include "model/cpu/bf16/panels.hpp"
#include "model/cpu/blocked_gemm.hpp"
#include "model/cpu/cpu_images.hpp"
#include "model/cpu/cpu_sequences.hpp"
#include "model/cpu/loops/element_loops.hpp"
#include "model/cpu/thread_pool.hpp"
#include "model/host_backend.hpp"

namespace lockstep::model::cpu {

class CpuBackend : public HostBackend {
 public:
  /// The processor must have the unit (obstacle_to()).
  explicit CpuBackend(int threads, Bf16Unit unit = Bf16Unit::none);

  std::string_view name() const noexcept override { return "cpu"; }
  std::string description() const override;
  std::vector<std::string> notes() const override { return images_.notes(); }
  ElementType compute_type() const noexcept override { return ElementType::float32; }
  ElementType master_type() const noexcept override { return ElementType::float32; }
  ElementType narrow_type() const noexcept override { return cpu::narrow_type(unit_); }
  std::pmr::memory_resource* memory() noexcept override { return &memory_; }
  ImageOperations& images() noexcept override { return images_; }
  SequenceOperations& sequences() noexcept override { return sequences_; }

 private:
  LOCKSTEP_OPERATIONS(void, override)
  void do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                              const Tensor& y) override;
  void do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z, Accumulate accumulate,
                                       const Tensor& d_z_sums) override;

  /// For thin maps of bf16 values: calls work(first row, rows, memory) for blocks of rows, which are converted to fp32.
  template <class Work>
  void for_widened_rows(std::int64_t rows, std::int64_t columns, const Work& work);
  /// finish: receives parts of d_x.
  void linear_gradients(const LinearBackwardOperands& operands, Activation activation, Accumulate accumulate,
                        const Finish& finish);

  /// Returns a sum over blocks of [0, count), each of at least `smallest` elements; block(begin, count) returns the
  /// part of one block. The number of blocks depends on `count` alone, and the parts are added in order, so the number
  /// of threads does not change the result.
  template <class Part, class Block>
  Part sum_of_blocks(std::size_t count, std::size_t smallest, const Block& block);
  template <class Loss>
  void add_loss_of_outputs(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                           const Tensor& sums, Loss loss);

  template <class Work>
  void for_bf16_chunks(const Tensor& tensor, const Work& work);
  void update_slice(const UpdateSpans& spans, Update update, const UpdateSlice& slice, std::span<double> norms);

  ArenaMemory memory_;
  const Bf16Unit unit_;
  ThreadPool threads_;
  PanelMemory panels_;
  std::vector<float> widened_;  ///< fp32 values of a thin map
  CpuImages images_{threads_, unit_};
  CpuSequences sequences_{threads_, unit_};
};

}  // namespace lockstep::model::cpu
