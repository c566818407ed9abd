/// \file
/// The reference for all tests: every operation in float64 with the obvious loop, no BLAS, no tricks. Slow on purpose.
#pragma once

#include "model/host_backend.hpp"
#include "model/reference/reference_images.hpp"
#include "model/reference/reference_sequences.hpp"

namespace lockstep::model {

class ReferenceBackend final : public HostBackend {
 public:
  std::string_view name() const noexcept override { return "reference"; }
  std::string description() const override { return "reference: float64, plain loops, 1 thread"; }
  ElementType compute_type() const noexcept override { return ElementType::float64; }
  ElementType master_type() const noexcept override { return ElementType::float64; }
  std::pmr::memory_resource* memory() noexcept override { return std::pmr::new_delete_resource(); }
  ImageOperations& images() noexcept override { return images_; }
  SequenceOperations& sequences() noexcept override { return sequences_; }

 private:
  void do_convert_input(const Tensor& in, const InputTransform& transform, const Tensor& out) override;
  void do_linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, Activation activation,
                         const Tensor& y) override;
  void do_linear_backward(const LinearBackwardOperands& operands, Activation activation,
                          Accumulate accumulate) override;
  void do_softmax_cross_entropy(const Tensor& logits, const Tensor& labels, const LossOptions& options,
                                const Tensor& sums) override;
  void do_mean_error(const Tensor& predictions, const Tensor& targets, const LossOptions& options,
                     const Tensor& sums) override;
  void do_binary_cross_entropy(const Tensor& logits, const Tensor& targets, const LossOptions& options,
                               const Tensor& sums) override;
  void do_add(const Tensor& x, const Tensor& to) override;
  void do_sum_of_squares(const Tensor& x, const Tensor& out, Accumulate accumulate) override;
  void do_add_l2_gradient(const Tensor& parameters, const Tensor& gradients, float l2,
                          std::span<const UpdateSlice> slices) override;
  void do_update(const UpdateArenas& arenas, OptimizerKind kind, Averaging averaging, const Tensor& rule,
                 std::span<const UpdateSlice> slices, const UpdateGate& gate) override;
  void do_upload(std::span<const float> host, const Tensor& to) override;
  void do_download(const Tensor& from, std::span<float> host) override;

  ReferenceImages images_;
  ReferenceSequences sequences_;
};

/// make_backend(), or the reference for the name "reference".
inline std::unique_ptr<Backend> make_backend_or_reference(std::string_view name, const BackendOptions& options = {}) {
  return name == "reference" ? std::make_unique<ReferenceBackend>() : make_backend(name, options);
}

}  // namespace lockstep::model
