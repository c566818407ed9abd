/// \file
/// Layers of long short-term memory of one width, one above the other, with dropout on connections between layers and
/// never between steps.
///
/// On a host, or with one layer, each layer computes all of its steps before the next one begins. Otherwise the steps
/// are a wavefront: they come in chunks, and while a layer computes a chunk, the layer above (backward: below) computes
/// the preceding chunk. Layers alternate between the two side queues. The work between two layers runs in the main
/// queue: the dropout and the input product of the chunk, and backward that product's gradient. One layer's steps wait
/// for each other and leave most of a GPU idle, so two layers take about the time of one. A chunk is short, so that the
/// second layer begins soon, and long enough that the work between layers takes less time than its steps.
///
/// Gradients of parameters are one product or sum over all steps, in the main queue, as soon as a layer has gone back
/// to its first step. The shape alone determines the chunks, so the bits do not depend on concurrency.
#pragma once

#include <memory>
#include <vector>

#include "model/layers/dropout_layer.hpp"
#include "model/layers/lstm_layer.hpp"

namespace lockstep::model {

struct LstmStackOptions {
  std::int64_t layers = 1;
  std::int64_t context = 0;  ///< steps
  std::int64_t width = 0;    ///< width of the input and of each layer
  Dropout dropout = {};      ///< dropout behind the first layer; later layers use the following streams
  Initializer weight_initializer = {};
  Initializer bias_initializer = {};
};

class LstmStack {
 public:
  /// Steps of a chunk: eight kernels that wait for each other, against two between two layers.
  static constexpr std::int64_t kChunkSteps = 4;

  /// Declares layers lstm_1, lstm_2, ...
  LstmStack(ParameterTable& parameters, ActivationTable& activations, ActivationTable& recurrent_state,
            const LstmStackOptions& options);

  std::vector<LayerPlan> plan(const ParameterTable& table) const;
  /// The last layer's output, behind its dropout: [steps * sequences, width], time-major.
  Tensor output(const Pass& pass) const { return input_of(layers_.size(), pass); }
  /// x: shape of the output. Starts with the carried state and replaces it by the state after the last step.
  Tensor forward(const Pass& pass, const Tensor& x) const;
  /// Takes the pass and x of the preceding forward. gradient: that of the output; becomes that of x, if it is needed.
  void backward(const Pass& pass, const Tensor& x, const Tensor& gradient, Accumulate accumulate,
                const GradientReady& ready) const;
  bool trains_below(const ParameterTable& table) const { return layers_.front()->trains_below(table); }

 private:
  using Steps = LstmLayer::Steps;

  bool is_wavefront(const Pass& pass) const noexcept;
  std::int64_t chunks() const noexcept { return (options_.context + kChunkSteps - 1) / kChunkSteps; }
  Steps chunk(std::int64_t index) const noexcept;
  /// The input of layer `layer` > 0; for the number of layers, the stack's output.
  Tensor input_of(std::size_t layer, const Pass& pass) const;
  /// Applies the dropout behind a layer, forward and back.
  void drop_output(std::size_t layer, const Pass& pass, const Steps& steps) const;
  void drop_gradient(std::size_t layer, const Pass& pass, const Steps& steps, const Tensor& gradient) const;
  void forward_as_wavefront(const Pass& pass, const Tensor& x) const;
  /// Goes back through the layers from the last one down to `lowest`.
  void backward_as_wavefront(const Pass& pass, const Tensor& x, const Tensor& gradient, Accumulate accumulate,
                             const GradientReady& ready, std::size_t lowest) const;

  LstmStackOptions options_;
  std::vector<std::unique_ptr<LstmLayer>> layers_;
  std::vector<DropoutLayer> dropouts_;  ///< dropout behind each layer
  std::vector<std::size_t> dropped_;    ///< activations: outputs of the layers behind their dropout
};

}  // namespace lockstep::model
