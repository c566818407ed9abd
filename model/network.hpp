/// \file
/// A network: its graph, a parameter table, and programs with their activations. Owns no memory; shapes, offsets and
/// costs are decided once, before any memory is taken.
///
/// One network is one file in networks/, NAME.yaml (networks.md). CMake puts all of them into the program.
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
/// True if the network learns numbers, not classes, labels or probabilities.
constexpr bool is_of_numbers(LossKind loss) noexcept {
  return loss == LossKind::mean_squared_error || loss == LossKind::mean_absolute_error || loss == LossKind::huber;
}
/// True if the targets are the numbers of classes, int32; else float32.
constexpr bool takes_classes(LossKind loss) noexcept {
  return loss == LossKind::softmax_cross_entropy || loss == LossKind::soft_dice;
}
/// True if the outputs are logits of classes, of which one is the answer.
constexpr bool chooses_class(LossKind loss) noexcept {
  return takes_classes(loss) || loss == LossKind::soft_cross_entropy;
}

/// The words of the losses, in options and in network files.
std::span<const std::pair<std::string_view, LossKind>> loss_words();

/// A loss that a network file names.
struct DeclaredLoss {
  LossKind kind = LossKind::softmax_cross_entropy;
  std::string word = {};    ///< name of the kind, as the file has it
  std::string of = {};      ///< the value that it judges; "": the output
  std::string target = {};  ///< "": the only one
  double weight = 1;
  /// > 0: beside numbers the target is the number of one of so many classes. The loss is then soft_cross_entropy over a
  /// column for each of them.
  std::int64_t classes = 0;
  std::optional<std::int64_t> ignored = {};  ///< label of positions that it leaves out
  std::string place = {};                    ///< "net.yaml:14"
};

/// One of several inputs of a network.
struct SampleInput {
  std::string name;
  std::vector<std::int64_t> extents;  ///< extents of a sample, channels last; none: one number
};

/// Shape of a sample as a network sees it.
struct SampleShape {
  std::int64_t features = 0;  ///< elements of x per sample; tokens: the context
  std::int64_t outputs = 0;   ///< classes, or regression targets per sample; tokens: the vocabulary
  /// Shape of the features, if they are an image (after augmentation) or a volume.
  std::optional<ImageShape> image = {};
  bool tokens = false;  ///< x and y are tokens, int32 [context] each
  /// Two or more inputs, whose numbers lie side by side in x, `features` in all; empty: x is the input.
  std::vector<SampleInput> inputs = {};
  /// Extents of the positions of a sample that have a label each (a mask), as the network's output has them before its
  /// classes; empty: a sample has one label, or targets.
  std::vector<std::int64_t> mask = {};
  /// The data do not tell: an output of several rows of `outputs` has a mask of as many positions.
  bool takes_mask_of_output = false;
};

/// A network made from a description.
class Network {
 public:
  /// The output has as many elements as `shape` has outputs. signature: see signature(). Throws std::invalid_argument
  /// for a description that is none, with the place and the name of the call.
  Network(const Description& description, const SampleShape& shape, std::string signature,
          OperationKinds kinds = operation_kinds());
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const Description& description() const noexcept { return description_; }
  /// The graph of the description as it is, whose operations are not fused: for exports. table, state: empty ones.
  Graph plain_graph(ParameterTable& table, ActivationTable& state) const {
    return Graph(in_time_major_order(description_, kinds_), table, state, kinds_);
  }
  const ParameterTable& parameters() const noexcept { return parameters_; }
  /// Activations of passes that train, or of the others (Pass::training).
  const ActivationTable& activations(Purpose purpose) const noexcept { return program(purpose).activations(); }
  const Program& program(Purpose purpose) const noexcept {
    return purpose == Purpose::training ? *training_ : *evaluation_;
  }
  /// State that a recurrent network carries from one batch to the next of the same sequences, zero at first. Its
  /// batches are stateful: sample i continues sample i of the preceding batch.
  const ActivationTable& recurrent_state() const noexcept { return recurrent_state_; }
  const SampleShape& sample_shape() const noexcept { return shape_; }
  /// Rows of the output per sample; the loss is a mean over them, too. 1, the context, or the positions of a mask.
  std::int64_t positions() const noexcept {
    if (shape_.tokens) return shape_.features;
    std::int64_t positions = 1;
    for (const std::int64_t extent : shape_.mask) positions *= extent;
    return positions;
  }

  /// Columns of the output.
  struct Columns {
    std::int64_t first = 0, count = 0;
  };
  /// Those that are the value `name`: all for the last layer, some for a value that it concatenates; nullopt: no such
  /// value is in the output.
  std::optional<Columns> columns_of(std::string_view name) const;
  /// Numbers of a sample that the network reads as tokens.
  std::vector<TokenRange> token_ranges() const;
  /// True if training passes sum over ranks (Pass::sum_over_ranks): then every rank must make them, even with an empty
  /// batch.
  bool synchronizes() const noexcept { return synchronizes_; }
  /// True if forward can compute a subset of a sample's positions, in order (Pass::positions): no position depends on
  /// later ones, and everything that later ones need of it stays among the activations.
  bool reuses_positions() const noexcept { return reuses_positions_; }

