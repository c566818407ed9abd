/// \file
/// "gpt", the transformer language model of Radford et al. 2019 (GPT-2): token and position embedding, blocks of
/// attention and feed-forward branches that read the norm of the residual stream, a last norm, and an output layer that
/// shares the embedding's table.
///
/// The norms add up the stream: each branch's output, in place, becomes the stream behind it. So a block keeps two
/// streams, two norms and its branches' activations, and the gradient of the stream is one tensor all the way back.
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "model/layers/dropout_layer.hpp"
#include "model/layers/embedding.hpp"
#include "model/layers/layer_norm.hpp"
#include "model/layers/token_head.hpp"
#include "model/layers/transformer_branch.hpp"

namespace lockstep::model {

namespace {

constexpr std::uint32_t kStreamsPerBlock = 3;  ///< dropout streams: probabilities and output of attention, feed-forward

struct Block {
  Block(ParameterTable& parameters, ActivationTable& activations, const std::string& name,
        const TransformerOptions& options, std::uint32_t stream)
      : norm_1(parameters, activations, name + "/norm_1", options.context, options.width),
        attention(parameters, activations, name + "/attention", options, stream),
        norm_2(parameters, activations, name + "/norm_2", options.context, options.width),
        feed_forward(parameters, activations, name + "/feed_forward", options, stream + 2) {}

  LayerNorm norm_1;
  AttentionBranch attention;
  LayerNorm norm_2;
  FeedForwardBranch feed_forward;
};

class Gpt final : public Network {
 public:
  Gpt(const NetworkOptions& options, const SampleShape& shape)
      : dropout_({.rate = static_cast<float>(options.get<double>("dropout")), .stream = kFirstDropoutStream}) {
    shape_ = shape;
    const auto layers = options.get<std::int64_t>("layers"), width = options.get<std::int64_t>("width"),
               heads = options.get<std::int64_t>("heads");
    if (width % heads != 0) {
      throw std::invalid_argument(
          fmt::format("network gpt of width {} and {} heads: the heads must divide the width", width, heads));
    }
    const bool tied = options.get<bool>("tied");
    const auto weight_initializer = options.initializer("weight-init");
    const Initializer weights =
        weight_initializer.value_or(Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02});
    // Each of 2 * layers branches adds to the stream: this scale keeps the sum's variance at that of one branch.
    const Initializer residual = weight_initializer.value_or(
        Initializer{.scheme = Initializer::Scheme::normal, .value = 0.02 / std::sqrt(2 * static_cast<double>(layers))});
    const TransformerOptions transformer{.context = shape.features,
                                         .width = width,
                                         .heads = heads,
                                         .dropout = static_cast<float>(options.get<double>("dropout")),
                                         .initializer = weights,
                                         .residual_initializer = residual};
    embedding_ = std::make_unique<Embedding>(parameters_, activations_, "embedding",
                                             EmbeddingOptions{.context = shape.features,
                                                              .vocabulary = shape.outputs,
                                                              .width = width,
                                                              .positions = true,
                                                              .shared = tied,
                                                              .initializer = weights});
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::uint32_t stream = kFirstDropoutStream + 1 + kStreamsPerBlock * static_cast<std::uint32_t>(i);
      blocks_.push_back(
          std::make_unique<Block>(parameters_, activations_, fmt::format("block_{}", i + 1), transformer, stream));
    }
    norm_ = std::make_unique<LayerNorm>(parameters_, activations_, "norm", shape.features, width);
    head_ =
        std::make_unique<TokenHead>(parameters_, activations_, "head",
                                    TokenHeadOptions{.context = shape.features,
                                                     .vocabulary = shape.outputs,
                                                     .width = width,
                                                     .table = tied ? std::optional(embedding_->table()) : std::nullopt,
                                                     .initializer = weights});
    workspace_ = std::make_unique<TransformerWorkspace>(activations_, transformer);
    d_stream_ = activations_.add({.name = "", .rows = shape.features, .columns = width});
    parameters_.lay_out();
    signature_ = fmt::format("gpt {}x{} heads {} vocabulary {} context {}{}", layers, width, heads, shape.outputs,
                             shape.features, tied ? "" : " untied");
  }

  std::string signature() const override { return signature_; }
  bool reuses_positions() const noexcept override { return true; }

  std::vector<LayerPlan> plan() const override {
    std::vector<LayerPlan> lines{embedding_->plan(parameters_)};
    for (const auto& block : blocks_) {
      lines.push_back(block->norm_1.plan(parameters_));
      lines.push_back(block->attention.plan(parameters_));
      lines.push_back(block->norm_2.plan(parameters_));
      lines.push_back(block->feed_forward.plan(parameters_));
    }
    lines.push_back(norm_->plan(parameters_));
    lines.push_back(head_->plan(parameters_));
    return lines;
  }

