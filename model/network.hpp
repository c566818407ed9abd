/// \file
/// A network: its graph, its parameter table, and the programs of its passes with their activations. It owns no device
/// memory. It fixes shapes, offsets and costs before any memory is allocated.
///
/// Each shipped network is one file, networks/NAME.yaml (networks.md). CMake embeds all of them in the program.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/activation_table.hpp"
#include "model/graph/graph.hpp"
#include "model/graph/program.hpp"
#include "model/graph/rewrites.hpp"
#include "model/layer_plan.hpp"
#include "model/network_options.hpp"
#include "model/parameters.hpp"
#include "model/pass.hpp"

namespace lockstep::model {

enum class LossKind {
  softmax_cross_entropy,  ///< classes, exactly one per sample
  mean_squared_error,     ///< numbers
  binary_cross_entropy,   ///< labels, any number per sample
  mean_absolute_error,    ///< numbers
  huber,                  ///< numbers
  soft_cross_entropy,     ///< probabilities of the classes, which sum to 1
  soft_dice,              ///< masks
};
/// True if the targets are numbers, not classes, labels or probabilities.
constexpr bool is_of_numbers(LossKind loss) noexcept {
  return loss == LossKind::mean_squared_error || loss == LossKind::mean_absolute_error || loss == LossKind::huber;
}
/// True if the targets are class indices, int32; else they are float32.
constexpr bool takes_classes(LossKind loss) noexcept {
  return loss == LossKind::softmax_cross_entropy || loss == LossKind::soft_dice;
}
/// True if the outputs are logits of classes, and the largest is the answer.
constexpr bool chooses_class(LossKind loss) noexcept {
  return takes_classes(loss) || loss == LossKind::soft_cross_entropy;
}

/// Names of the losses in options and in network files.
std::span<const std::pair<std::string_view, LossKind>> loss_words();

/// A loss that a network file names.
struct DeclaredLoss {
  LossKind kind = LossKind::softmax_cross_entropy;
  std::string word = {};    ///< name of the kind, as written in the file
  std::string of = {};      ///< name of the value that it reads; "": the output
  std::string target = {};  ///< name of its target; "": the only target
  double weight = 1;
  /// > 0: this target, among targets of numbers, is a class index below `classes`. The loss is then soft_cross_entropy
  /// with one column per class.
  std::int64_t classes = 0;
  std::optional<std::int64_t> ignored = {};  ///< label of positions that it ignores
  std::string place = {};                    ///< "net.yaml:14"
};

/// One of several inputs of a network.
struct SampleInput {
  std::string name;
  std::vector<std::int64_t> extents;  ///< extents of a sample, channels last; empty: one number
};

/// Shape of a sample, as a network reads it.
struct SampleShape {
  std::int64_t features = 0;  ///< elements of x per sample; tokens: the context
  std::int64_t outputs = 0;   ///< classes, targets, or channels of a field; tokens: the vocabulary
  /// Shape of the features, if they are an image (after augmentation) or a volume.
  std::optional<ImageShape> image = {};
  bool tokens = false;  ///< x and y are tokens, int32 [context] each
  /// Two or more inputs, stored one after the other in a row of x, `features` numbers in all; empty: x is the only
  /// input.
  std::vector<SampleInput> inputs = {};
  /// Extents of the positions that have a class (masks) or numbers (fields) each; the extents of the network's output
  /// before its outputs. Empty: a sample has one label, or a row of targets.
  std::vector<std::int64_t> grid = {};
  bool is_field = false;  ///< the positions have numbers, and `outputs` are the channels
  /// Set if the data do not say whether samples have positions: an output of several rows of `outputs` then has a grid
  /// of as many positions.
  bool takes_grid_of_output = false;
};

/// A network made from a description.
class Network {
 public:
  /// The description's output must have `shape.outputs` elements, or as many per position. Throws std::invalid_argument
  /// for an invalid description, with the place and the name of the call.
  Network(const Description& description, const SampleShape& shape, std::string signature,
          OperationKinds kinds = operation_kinds());
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Description& description() const noexcept { return description_; }
  /// Returns the graph of the description without fused operations, for exports. `table` and `state` must be empty;
  /// they receive its declarations.
  Graph plain_graph(ParameterTable& table, ActivationTable& state) const {
    return Graph(in_time_major_order(description_, kinds_), table, state, kinds_);
  }
  const ParameterTable& parameters() const noexcept { return parameters_; }
  /// Activations of passes with or without Pass::training.
  const ActivationTable& activations(Purpose purpose) const noexcept { return program(purpose).activations(); }
  const Program& program(Purpose purpose) const noexcept {
    return purpose == Purpose::training ? *training_ : *evaluation_;
  }
  /// State that a recurrent network carries from one batch to the next of the same sequences; zero at first. Sample i
  /// of a batch continues sample i of the preceding batch.
  const ActivationTable& recurrent_state() const noexcept { return recurrent_state_; }
  const SampleShape& sample_shape() const noexcept { return shape_; }
  /// Rows of the output per sample: 1, the context, or the positions of a mask or a field. The loss is a mean over
  /// them.
  std::int64_t positions() const noexcept {
    if (shape_.tokens) return shape_.features;
    std::int64_t positions = 1;
    for (const std::int64_t extent : shape_.grid) positions *= extent;
    return positions;
  }

