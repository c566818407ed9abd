/// \file
/// Dense layers one after another: what "linear" and "mlp" both are.
///
/// Memory of a pass over B samples, each piece starting at a multiple of 64 elements: the outputs of the layers in
/// order, then two gradient buffers as wide as the widest hidden layer, used in turn going backward.
#pragma once

#include <string>
#include <vector>

#include "model/layers/dense.hpp"
#include "model/network.hpp"

namespace lockstep::model {

class DenseChain final : public Network {
 public:
  /// A layer of each width of `hidden` with options.activation, then the output layer without one. `name` begins the
  /// signature. Throws std::invalid_argument where a width, the features or the outputs are not positive.
  DenseChain(std::string name, const std::vector<std::int64_t>& hidden, const NetworkOptions& options,
             const SampleShape& shape);

  std::vector<LayerPlan> plan() const override;
  std::int64_t activation_elements(std::int64_t batch) const override;
  std::string signature() const override { return signature_; }
  Tensor forward(Backend& backend, const NetworkMemory& memory, const Tensor& input) const override;
  void backward(Backend& backend, const NetworkMemory& memory, const Tensor& input, const Tensor& d_output,
                Accumulate accumulate, const GradientReady& ready) const override;
  std::string first_not_finite(Backend& backend, const NetworkMemory& memory, std::int64_t batch) const override;

 private:
  Tensor output_of(std::size_t layer, const NetworkMemory& memory, std::int64_t batch) const;
  /// The gradient with respect to the output of the hidden layer `layer`.
  Tensor gradient_of(std::size_t layer, const NetworkMemory& memory, std::int64_t batch) const;

  std::vector<Dense> layers_;
  std::string signature_;
  std::int64_t widest_hidden_ = 0;
};

}  // namespace lockstep::model