  Tensor forward(const Pass& pass) const override {
    Tensor stream = embedding_->forward(pass, tokens(pass));
    if (dropout_.acts(pass)) dropout_.apply(pass, stream, stream);
    Tensor branch;  // feed-forward branch that is not yet added
    const auto normalized = [&](const LayerNorm& norm) {
      if (branch.columns == 0) return norm.forward(pass, stream);
      const Tensor y = norm.forward_sum(pass, branch, stream);
      stream = branch;
      return y;
    };
    for (const auto& block : blocks_) {
      branch = block->attention.forward(pass, normalized(block->norm_1));
      branch = block->feed_forward.forward(pass, normalized(block->norm_2));
    }
    return head_->forward(pass, normalized(*norm_));
  }

  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override {
    const auto tell = [&](std::size_t end) {
      if (end > 0 && ready) ready(end);
    };
    const Tensor d_stream = pass.at(d_stream_), d_norm = pass.at(workspace_->branch);
    const bool below_head = head_->trains_below(parameters_);
    head_->backward(pass, norm_->output(pass), d_output, accumulate, below_head ? d_norm : Tensor{});
    tell(head_->gradients_end(parameters_));
    if (!below_head) return;
    norm_->backward(pass, stream_after(blocks_.size(), pass), d_norm, accumulate, d_stream);
    tell(norm_->gradients_end(parameters_));
    if (!norm_->trains_below(parameters_)) return;
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      const Block& block = *blocks_[i];
      block.feed_forward.backward(pass, *workspace_, block.norm_2.output(pass), d_stream, accumulate, d_norm);
      tell(block.feed_forward.gradients_end(parameters_));
      if (!block.feed_forward.trains_below(parameters_)) return;
      block.norm_2.backward_sum(pass, block.attention.output(pass), d_norm, accumulate, d_stream);
      tell(block.norm_2.gradients_end(parameters_));
      if (!block.norm_2.trains_below(parameters_)) return;
      block.attention.backward(pass, *workspace_, block.norm_1.output(pass), d_stream, accumulate, d_norm);
      tell(block.attention.gradients_end(parameters_));
      if (!block.attention.trains_below(parameters_)) return;
      block.norm_1.backward_sum(pass, stream_after(i, pass), d_norm, accumulate, d_stream);
      tell(block.norm_1.gradients_end(parameters_));
      if (!block.norm_1.trains_below(parameters_)) return;
    }
    if (dropout_.acts(pass)) dropout_.apply(pass, d_stream, d_stream);
    embedding_->backward(pass, tokens(pass), d_stream, accumulate, {});
    tell(embedding_->gradients_end(parameters_));
  }

 private:
  Tensor tokens(const Pass& pass) const { return pass.input.reshaped(pass.input.count(), 1); }
  /// The stream behind `blocks` blocks, as the forward pass left it.
  Tensor stream_after(std::size_t blocks, const Pass& pass) const {
    return blocks == 0 ? embedding_->output(pass) : blocks_[blocks - 1]->feed_forward.output(pass);
  }

  std::unique_ptr<Embedding> embedding_;
  DropoutLayer dropout_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<LayerNorm> norm_;
  std::unique_ptr<TokenHead> head_;
  std::unique_ptr<TransformerWorkspace> workspace_;
  std::size_t d_stream_ = 0;
  std::string signature_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<Gpt>(options, shape);
}

}  // namespace

extern const NetworkKind gpt_network;
const NetworkKind gpt_network{
    .name = "gpt",
    .summary = "transformer language model: --layers of --width with --heads",
    .reads = Reads::tokens,
    .options = {{.name = "layers", .value = 4, .value_name = "N", .help = "blocks", .at_least = 1},
                {.name = "width", .value = 128, .value_name = "N", .help = "of the residual stream", .at_least = 1},
                {.name = "heads", .value = 4, .value_name = "N", .help = "of each attention", .at_least = 1},
                {.name = "context", .value = 64, .value_name = "TOKENS", .help = "tokens of a sample", .at_least = 1},
                dropout_option(),
                tied_option(true),
                weight_init_option()},
    .window = "context",
    .training_defaults = {{"optimizer", "adamw"},
                          {"learning-rate", "0.001"},
                          {"beta2", "0.99"},
                          {"weight-decay", "0.1"},
                          {"clip-norm", "1"},
                          {"schedule", "cosine"},
                          {"warmup-steps", "100"},
                          {"final-learning-rate", "0.0001"},
                          {"batch", "16"},
                          {"evaluation-batch", "32"}},
    .make = make};

}  // namespace lockstep::model
