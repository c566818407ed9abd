/// \file
/// "resnet", residual networks (He et al. 2015): of depth 20, 32, 56 for small images, three stages of 16, 32, 64
/// channels with shortcuts that have no parameters; of depth 18, 34, 50 for large ones, four stages of 64 to 512
/// channels behind a 7x7 convolution and a max pool, with projections, the stride of a bottleneck in its 3x3
/// convolution.
///
/// The last scale of each block starts at 0, so that a block is initially the identity (Goyal et al. 2017). Scales,
/// shifts and biases are not decayed.
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "model/graph/graph_network.hpp"

namespace lockstep::model {

namespace {

/// Structure for one of the depths that the option allows.
struct Family {
  std::vector<std::int64_t> blocks;  ///< blocks per stage
  std::int64_t channels = 0;         ///< channels of the first stage; each further stage doubles them
  std::int64_t expansion = 1;
  bool large = false;  ///< starts with 7x7/2 and a pool, and uses projections
};

Family family_of(std::int64_t depth) {
  switch (depth) {
    case 20:
    case 32:
    case 56:
      return {.blocks = std::vector<std::int64_t>(3, (depth - 2) / 6), .channels = 16};
    case 18:
      return {.blocks = {2, 2, 2, 2}, .channels = 64, .large = true};
    case 34:
      return {.blocks = {3, 4, 6, 3}, .channels = 64, .large = true};
    default:  // 50
      return {.blocks = {3, 4, 6, 3}, .channels = 64, .expansion = 4, .large = true};
  }
}

class ResidualNetwork {
 public:
  ResidualNetwork(const NetworkOptions& options, const SampleShape& shape)
      : weight_initializer_(options.initializer("weight-init")),
        synchronizes_(options.get<bool>("sync-batch-norm")),
        network_{.input_shape = Shape(*shape.image), .calls = {}} {
    const Family family = family_of(options.get<std::int64_t>("depth"));
    const std::int64_t kernel = family.large ? 7 : 3;
    convolution("stem", network_.input,
                {.channels = family.channels, .kernel = kernel, .stride = family.large ? 2 : 1});
    norm("stem", {.relu = true});
    network_.groups.push_back({"stem", fmt::format("{0}x{0}{1}, batch norm", kernel, family.large ? "/2" : "")});
    if (family.large) add("max-pool", "pool", {}, {{"window", 3}, {"stride", 2}, {"padding", 1}});
    channels_ = family.channels;
    for (std::size_t stage = 0; stage < family.blocks.size(); ++stage) {
      for (std::int64_t i = 0; i < family.blocks[stage]; ++i) {
        block(fmt::format("stage_{}/block_{}", stage + 1, i + 1), family, family.channels << stage,
              stage > 0 && i == 0 ? 2 : 1);
      }
    }
    add("global-average", "average");
    Call& dense = add("dense", "dense", {}, {{"units", shape.outputs}});
    dense.set_initializer(
        "init", weight_initializer_.value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.01}));
    dense.set_initializer("bias-init", options.initializer("bias-init").value_or(Initializer{}));
  }
  const Description& description() const { return network_; }

 private:
  struct Filters {
    std::int64_t channels, kernel, stride;
    std::string declared_before = {};
  };
  struct Norm {
    bool relu = false;
    std::string residual = {};  ///< the value to be added; the scale then starts at 0
    std::string declared_before = {};
  };

  Call& add(std::string kind, std::string name, std::vector<std::string> from = {},
            decltype(Call::arguments) arguments = {}) {
    network_.calls.push_back(
        {.kind = std::move(kind), .name = std::move(name), .from = std::move(from), .arguments = std::move(arguments)});
    return network_.calls.back();
  }
  std::string last() const { return network_.calls.back().name; }

