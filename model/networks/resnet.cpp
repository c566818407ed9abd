/// \file
/// "resnet", residual networks (He et al. 2015): of depth 20, 32, 56 for small images, three stages of 16, 32, 64
/// channels with shortcuts that have no parameters; of depth 18, 34, 50 for large ones, four stages of 64 to 512
/// channels behind a 7x7 convolution and a max pool, with projections, the stride of a bottleneck in its 3x3
/// convolution.
///
/// The last scale of each block starts at 0, so that a block is initially the identity (Goyal et al. 2017). Scales,
/// shifts and biases are not decayed.
#include <utility>

#include <fmt/format.h>

#include "model/layers/dense.hpp"
#include "model/layers/global_average_layer.hpp"
#include "model/layers/max_pool_layer.hpp"
#include "model/layers/residual_block.hpp"

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

class ResidualNetwork final : public Network {
 public:
  ResidualNetwork(const NetworkOptions& options, const SampleShape& shape) {
    shape_ = shape;
    const ImageShape image = *shape.image;
    const std::int64_t depth = options.get<std::int64_t>("depth");
    const auto weight_initializer = options.initializer("weight-init");
    const Family family = family_of(depth);
    synchronizes_ = options.get<bool>("sync-batch-norm");
    stem_ = std::make_unique<NormalizedConvolution>(
        parameters_, activations_, "stem",
        NormalizedConvolution::Options{.in = image,
                                       .window = family.large ? even_padding(7, 2, 3) : even_padding(3, 1, 1),
                                       .channels = family.channels,
                                       .synchronize = synchronizes_,
                                       .first = true,
                                       .weight_initializer = weight_initializer});
    workspaces_.fit(stem_->out().elements());
    ImageShape in = stem_->out();
    if (family.large) {
      pool_ = std::make_unique<MaxPoolLayer>(parameters_, activations_, "pool", in, even_padding(3, 2, 1));
      in = pool_->out();
    }
    for (std::size_t stage = 0; stage < family.blocks.size(); ++stage) {
      for (std::int64_t block = 0; block < family.blocks[stage]; ++block) {
        blocks_.push_back(std::make_unique<ResidualBlock>(
            parameters_, activations_, fmt::format("stage_{}/block_{}", stage + 1, block + 1),
            ResidualOptions{.in = in,
                            .channels = family.channels << stage,
                            .expansion = family.expansion,
                            .stride = stage > 0 && block == 0 ? 2 : 1,
                            .shortcut = family.large ? Shortcut::projection : Shortcut::subsample,
                            .synchronize = synchronizes_,
                            .weight_initializer = weight_initializer},
            workspaces_));
        in = blocks_.back()->out();
      }
    }
    average_ = std::make_unique<GlobalAverageLayer>(parameters_, activations_, "average", in);
    dense_ = std::make_unique<Dense>(
        parameters_, activations_, "dense",
        DenseOptions{.inputs = in.channels,
                     .outputs = shape.outputs,
                     .weight_initializer =
                         weight_initializer.value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.01}),
                     .bias_initializer = options.initializer("bias-init").value_or(Initializer{}),
                     .last = true});
    d_average_ = activations_.add({.name = "", .columns = in.channels});
    workspaces_.add_to(activations_);
    parameters_.lay_out();
    signature_ = fmt::format("resnet {} {}-{}", depth, describe(image), shape.outputs);
  }

  std::string signature() const override { return signature_; }

  std::vector<LayerPlan> plan() const override {
    std::vector<LayerPlan> lines{stem_->plan(parameters_)};
    if (pool_) lines.push_back(pool_->plan(parameters_));
    for (const auto& block : blocks_) lines.push_back(block->plan(parameters_));
    lines.push_back(average_->plan(parameters_));
    lines.push_back(dense_->plan(parameters_));
    return lines;
  }

  Tensor forward(const Pass& pass) const override {
    Tensor x = stem_->forward(pass, pass.input);
    if (pool_) x = pool_->forward(pass, x);
    for (const auto& block : blocks_) x = block->forward(pass, x);
    return dense_->forward(pass, average_->forward(pass, x));
  }

  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override {
    const auto tell = [&](std::size_t end) {
      if (ready) ready(end);
    };
    const bool below_dense = dense_->trains_below(parameters_);
    const Tensor d_average = below_dense ? pass.at(d_average_) : Tensor{};
    dense_->backward(pass, average_->output(pass), d_output, accumulate, d_average);
    tell(dense_->gradients_end(parameters_));
    if (!below_dense) return;

    std::size_t workspace = 0;
    const Tensor last = blocks_.back()->output(pass);
    average_->backward(pass, last, d_average, accumulate, workspaces_.at(pass, workspace, last.columns));
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      workspace = blocks_[i]->backward(pass, workspaces_, i == 0 ? stem_output(pass) : blocks_[i - 1]->output(pass),
                                       workspace, accumulate);
      tell(blocks_[i]->gradients_end(parameters_));
      if (!blocks_[i]->trains_below(parameters_)) return tell(parameters_.updated_elements());
    }
    const Tensor before_pool = stem_->output(pass);
    if (pool_) {
      const std::size_t pooled = workspace;
      workspace = (workspace + 1) % 3;
      pool_->backward(pass, before_pool, workspaces_.at(pass, pooled, pool_->columns()), accumulate,
                      workspaces_.at(pass, workspace, before_pool.columns));
    }
    const Tensor d_stem = workspaces_.at(pass, workspace, before_pool.columns);
    stem_->backward(pass, pass.input, d_stem, d_stem, accumulate, {});
    tell(stem_->gradients_end(parameters_));
    tell(parameters_.updated_elements());
  }

 private:
  /// The input of the first block.
  Tensor stem_output(const Pass& pass) const { return pool_ ? pool_->output(pass) : stem_->output(pass); }

  std::unique_ptr<NormalizedConvolution> stem_;
  std::unique_ptr<MaxPoolLayer> pool_;
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
  std::unique_ptr<GlobalAverageLayer> average_;
  std::unique_ptr<Dense> dense_;
  GradientWorkspaces workspaces_;
  std::size_t d_average_ = 0;
  std::string signature_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<ResidualNetwork>(options, shape);
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
