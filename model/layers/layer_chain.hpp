/// \file
/// A network of layers one after another: each reads the output of the one before.
///
/// Besides the layers' own activations there are two gradient buffers, as large as the largest output of a layer but
/// the last. Backward uses them in turn.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/layers/layer.hpp"

namespace lockstep::model {

class LayerChain : public Network {
 public:
  std::vector<LayerPlan> plan() const override;
  std::string signature() const override { return signature_; }
  Tensor forward(const Pass& pass) const override;
  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override;

 protected:
  explicit LayerChain(const SampleShape& shape);
  /// Adds LayerOfThatKind(parameters, activations, arguments...) to the network and returns it.
  template <class LayerOfThatKind, class... Arguments>
  const LayerOfThatKind& append(Arguments&&... arguments) {
    first_parameters_.push_back(parameters_.all().size());
    auto layer = std::make_unique<LayerOfThatKind>(parameters_, activations_, std::forward<Arguments>(arguments)...);
    const LayerOfThatKind& appended = *layer;
    layers_.push_back(std::move(layer));
    return appended;
  }
  /// Completes the network; call it after the last layer.
  void finish(std::string signature);

 private:
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<std::size_t> first_parameters_;  ///< first parameter of each layer, in the order of declaration
  std::vector<std::size_t> gradients_;         ///< activations: gradient of the output of each layer but the last
  std::string signature_;
};

}  // namespace lockstep::model
