/// \file
/// The reference for all tests: every operation in float64 by a simple loop, without BLAS. It is slow by intention.
#pragma once

#include "model/host_backend.hpp"
#include "model/reference/reference_images.hpp"
#include "model/reference/reference_sequences.hpp"

namespace lockstep::model {

class ReferenceBackend final : public HostBackend {
 public:
  /// makes_sums: value of fuses_sums(), for tests of programs. Sums in products are then counted in sums_in_products.
  explicit ReferenceBackend(bool makes_sums = false) : makes_sums_(makes_sums) {}
  std::string_view name() const noexcept override { return "reference"; }
  std::string description() const override { return "reference: float64, plain loops, 1 thread"; }
  ElementType compute_type() const noexcept override { return ElementType::float64; }
  ElementType master_type() const noexcept override { return ElementType::float64; }
  std::pmr::memory_resource* memory() noexcept override { return std::pmr::new_delete_resource(); }
  ImageOperations& images() noexcept override { return images_; }
  SequenceOperations& sequences() noexcept override { return sequences_; }
  bool fuses_sums() const noexcept override { return makes_sums_; }

  std::int64_t sums_in_products = 0;

 private:
  LOCKSTEP_OPERATIONS(void, override)
  void do_linear_add_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& added,
                             const Tensor& y) override {
    ++sums_in_products;
    Backend::do_linear_add_forward(x, w, bias, added, y);
  }

  bool makes_sums_;
  ReferenceImages images_;
  ReferenceSequences sequences_;
};

/// Returns the reference for the name "reference", else calls make_backend().
inline std::unique_ptr<Backend> make_backend_or_reference(std::string_view name, const BackendOptions& options = {}) {
  return name == "reference" ? std::make_unique<ReferenceBackend>() : make_backend(name, options);
}

}  // namespace lockstep::model
