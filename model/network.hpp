/// \file
/// A network: a parameter table and the order of its layers. Owns no memory; shapes, offsets and costs are decided
/// once, before any memory is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/backend.hpp"
#include "model/parameters.hpp"

namespace lockstep::model {

enum class LossKind { softmax_cross_entropy, mean_squared_error };

/// What a sample looks like to a network.
struct SampleShape {
  std::int64_t features = 0;  ///< elements of x per sample
  std::int64_t outputs = 0;   ///< classes, or regression targets per sample
};

struct NetworkOptions {
  std::string name = "mlp";               ///< "linear", "mlp"
  std::vector<std::int64_t> hidden = {};  ///< mlp: widths of the hidden layers
  Activation activation = Activation::relu;
  Initializer weight_initializer{Initializer::Scheme::he_normal, 0};
  Initializer bias_initializer{Initializer::Scheme::zeros, 0};
};

/// One line of the plan that --dry-run prints.
struct LayerPlan {
  std::string name;         ///< "dense_1"
  std::string description;  ///< "784 -> 512, relu"
  std::int64_t parameters = 0;
  std::int64_t activation_elements = 0;  ///< per sample
  double forward_flops = 0;              ///< per sample; a multiply-add is two
  double backward_flops = 0;             ///< per sample
};

/// gradients[0, end) of the arena is final. Called in ascending order of `end`.
using GradientReady = std::function<void(std::size_t end)>;

/// The memory of one forward/backward pass, carved by Model.
struct NetworkMemory {
  Tensor parameters;   ///< [1, arena_elements], compute type
  Tensor gradients;    ///< [1, arena_elements], master type
  Tensor activations;  ///< [1, activation_elements(batch)], compute type
};

class Network {
 public:
  virtual ~Network() = default;
  const ParameterTable& parameters() const noexcept { return parameters_; }
  const SampleShape& sample_shape() const noexcept { return shape_; }
  virtual std::vector<LayerPlan> plan() const = 0;
  /// Elements that forward + backward of up to `batch` samples need (activations, their gradients, scratch).
  virtual std::int64_t activation_elements(std::int64_t batch) const = 0;
  /// Text that names the network and its options; equal text means equal network. For fingerprint and checkpoint.
  virtual std::string signature() const = 0;
  /// input: [B, features] compute type. Returns the output [B, outputs], inside memory.activations.
  virtual Tensor forward(Backend& backend, const NetworkMemory& memory, const Tensor& input) const = 0;
  /// d_output: [B, outputs] (may be the tensor that forward returned, overwritten by the loss). Same memory and input
  /// as the forward before it.
  virtual void backward(Backend& backend, const NetworkMemory& memory, const Tensor& input, const Tensor& d_output,
                        Accumulate accumulate, const GradientReady& ready) const = 0;
  /// Name of the first layer whose output in `memory` is not finite after forward of `batch` samples, or "". Reads all
  /// activations; for the message after a NaN.
  virtual std::string first_not_finite(Backend& backend, const NetworkMemory& memory, std::int64_t batch) const = 0;

 protected:
  ParameterTable parameters_;
  SampleShape shape_;
};

/// Throws std::invalid_argument for an unknown name or impossible options.
std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape);
/// Names that make_network knows.
std::vector<std::string> network_names();

}  // namespace lockstep::model
