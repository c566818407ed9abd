/// \file
/// A network made from a description.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/graph/graph.hpp"
#include "model/graph/program.hpp"
#include "model/network.hpp"

namespace lockstep::model {

class GraphNetwork final : public Network {
 public:
  /// The output has as many elements as `shape` has outputs. Throws std::invalid_argument for a description that is
  /// none, with the place and the name of the call.
  GraphNetwork(const Description& description, const SampleShape& shape, std::string signature,
               OperationKinds kinds = operation_kinds());

  const ActivationTable& activations(Purpose purpose) const noexcept override { return program(purpose).activations(); }
  const Program& program(Purpose purpose) const noexcept {
    return purpose == Purpose::training ? *training_ : *evaluation_;
  }
  bool reuses_positions() const noexcept override { return reuses_positions_; }
  std::vector<LayerPlan> plan() const override { return plan(groups_); }
  std::vector<LayerPlan> operation_plan() const override { return plan({}); }
  std::string signature() const override { return signature_; }
  Tensor forward(const Pass& pass) const override { return program(purpose_of(pass)).forward(pass); }
  Tensor targets(const Pass& pass, const Tensor& y) const override {
    return Network::targets(pass, program(purpose_of(pass)).targets(pass, y));
  }
  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override;
  void freeze(std::span<const std::size_t> parameters) override;

 private:
  static Purpose purpose_of(const Pass& pass) noexcept {
    return pass.training ? Purpose::training : Purpose::evaluation;
  }
  void compile();
  std::vector<LayerPlan> plan(std::span<const CallGroup> groups) const;

  std::optional<Graph> graph_;
  std::vector<CallGroup> groups_;
  std::optional<Program> training_, evaluation_;
  std::string signature_;
  bool reuses_positions_ = false;
};

}  // namespace lockstep::model
