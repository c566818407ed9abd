/// \file
/// Base class of backends that compute on the host. Operations are complete when they return; tensors are in ordinary
/// memory.
#pragma once

#include <optional>

#include "model/backend.hpp"

namespace lockstep::model {

class HostBackend : public Backend {
 public:
  std::pmr::memory_resource* host_memory() noexcept override { return std::pmr::get_default_resource(); }
  bool is_host() const noexcept override { return true; }
  void wait_staged() override {}
  void synchronize() override {}

 protected:
  HostBackend() = default;

  /// Rule and factor of an update that its gate allows.
  struct OpenUpdate {
    UpdateRule rule;
    float gradient_factor = 1;  ///< multiplies the gradient first: clipping by global norm
  };
  /// Returns nullopt if the gate forbids the update.
  static std::optional<OpenUpdate> open(const Tensor& rule, const UpdateGate& gate);
  /// Adds the sums of one loss to float64 [1, kLossSums].
  static void add(const LossSums& part, const Tensor& sums);
  static void put(double value, Accumulate accumulate, const Tensor& out) {
    double& sum = out.elements<double>()[0];
    sum = accumulate == Accumulate::yes ? sum + value : value;
  }

 private:
  void do_reserve_stages(int, const StageBytes&) override {}
  Batch do_stage(int, const Batch& batch) override { return batch; }
  void do_release_stage(int) override {}
  void do_combine_losses(const Tensor& parts, std::span<const LossShare> shares, const Tensor& sums) override;
  void do_report_loss(const Tensor& sums, const Tensor& status) override;
  void do_cast(const Tensor& in, const Tensor& out) override;
  void do_fill_zero(const Tensor& x) override;
  void do_copy_columns(const Tensor& from, std::int64_t from_column, const Tensor& to, std::int64_t to_column,
                       std::int64_t columns) override;
  void do_write(std::span<const std::byte> host, const Tensor& to) override;
  void do_read(const Tensor& from, std::span<std::byte> host) override;
};

}  // namespace lockstep::model