  std::vector<LayerPlan> plan() const { return plan(description_.groups); }
  /// Calls of the description that are computed in one pass over memory, "conv + relu", and how often.
  std::map<std::string, int> fusions() const;
  /// A line for each operation, where plan() has one for a group of them.
  std::vector<LayerPlan> operation_plan() const { return plan({}); }
  /// Identifies the network: equal text, equal network and options. For fingerprint and checkpoint.
  const std::string& signature() const noexcept { return signature_; }
  /// The output [batch * positions, outputs], among the activations; columns of padding may follow the outputs. In
  /// training the loss turns it into its gradient.
  Tensor forward(const Pass& pass) const;
  /// Same pass as the forward before it, whose output has become its gradient.
  void backward(const Pass& pass, Accumulate accumulate, const GradientReady& ready) const {
    training_->backward(pass, accumulate, ready);
  }
  /// The targets of the output's rows: int32 or float32 [batch * positions, ...] from the batch's y.
  Tensor targets(const Pass& pass, const Tensor& y) const;

  /// Replaces the initial values of weights (Decay::yes) or biases of the named layers. Throws std::invalid_argument
  /// for a layer that has none.
  void set_initializers(std::string_view option, const Initializers& initializers);
  /// Freezes parameters (ParameterTable::freeze): passes make no gradients of them, nor of values that no trained one
  /// lies before. Call it before any memory is taken.
  void freeze(std::span<const std::size_t> parameters);
  /// Multiplies the parameter's learning rate by `scale`.
  void set_rate_scale(std::size_t parameter, double scale) { parameters_.set_rate_scale(parameter, scale); }

 private:
  static Purpose purpose_of(const Pass& pass) noexcept {
    return pass.training ? Purpose::training : Purpose::evaluation;
  }
  void compile();
  void require_output_of_masks(const Shape& output) const;
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

/// Kind of samples that a network accepts.
enum class Reads {
  features,  ///< numbers; for an image, its pixels
  images,
  any,  ///< samples as they are stored: numbers, series, images, volumes
  tokens
};

inline constexpr std::int64_t kSmallData = 20'000;

struct YamlNode;

/// A kind of network, as users know it: everything the program knows about it besides the network itself.
struct NetworkKind {
  std::string name;     ///< value of --model for shipped networks
  std::string summary;  ///< one line for --help
  Reads reads = Reads::features;
  /// True if state passes from one batch to the next (Network::recurrent_state()): a sample continues the preceding
  /// one.
  bool recurrent = false;
  std::vector<NetworkOption> options = {};
  /// For networks that read tokens: name of the option (a whole number) for the tokens per sample.
  std::string window = {};
  /// Usual training settings: values of `lockstep train` options that the user leaves unset.
  std::vector<std::pair<std::string, std::string>> training_defaults = {};
  /// Values of `options` for small data (fewer than kSmallData samples), if the user leaves them unset.
  std::vector<std::pair<std::string, OptionValue>> small_data = {};
  std::vector<DeclaredLoss> losses = {};          ///< none: --loss has it
  std::string file = {};                          ///< a user's file, as --model names it; "": the network is shipped
  std::string text = {};                          ///< the file's content (YAML)
  std::shared_ptr<const YamlNode> document = {};  ///< the text as a tree

  /// nullptr if the kind has no such option.
  const NetworkOption* find(std::string_view option) const;
};

/// Throws std::invalid_argument for an unknown name, for options that the kind does not take or allow, and for samples
/// that it cannot read.
std::unique_ptr<Network> make_network(const NetworkOptions& options, const SampleShape& shape);
/// Fills in the kind's values of unset options. Throws std::invalid_argument as make_network does.
NetworkOptions with_defaults(const NetworkOptions& options);
/// The inputs that a network file declares, in its order; an extent of 0 is any. None: one input of any shape.
std::vector<SampleInput> inputs_of(const NetworkOptions& options);
/// Tokens of a sample, for a network that reads tokens; else 0. Throws std::invalid_argument as make_network does.
std::int64_t tokens_per_sample(const NetworkOptions& options);
/// Throws std::invalid_argument that lists the valid names.
const NetworkKind& network_kind(std::string_view name);
/// The network of the user's file if the options have one of that name.
const NetworkKind& network_kind(const NetworkOptions& options);
/// True for the value of --model that names a file, not a shipped network.
bool is_network_file(std::string_view model);
/// Names that make_network knows.
std::vector<std::string> network_names();
/// The names of networks that read tokens.
std::vector<std::string> language_models();

}  // namespace lockstep::model
