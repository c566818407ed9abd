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
#include "model/network_options.hpp"
#include "model/parameters.hpp"
#include "model/pass.hpp"
#include "model/product_padding.hpp"

namespace lockstep::model {

enum class LossKind {
  softmax_cross_entropy,  ///< of classes, of which a sample has one
  mean_squared_error,     ///< of numbers
  binary_cross_entropy,   ///< of labels, of which a sample has any
  mean_absolute_error,    ///< of numbers
  huber,                  ///< of numbers
};
/// Whether the network learns numbers, not classes or labels.
constexpr bool is_of_numbers(LossKind loss) noexcept {
  return loss != LossKind::softmax_cross_entropy && loss != LossKind::binary_cross_entropy;
}

/// What a sample looks like to a network.
struct SampleShape {
  std::int64_t features = 0;             ///< elements of x per sample; of tokens: the context
  std::int64_t outputs = 0;              ///< classes, or regression targets per sample; of tokens: the vocabulary
  std::optional<ImageShape> image = {};  ///< what the features are, if an image (after augmentation)
  bool tokens = false;                   ///< x and y are tokens, int32 [context] each
};

/// One line of the plan that --dry-run prints.
struct LayerPlan {
  std::string name;         ///< "dense_1"
  std::string description;  ///< "784 -> 512, relu"
  std::int64_t parameters = 0;
  std::int64_t activation_elements = 0;       ///< per sample
  double forward_flops = 0;                   ///< per sample; a multiply-add is two
  double backward_flops = 0;                  ///< per sample
  std::int64_t patch_elements = 0;            ///< per sample: of the patches of its largest convolution (im2col)
  std::int64_t score_elements = 0;            ///< per sample: of attention that drops no probabilities, in all heads
  std::vector<LinearMap> products = {};       ///< rows per sample
  std::vector<LinearMap> side_products = {};  ///< those that a device makes in a side queue (Queue), beside the others
};

class Network {
 public:
  virtual ~Network() = default;
  const ParameterTable& parameters() const noexcept { return parameters_; }
  const ActivationTable& activations() const noexcept { return activations_; }
  /// What a recurrent network keeps from a batch to the next one of the same sequences, zero at first. Its batches are
  /// stateful: sample i goes on where sample i of the batch before ended.
  const ActivationTable& recurrent_state() const noexcept { return recurrent_state_; }
  const SampleShape& sample_shape() const noexcept { return shape_; }
  /// Rows of the output per sample: what the loss is a mean over besides samples. 1, or the context.
  std::int64_t positions() const noexcept { return shape_.tokens ? shape_.features : 1; }

  /// Passes in training sum over ranks within (Pass::sum_over_ranks): every rank must make them, if with an empty
  /// batch.
  bool synchronizes() const noexcept { return synchronizes_; }

  /// Whether forward makes do with some positions of a sample, in order (Pass::positions): what is behind a position
  /// has no say in it, and all that later ones need of it stays among the activations.
  virtual bool reuses_positions() const noexcept { return false; }

  virtual std::vector<LayerPlan> plan() const = 0;
  /// Text that names the network and its options; equal text means equal network. For fingerprint and checkpoint.
  virtual std::string signature() const = 0;
  /// The output [batch * positions, outputs], among the activations; columns of padding may follow the outputs.
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

  /// Other initial values for weights (Decay::yes) or biases of the layers that are named. Throws std::invalid_argument
  /// for a layer that has none.
  void set_initializers(std::string_view option, const Initializers& initializers);
  /// These parameters stay as they are (ParameterTable::freeze): passes make no gradients of them, and backward ends
  /// above the lowest layer that is trained. Before any memory is taken.
  void freeze(std::span<const std::size_t> parameters) { parameters_.freeze(parameters); }
  /// Their learning rate is the schedule's times `scale`.
  void set_rate_scale(std::size_t parameter, double scale) { parameters_.set_rate_scale(parameter, scale); }

 protected:
  ParameterTable parameters_;
  ActivationTable activations_, recurrent_state_;
  SampleShape shape_;
  bool synchronizes_ = false;
};

/// What a sample must be for a network.
enum class Reads {
  features,  ///< numbers; of an image, its pixels
  images,
  tokens
};

inline constexpr std::int64_t kSmallData = 20'000;

/// A kind of network, as users know it: all that the program knows of it besides the network itself.
struct NetworkKind {
  std::string_view name;     ///< of --model, and of the file
  std::string_view summary;  ///< one line for --help
  Reads reads = Reads::features;
  /// A state goes on from a batch to the next one (Network::recurrent_state()), so a sample follows the one before it.
  bool recurrent = false;
  std::vector<NetworkOption> options = {};
  /// For networks that read tokens: the option (a whole number) that says how many tokens a sample has.
  std::string_view window = {};
  /// How it is usually trained: values of `lockstep train` options that the user leaves alone.
  std::vector<std::pair<std::string_view, std::string_view>> training_defaults = {};
  /// Values of `options` for small data (fewer than kSmallData samples), where the user leaves them alone.
  std::vector<std::pair<std::string_view, OptionValue>> small_data = {};
  /// `options` has a value for each option that is not automatic, and each is allowed; `shape` is of what `reads` says,
  /// with a positive number of outputs (and tokens). Throws std::invalid_argument where they do not fit together.
  std::unique_ptr<Network> (*make)(const NetworkOptions& options, const SampleShape& shape);

  /// nullptr where it takes no such option.
  const NetworkOption* find(std::string_view option) const;
};

/// Throws std::invalid_argument for an unknown name, options that the kind does not take or allow, and samples that it
/// cannot read.
std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape);
/// With the kind's values for options that are not set. Throws std::invalid_argument as make_network does.
NetworkOptions with_defaults(const NetworkOptions& options);
/// Tokens of a sample, for a network that reads tokens; else 0. Throws std::invalid_argument as make_network does.
std::int64_t tokens_per_sample(const NetworkOptions& options);
/// Throws std::invalid_argument naming the valid ones.
const NetworkKind& network_kind(std::string_view name);
/// Names that make_network knows.
std::vector<std::string> network_names();
/// Those of the networks that read tokens.
std::vector<std::string> language_models();

}  // namespace lockstep::model