  /// Without bias. The initial weights keep the variance of gradients in the backward pass (He et al. 2015, equation
  /// 14).
  void convolution(const std::string& name, const std::string& from, const Filters& filters) {
    Call& call = add("conv", name, {from},
                     {{"channels", filters.channels},
                      {"kernel", filters.kernel},
                      {"stride", filters.stride},
                      {"padding", filters.kernel / 2},
                      {"bias", false}});
    const auto fan_out = static_cast<double>(filters.kernel * filters.kernel * filters.channels);
    call.set_initializer("init", weight_initializer_.value_or(Initializer{.scheme = Initializer::Scheme::normal,
                                                                          .value = std::sqrt(2 / fan_out)}));
    call.declared_before = filters.declared_before;
  }
  /// Behind the convolution NAME.
  void norm(const std::string& name, const Norm& norm) {
    std::vector<std::string> from{name};
    if (!norm.residual.empty()) from.push_back(norm.residual);
    Call& call =
        add("batch-norm", name + "/norm", std::move(from),
            {{"relu", norm.relu}, {"scale", norm.residual.empty() ? 1.0 : 0.0}, {"synchronize", synchronizes_}});
    call.declared_before = norm.declared_before;
  }

  /// Two 3x3 convolutions, or 1x1, 3x3, 1x1 (bottleneck); the block's input is added before the last ReLU. The stride
  /// is in the first 3x3 convolution. A projection of the input comes behind the convolutions, so that its gradient is
  /// the first; its parameters are the block's first ones.
  void block(const std::string& name, const Family& family, std::int64_t channels, std::int64_t stride) {
    const bool bottleneck = family.expansion > 1;
    const std::int64_t out = channels * family.expansion;
    const bool changes = stride != 1 || out != channels_;
    const std::string input = last();
    std::string shortcut = input;
    if (changes && !family.large) {
      add("subsample", name + "/shortcut", {input}, {{"channels", out}, {"stride", stride}});
      shortcut = last();
    }
    const int count = bottleneck ? 3 : 2;
    std::string before = input, convolved;
    for (int i = 0; i < count; ++i) {
      const bool is_wide = !bottleneck || i == 1, is_last = i + 1 == count;
      convolved = fmt::format("{}/conv_{}", name, i + 1);
      convolution(convolved, before,
                  {.channels = is_last ? out : channels,
                   .kernel = is_wide ? 3 : 1,
                   .stride = i == (bottleneck ? 1 : 0) ? stride : 1});
      if (is_last) break;
      norm(convolved, {.relu = true});
      before = last();
    }
    if (changes && family.large) {
      const std::string projection = name + "/projection", first = name + "/conv_1";
      convolution(projection, input, {.channels = out, .kernel = 1, .stride = stride, .declared_before = first});
      norm(projection, {.declared_before = first});
      shortcut = last();
    }
    norm(convolved, {.relu = true, .residual = shortcut});
    network_.groups.push_back(
        {name, fmt::format("{} convolutions{}", count, changes && family.large ? ", projection" : "")});
    channels_ = out;
  }

  std::optional<Initializer> weight_initializer_;
  bool synchronizes_;
  Description network_;
  std::int64_t channels_ = 0;  ///< channels of the next block's input
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<GraphNetwork>(ResidualNetwork(options, shape).description(), shape,
                                        fmt::format("resnet {} {}-{}", options.get<std::int64_t>("depth"),
                                                    to_string(Shape(*shape.image)), shape.outputs));
}

}  // namespace

extern const NetworkKind resnet_network;
const NetworkKind resnet_network{.name = "resnet",
                                 .summary = "residual network of --depth 20, 32, 56 (small images) or 18, 34, 50",
                                 .reads = Reads::images,
                                 .options = {{.name = "depth",
                                              .value = 20,
                                              .value_name = "LAYERS",
                                              .help = "20, 32 or 56 for small images, 18, 34 or 50 for large ones",
                                              .at_least = 1,
                                              .one_of = {18, 20, 32, 34, 50, 56}},
                                             {.name = "sync-batch-norm",
                                              .value = false,
                                              .value_name = "",
                                              .help = "batch statistics over all ranks, not over each rank's part"},
                                             weight_init_option(),
                                             bias_init_option()},
                                 .training_defaults = {{"augment", "pad=4,flip"},
                                                       {"optimizer", "nesterov"},
                                                       {"learning-rate", "0.1"},
                                                       {"l2", "0.0001"},
                                                       {"schedule", "cosine"},
                                                       {"batch", "128"}},
                                 .make = make};

}  // namespace lockstep::model
