/// \file
/// The backend of one GPU: matrix multiplications through cuBLASLt, and our own kernels (kernels.hpp) for everything
/// else. Work runs in the order of one stream, and of two side streams for operations that name a side queue. Not
/// thread-safe, except the memory resources.
#pragma once

#include <optional>
#include <string>

#include "model/backend.hpp"
#include "model/cuda/cuda_images.hpp"
#include "model/cuda/cuda_sequences.hpp"
#include "model/cuda/device_memory.hpp"
#include "model/cuda/graph_recorder.hpp"
#include "model/cuda/handles.hpp"
#include "model/cuda/kernels/kernels.hpp"
#include "model/cuda/matmul.hpp"
#include "model/cuda/slice_table.hpp"
#include "model/cuda/staging.hpp"
#include "model/cuda/stream_queues.hpp"
#include "model/cuda/write_ring.hpp"

namespace lockstep::model::cuda {

class CudaBackend final : public Backend {
 public:
  /// Creates the process's context on options.device, which becomes the thread's current device. Throws DeviceError, or
  /// std::invalid_argument for a precision or a number of processors that the device does not have.
  explicit CudaBackend(const BackendOptions& options);
  ~CudaBackend() override;

  std::string_view name() const noexcept override { return "cuda"; }
  std::string description() const override;
  std::vector<std::string> notes() const override { return matmul_.notes(); }
  std::string arithmetic() const override;
  ElementType compute_type() const noexcept override;
  ElementType master_type() const noexcept override { return ElementType::float32; }
  std::pmr::memory_resource* memory() noexcept override { return &memory_; }
  std::pmr::memory_resource* host_memory() noexcept override { return &pinned_; }
  bool is_host() const noexcept override { return false; }
  void* stream() noexcept override { return stream_.get(); }
  bool fuses_sums() const noexcept override { return fuses_epilogues(); }
  void order(Queue before, Queue after) override { queues_.order(before, after); }
  void use_processors(Processors processors) noexcept override;

  ImageOperations& images() noexcept override { return images_; }
  SequenceOperations& sequences() noexcept override { return sequences_; }

  void wait_staged() override;
  void synchronize() override;
  void repeat(std::span<const std::int64_t> key, const std::function<void()>& work) override;
  void forget_recordings() override;
  void mark_begin() override;
  void mark_end() override;
  double device_seconds() override;

 private:
  /// Returns the device that the options select, after checks.
  static Device choose(const BackendOptions& options);
  CudaBackend(const BackendOptions& options, Device device);

  void do_reserve_stages(int slots, const StageBytes& bytes) override;
  Batch do_stage(int slot, const Batch& batch) override;
  void do_release_stage(int slot) override;
  LOCKSTEP_OPERATIONS(void, override)
  void do_linear_gelu_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& z,
                              const Tensor& y) override;
  void do_linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                             const Tensor& y) override;
  void do_linear_backward_through_gelu(const LinearBackwardOperands& operands, const Tensor& z, Accumulate accumulate,
                                       const Tensor& d_z_sums) override;
  void do_combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) override;
  void do_report_loss(const Tensor& sums, const Tensor& status) override;
  void do_cast(const Tensor& in, const Tensor& out) override;
  void do_fill_zero(const Tensor& x) override;
  void do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                       std::int64_t columns) override;
  void do_write(std::span<const std::byte> host, const Tensor& to) override;
  void do_read(const Tensor& from, std::span<std::byte> host) override;

  /// True from Hopper on. On earlier GPUs a separate pass is faster than the product's epilogue (as llm.c found on the
  /// A100).
  bool fuses_epilogues() const noexcept { return device_.major >= 9 && precision_ == Precision::bf16; }
  Scratch scratch() const noexcept { return {scratch_.data(), scratch_.bytes()}; }

  // In this order: members use earlier members.
  const Device device_;
  const Precision precision_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  Stream stream_;
  StreamQueues queues_;
  Event began_, ended_;
  bool has_begun_ = false, has_ended_ = false;
  Matmul matmul_;
  const int unreserved_processors_;
  Block scratch_;  ///< for reductions of tensors of any width
  SliceTable slices_;
  WriteRing writes_;
  std::optional<Staging> staging_;
  GraphRecorder recorder_;
  CudaImages images_;
  CudaSequences sequences_;
};

}  // namespace lockstep::model::cuda
