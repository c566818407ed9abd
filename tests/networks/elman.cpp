/// \file
/// "elman", a recurrent language model that the program itself does not have (Elman 1990, with one matrix for input and
/// state): h_t = tanh(U (x_t + h_{t-1}) + b). It shows that a network is one file: the commands learn everything else
/// from its NetworkKind.
#include <fmt/format.h>

#include "model/layers/embedding.hpp"
#include "model/layers/token_head.hpp"
#include "model/network.hpp"

namespace lockstep::model {

namespace {

class Elman final : public Network {
 public:
  Elman(const NetworkOptions& options, const SampleShape& shape)
      : steps_(shape.features),
        width_(options.get<std::int64_t>("width")),
        nonlinearity_(parse_activation(options.get<std::string>("nonlinearity"))) {
    shape_ = shape;
    const Initializer weights =
        options.initializer("weight-init").value_or(Initializer{.scheme = Initializer::Scheme::uniform, .value = 0.2});
    tokens_ = activations_.add({.name = "", .rows = steps_, .columns = 1, .holds = Holds::tokens});
    targets_ = activations_.add({.name = "", .rows = steps_, .columns = 1, .holds = Holds::tokens});
    embedding_ = std::make_unique<Embedding>(
        parameters_, activations_, "embedding",
        EmbeddingOptions{.context = steps_, .vocabulary = shape.outputs, .width = width_, .initializer = weights});
    matrix_ = parameters_.add({.name = "elman/matrix",
                               .shape = {width_, width_},
                               .initializer = weights,
                               .fan_in = width_,
                               .fan_out = width_});
    bias_ = parameters_.add({.name = "elman/bias",
                             .shape = {width_},
                             .initializer = {},
                             .fan_in = width_,
                             .fan_out = width_,
                             .decay = Decay::no});
    inputs_ = activations_.add({.name = "", .rows = steps_, .columns = width_});
    hidden_ = activations_.add({.name = "elman", .rows = steps_, .columns = width_});
    d_hidden_ = activations_.add({.name = "", .rows = steps_, .columns = width_});
    d_inputs_ = activations_.add({.name = "", .rows = steps_, .columns = width_});
    state_ = recurrent_state_.add({.name = "elman/hidden", .columns = width_});
    head_ = std::make_unique<TokenHead>(parameters_, activations_, "head",
                                        TokenHeadOptions{.context = steps_,
                                                         .vocabulary = shape.outputs,
                                                         .width = width_,
                                                         .table = std::nullopt,
                                                         .initializer = weights});
    parameters_.lay_out();
    signature_ = fmt::format("elman {} vocabulary {} context {}", width_, shape.outputs, steps_);
  }

  std::string signature() const override { return signature_; }

  std::vector<LayerPlan> plan() const override {
    const double product = 2.0 * static_cast<double>(steps_ * width_ * width_);
    return {embedding_->plan(parameters_),
            {.name = "elman",
             .description = fmt::format("{} -> {}, {} steps", width_, width_, steps_),
             .parameters = width_ * width_ + width_,
             .activation_elements = 2 * steps_ * width_,
             .forward_flops = product,
             .backward_flops = 2 * product},
            head_->plan(parameters_)};
  }

  Tensor forward(const Pass& pass) const override {
    pass.sequences().to_time_major(pass.input, pass.at(tokens_));
    const Tensor x = embedding_->forward(pass, pass.at(tokens_));
    const Tensor state = pass.recurrent_state(state_);
    for (std::int64_t t = 0; t < steps_; ++t) {
      const Tensor input = step(pass, inputs_, t);
      pass.backend.cast(t == 0 ? state : step(pass, hidden_, t - 1), input);
      pass.backend.add(x.row_range(t * pass.batch, pass.batch), input);
      pass.backend.linear_forward(input, pass.weight(matrix_), pass.weight(bias_), nonlinearity_,
                                  step(pass, hidden_, t));
    }
    pass.backend.cast(step(pass, hidden_, steps_ - 1), state);
    return head_->forward(pass, pass.at(hidden_));
  }

  void backward(const Pass& pass, const Tensor& d_output, Accumulate accumulate,
                const GradientReady& ready) const override {
    const auto tell = [&](std::size_t end) {
      if (ready) ready(end);
    };
    head_->backward(pass, pass.at(hidden_), d_output, accumulate, pass.at(d_hidden_));
    tell(head_->gradients_end(parameters_));
    for (std::int64_t t = steps_; t-- > 0;) {
      pass.backend.linear_backward({.x = step(pass, inputs_, t),
                                    .w = pass.weight(matrix_),
                                    .y = step(pass, hidden_, t),
                                    .d_y = step(pass, d_hidden_, t),
                                    .d_w = pass.gradient(matrix_),
                                    .d_bias = pass.gradient(bias_),
                                    .d_x = step(pass, d_inputs_, t)},
                                   nonlinearity_, t + 1 == steps_ ? accumulate : Accumulate::yes);
      if (t > 0) pass.backend.add(step(pass, d_inputs_, t), step(pass, d_hidden_, t - 1));
    }
    tell(parameters_.gradients_end(matrix_));
    embedding_->backward(pass, pass.at(tokens_), pass.at(d_inputs_), accumulate, {});
    tell(embedding_->gradients_end(parameters_));
  }

  Tensor targets(const Pass& pass, const Tensor& y) const override {
    const Tensor targets = pass.at(targets_);
    pass.sequences().to_time_major(y, targets);
    return targets;
  }

 private:
  /// Rows of step `t`: one per sample.
  static Tensor step(const Pass& pass, std::size_t activation, std::int64_t t) {
    return pass.at(activation).row_range(t * pass.batch, pass.batch);
  }

  std::int64_t steps_, width_;
  Activation nonlinearity_;
  std::unique_ptr<Embedding> embedding_;
  std::unique_ptr<TokenHead> head_;
  std::size_t matrix_ = 0, bias_ = 0;  ///< parameters
  std::size_t tokens_ = 0, targets_ = 0, inputs_ = 0, hidden_ = 0, d_hidden_ = 0, d_inputs_ = 0, state_ = 0;
  std::string signature_;
};

std::unique_ptr<Network> make(const NetworkOptions& options, const SampleShape& shape) {
  return std::make_unique<Elman>(options, shape);
}

}  // namespace

extern const NetworkKind elman_network;
const NetworkKind elman_network{
    .name = "elman",
    .summary = "simple recurrent language model: one layer of --width",
    .reads = Reads::tokens,
    .recurrent = true,
    .options = {{.name = "width", .value = 24, .value_name = "N", .help = "of the hidden layer", .at_least = 1},
                {.name = "memory-span",
                 .value = 8,
                 .value_name = "TOKENS",
                 .help = "steps between updates; the state goes on beyond them",
                 .at_least = 1},
                {.name = "nonlinearity",
                 .value = "tanh",
                 .value_name = "NAME",
                 .help = "of the hidden layer",
                 .words = {"tanh", "sigmoid"}},
                weight_init_option()},
    .window = "memory-span",
    .training_defaults = {{"optimizer", "sgd"},
                          {"learning-rate", "0.5"},
                          {"clip-norm", "2"},
                          {"batch", "12"},
                          {"evaluation-batch", "12"}},
    .make = make};

}  // namespace lockstep::model