  /// A range of columns of the output.
  struct Columns {
    std::int64_t first = 0, count = 0;
  };
  /// Returns the columns that hold the value `name`: all for the last layer, some for a value that it concatenates;
  /// nullopt if the output does not hold the value.
  std::optional<Columns> columns_of(std::string_view name) const;
  /// Ranges of a sample's numbers that the network reads as tokens.
  std::vector<TokenRange> token_ranges() const;
  /// True if training passes are collective (Pass::sum_over_ranks): every rank must run them, even with an empty batch.
  bool synchronizes() const noexcept { return synchronizes_; }
  /// True if forward can compute a subset of a sample's positions, in order (Pass::positions): no position depends on
  /// later ones, and the activations keep what later positions need.
  bool reuses_positions() const noexcept { return reuses_positions_; }

  std::vector<LayerPlan> plan() const { return plan(description_.groups); }
  /// Counts the groups of calls that are fused into one pass over memory, by name: "conv + relu".
  std::map<std::string, int> fusions() const;
  /// Like plan(), but with a line for each operation instead of one for each group.
  std::vector<LayerPlan> operation_plan() const { return plan({}); }
  /// Identifies the network: equal text, equal network and options. For fingerprints and checkpoints.
  const std::string& signature() const noexcept { return signature_; }
  /// Runs forward. Returns the output [batch * positions, outputs], which is part of the activations; columns of
  /// padding may follow the outputs. In training the loss overwrites it with its gradient.
  Tensor forward(const Pass& pass) const;
  /// Runs backward. `pass` is that of the preceding forward, whose output now holds its gradient.
  void backward(const Pass& pass, Accumulate accumulate, const GradientReady& ready) const {
    training_->backward(pass, accumulate, ready);
  }
  /// Returns the targets of the output's rows, from the batch's y: int32 or float32 [batch * positions, ...].
  Tensor targets(const Pass& pass, const Tensor& y) const;

  /// Replaces the initial values of weights (Decay::yes) or biases of the named layers. Throws std::invalid_argument
  /// for a layer without weights (or biases).
  void set_initializers(std::string_view option, const Initializers& initializers);
  /// Freezes parameters (ParameterTable::freeze). Passes then compute no gradients of them, nor of values that depend
  /// on no trained parameter. Call it before any memory is allocated.
  void freeze(std::span<const std::size_t> parameters);
  /// Multiplies the parameter's learning rate by `scale`.
  void set_rate_scale(std::size_t parameter, double scale) { parameters_.set_rate_scale(parameter, scale); }

 private:
  static Purpose purpose_of(const Pass& pass) noexcept {
    return pass.training ? Purpose::training : Purpose::evaluation;
  }
  void compile();
  void require_output_of_grid(const Shape& output) const;
  std::vector<LayerPlan> plan(std::span<const CallGroup> groups) const;

  ParameterTable parameters_;
  ActivationTable recurrent_state_;
  SampleShape shape_;
  std::string signature_;
  std::vector<const OperationKind*> kinds_;
  Description description_;
  Graph graph_;
  bool synchronizes_ = false, reuses_positions_ = false;
  std::optional<Program> training_, evaluation_;
};

/// Kind of samples that a network reads.
enum class Reads {
  features,  ///< numbers; the pixels of an image
  images,
  any,  ///< samples of any shape: numbers, series, images, volumes
  tokens
};

inline constexpr std::int64_t kSmallData = 20'000;

struct YamlNode;

/// A kind of network: its name, options, defaults and text.
struct NetworkKind {
  std::string name;     ///< value of --model for shipped networks
  std::string summary;  ///< one line for --help
  Reads reads = Reads::features;
  /// True if state passes from one batch to the next (Network::recurrent_state()).
  bool recurrent = false;
  std::vector<NetworkOption> options = {};
  /// For networks that read tokens: name of the option that sets the tokens per sample.
  std::string window = {};
  /// Defaults of `lockstep train` options that the user leaves unset.
  std::vector<std::pair<std::string, std::string>> training_defaults = {};
  /// Defaults of `options` that the user leaves unset, for fewer than kSmallData samples.
  std::vector<std::pair<std::string, OptionValue>> small_data = {};
  std::vector<DeclaredLoss> losses = {};          ///< empty: --loss selects it
  std::string file = {};                          ///< a user's file, as given to --model; "": a shipped network
  std::string text = {};                          ///< the file's content (YAML)
  std::shared_ptr<const YamlNode> document = {};  ///< the parsed text

  /// Returns the option; nullptr if the kind has none of this name.
  const NetworkOption* find(std::string_view option) const;
};

/// Makes a network. Throws std::invalid_argument for an unknown name, for options or values that the kind does not
/// allow, and for samples that it cannot read.
std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape);
/// Returns the options with the kind's defaults for unset ones. Throws std::invalid_argument as make_network does.
NetworkOptions with_defaults(const NetworkOptions& options);
/// Returns the inputs that a network file declares, in its order; extent 0 means any. Empty: one input of any shape.
std::vector<SampleInput> inputs_of(const NetworkOptions& options);
/// Returns the tokens per sample of a network that reads tokens; else 0. Throws std::invalid_argument as make_network
/// does.
std::int64_t tokens_per_sample(const NetworkOptions& options);
/// Returns a shipped network. Throws std::invalid_argument, which lists the valid names, for any other name.
const NetworkKind& network_kind(std::string_view name);
/// Returns the network of the user's file if the options have one, else the shipped network.
const NetworkKind& network_kind(const NetworkOptions& options);
/// True if this value of --model names a file, not a shipped network.
bool is_network_file(std::string_view model);
/// Names of the shipped networks.
std::vector<std::string> network_names();
/// Names of the shipped networks that read tokens.
std::vector<std::string> language_models();

}  // namespace lockstep::model
