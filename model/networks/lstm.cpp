/// \file
/// "lstm", the recurrent language model of the PTB tutorial (Zaremba, Sutskever & Vinyals 2014): embedding, LSTM layers
/// of one width, an output layer; dropout between layers, never between steps. The sequence's next window begins with
/// the state at the end of a window.
///
/// Rows are time-major inside, so that a step is one block of rows; so are the targets.
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "model/layers/dropout_layer.hpp"
#include "model/layers/embedding.hpp"
#include "model/layers/lstm_stack.hpp"
#include "model/layers/token_head.hpp"

namespace lockstep::model {

namespace {

class LstmLanguageModel final : public Network {
 public:
  LstmLanguageModel(const NetworkOptions& options, const SampleShape& shape) {
    shape_ = shape;
    const auto widths = options.get<Numbers>("hidden");
    if (widths.size() != 1) throw std::invalid_argument("network lstm has one hidden width for all its layers");
    const std::int64_t hidden = widths.front(), layers = options.get<std::int64_t>("layers"), context = shape.features;
    const bool tied = options.get<bool>("tied");
    const auto dropout = static_cast<float>(options.get<double>("dropout"));
    const Initializer weights =
        options.initializer("weight-init").value_or(Initializer{.scheme = Initializer::Scheme::uniform, .value = 0.1});

    tokens_ = activations_.add({.name = "", .rows = context, .columns = 1, .holds = Holds::tokens});
    targets_ = activations_.add({.name = "", .rows = context, .columns = 1, .holds = Holds::tokens});
    embedding_ = std::make_unique<Embedding>(
        parameters_, activations_, "embedding",
        EmbeddingOptions{
            .context = context, .vocabulary = shape.outputs, .width = hidden, .shared = tied, .initializer = weights});
    Dropout rule{.rate = dropout, .stream = kFirstDropoutStream, .order = RowOrder::time_major};
    embedding_dropout_.emplace(rule);
    ++rule.stream;
    layers_.emplace(parameters_, activations_, recurrent_state_,
                    LstmStackOptions{.layers = layers,
                                     .context = context,
                                     .width = hidden,
                                     .dropout = rule,
                                     .weight_initializer = weights,
                                     .bias_initializer = options.initializer("bias-init").value_or(Initializer{})});
    head_ =
        std::make_unique<TokenHead>(parameters_, activations_, "head",
                                    TokenHeadOptions{.context = context,
                                                     .vocabulary = shape.outputs,
                                                     .width = hidden,
                                                     .table = tied ? std::optional(embedding_->table()) : std::nullopt,
                                                     .initializer = weights});
    d_x_ = activations_.add({.name = "", .rows = context, .columns = hidden});
    parameters_.lay_out();
    signature_ = fmt::format("lstm {}x{} vocabulary {} context {}{}", layers, hidden, shape.outputs, context,
                             tied ? " tied" : "");
  }

  std::string signature() const override { return signature_; }

  std::vector<LayerPlan> plan() const override {
    std::vector<LayerPlan> lines{embedding_->plan(parameters_)};
    for (LayerPlan& line : layers_->plan(parameters_)) lines.push_back(std::move(line));
    lines.push_back(head_->plan(parameters_));
    return lines;
  }

  Tensor forward(const Pass& pass) const override {
    pass.sequences().to_time_major(pass.input, pass.at(tokens_));
    const Tensor x = embedding_->forward(pass, pass.at(tokens_));
    if (embedding_dropout_->acts(pass)) embedding_dropout_->apply(pass, x, x);
    return head_->forward(pass, layers_->forward(pass, x));
  }

  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override {
    const GradientReady tell = [&](std::size_t end) {
      if (end > 0 && ready) ready(end);
    };
    const Tensor d_x = pass.at(d_x_);
    const bool below_head = head_->trains_below(parameters_);
    head_->backward(pass, layers_->output(pass), d_output, accumulate, below_head ? d_x : Tensor{});
    tell(head_->gradients_end(parameters_));
    if (!below_head) return;
    layers_->backward(pass, embedding_->output(pass), d_x, accumulate, tell);
    if (!layers_->trains_below(parameters_)) return;
    if (embedding_dropout_->acts(pass)) embedding_dropout_->apply(pass, d_x, d_x);
    embedding_->backward(pass, pass.at(tokens_), d_x, accumulate, {});
    tell(embedding_->gradients_end(parameters_));
  }

  Tensor targets(const Pass& pass, const Tensor& y) const override {
    const Tensor targets = pass.at(targets_);
    pass.sequences().to_time_major(y, targets);
    return targets;
  }

 private:
  std::unique_ptr<Embedding> embedding_;
  std::optional<DropoutLayer> embedding_dropout_;
  std::optional<LstmStack> layers_;
  std::unique_ptr<TokenHead> head_;
  std::size_t tokens_ = 0, targets_ = 0, d_x_ = 0;
  std::string signature_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<LstmLanguageModel>(options, shape);
}

}  // namespace

extern const NetworkKind lstm_network;
const NetworkKind lstm_network{
    .name = "lstm",
    .summary = "recurrent language model: --layers of --hidden, over --unroll steps",
    .reads = Reads::tokens,
    .recurrent = true,
    .options = {{.name = "hidden", .value = Numbers{200}, .value_name = "WIDTHS", .help = "one width", .at_least = 1},
                {.name = "layers", .value = 2, .value_name = "N", .help = "recurrent layers", .at_least = 1},
                {.name = "unroll",
                 .value = 20,
                 .value_name = "TOKENS",
                 .help = "steps between updates; the state goes on beyond them",
                 .at_least = 1},
                dropout_option(),
                tied_option(false),
                weight_init_option(),
                bias_init_option()},
    .window = "unroll",
    .training_defaults =
        {{"optimizer", "sgd"}, {"learning-rate", "1"}, {"clip-norm", "5"}, {"batch", "20"}, {"evaluation-batch", "20"}},
    .make = make};

}  // namespace lockstep::model
