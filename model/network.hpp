/// \file
/// A network: a parameter table, an activation table and the order of its layers. Owns no memory; shapes, offsets and
/// costs are decided once, before any memory is taken.
///
/// One network is one file in networks/: NAME.cpp defines `const NetworkKind NAME_network` and nothing else that is
/// visible. CMake makes the list of all of them from the names of the files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/activation_table.hpp"
#include "model/parameters.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

enum class LossKind { softmax_cross_entropy, mean_squared_error };

/// What a sample looks like to a network.
struct SampleShape {
  std::int64_t features = 0;             ///< elements of x per sample; of tokens: the context
  std::int64_t outputs = 0;              ///< classes, or regression targets per sample; of tokens: the vocabulary
  std::optional<ImageShape> image = {};  ///< what the features are, if an image (after augmentation)
  bool tokens = false;                   ///< x and y are tokens, int32 [context] each
};

/// What distinguishes networks of one kind. Empty or 0 stands for the kind's own value (NetworkKind::make fills it in).
struct NetworkOptions {
  std::string name = "mlp";
  std::vector<std::int64_t> hidden = {};  ///< mlp: widths of the hidden layers; lstm: one width
  std::int64_t depth = 0;                 ///< resnet: 20, 32, 56 (32 x 32 images), 18, 34, 50
  std::int64_t layers = 0;                ///< lstm, gpt
  std::int64_t width = 0, heads = 0;      ///< gpt
  double dropout = 0;                     ///< lstm, gpt
  std::optional<bool> tied = {};          ///< lstm, gpt: the output layer shares the embedding's table
  bool synchronize_batch_norm = false;    ///< resnet: statistics over all ranks
  Activation activation = Activation::relu;
  std::optional<Initializer> weight_initializer = {};
  std::optional<Initializer> bias_initializer = {};
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

class Network {
 public:
  virtual ~Network() = default;
  const ParameterTable& parameters() const noexcept { return parameters_; }
  const ActivationTable& activations() const noexcept { return activations_; }
  /// What is carried from a batch to the next one of the same lanes, zero at first: the state of a recurrent network.
  /// Networks that carry something take their samples lane by lane.
  const ActivationTable& carried() const noexcept { return carried_; }
  const SampleShape& sample_shape() const noexcept { return shape_; }
  /// Rows of the output per sample: what the loss is a mean over besides samples. 1, or the context.
  std::int64_t positions() const noexcept { return shape_.tokens ? shape_.features : 1; }

  /// Passes in training sum over ranks within (Pass::sum_over_ranks): every rank must make them, if with an empty
  /// batch.
  bool synchronizes() const noexcept { return synchronizes_; }

  virtual std::vector<LayerPlan> plan() const = 0;
  /// Text that names the network and its options; equal text means equal network. For fingerprint and checkpoint.
  virtual std::string signature() const = 0;
  /// The output [batch * positions, outputs], among the activations.
  virtual Tensor forward(const Pass& pass) const = 0;
  /// d_output: shape of the output (may be the tensor that forward returned, overwritten by the loss). Same pass as the
  /// forward before it.
  virtual void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                        const GradientReady& ready) const = 0;
  /// What the rows of the output are compared with: int32 or float32 [batch * positions, ...] from the batch's y.
  virtual Tensor targets(const Pass& pass, const Tensor& y) const;

  /// Name of the first activation in `pass` that has one and is not finite after forward, or "". Reads all of them: for
  /// the message after a NaN.
  std::string first_not_finite(const Pass& pass) const;

 protected:
  ParameterTable parameters_;
  ActivationTable activations_, carried_;
  SampleShape shape_;
  bool synchronizes_ = false;
};

/// A kind of network, as users know it.
struct NetworkKind {
  std::string_view name;     ///< of --model, and of the file
  std::string_view summary;  ///< one line for --help
  /// Throws std::invalid_argument for options or samples that it cannot be made of.
  std::unique_ptr<Network> (*make)(const NetworkOptions& options, const SampleShape& shape);
  /// How it is usually trained: values of `lockstep train` options that the user leaves alone.
  std::span<const std::pair<std::string_view, std::string_view>> defaults = {};
  /// For networks that read tokens.
  bool tokens = false;
};

/// Throws std::invalid_argument for an unknown name or impossible options.
std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape);
/// Throws std::invalid_argument naming the valid ones.
const NetworkKind& network_kind(std::string_view name);
/// Names that make_network knows.
std::vector<std::string> network_names();

}  // namespace lockstep::model
