/// \file
/// "lstm": long short-term memory (Lstm in sequence_operations.hpp). Over series of numbers it is a RecurrentSeries.
/// Over embedded tokens it is a TokenLstm, which carries its state from window to window. One product computes the
/// input of all steps. Rows are time-major, so a step is one block of rows.
///
/// Rewrites fuse consecutive layers of equal width, with the dropout between them, into one operation. Dropout is never
/// applied between steps. On a host, with one layer, with one chunk or with documents, each layer computes all of its
/// steps before the next layer begins. Otherwise the layers run as a wavefront of chunks of steps: while a layer
/// computes a chunk, the next layer (in backward: the layer below) computes the previous chunk. Layers alternate
/// between the two side queues. Work between two layers runs in the main queue: the dropout and the input product of a
/// chunk, and in backward the gradient of that product. The steps of one layer depend on each other and leave most of a
/// GPU idle, so two layers take about the time of one. A chunk is short, so that the second layer begins soon, and long
/// enough that the work between layers takes less time than the steps.
///
/// Parameter gradients are one product or sum over all steps. They run in the main queue as soon as a layer has
/// finished its first step in backward. The chunks depend on the shape alone, so the bits do not depend on concurrency.
#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/operations/recurrent_series.hpp"

namespace lockstep::model {

namespace {

/// Steps per chunk. A chunk runs eight dependent kernels, while the work between two layers is two kernels.
constexpr std::int64_t kChunkSteps = 4;

Queue queue_of(std::size_t layer) noexcept { return layer % 2 == 0 ? Queue::side_1 : Queue::side_2; }

/// Calls visit(place, chunk) for each chunk of each of `layers` layers, in the order of the wavefront. On a diagonal
/// the later layer comes first, so that it waits only for work of the previous diagonal.
template <class Visit>
void by_diagonals(std::int64_t layers, std::int64_t chunks, const Visit& visit) {
  for (std::int64_t diagonal = 0; diagonal < layers + chunks - 1; ++diagonal) {
    for (std::int64_t place = std::min(layers - 1, diagonal); place >= 0 && diagonal - place < chunks; --place) {
      visit(static_cast<std::size_t>(place), diagonal - place);
    }
  }
}

/// A range of steps of the window.
struct Steps {
  std::int64_t first = 0, count = 0;
};

/// A layer in a pass: its tensors, and its work, which may be split into ranges of steps. Splitting does not change the
/// bits if it does not change those of the products. Tensors hold all steps unless noted.
class LayerPass {
 public:
  struct Numbers {
    std::size_t input, recurrent, bias;  ///< parameters
    std::size_t gates, cells, hidden;    ///< saved; `hidden` kAsOutput: the node's output with its margin
    std::size_t dropped;                 ///< saved, if a dropout follows
    std::size_t d_cell;                  ///< scratch
    std::size_t state_hidden, state_cell;
  };
  static constexpr std::size_t kAsOutput = static_cast<std::size_t>(-1);

  /// Sequences that restart within the window, with documents. All steps are then computed in one call.
  struct Beginnings {
    Tensor places = {};
    std::size_t states_before = 0;  ///< scratch
  };

  LayerPass(const NodePass& node, const Numbers& numbers, const Beginnings& beginnings, std::int64_t steps)
      : node_(node), pass_(node.pass), numbers_(numbers), beginnings_(beginnings), steps_(steps) {}

  Steps all() const { return {0, steps_}; }
  /// Returns the rows of these steps in a time-major tensor of all steps.
  Tensor rows_of(const Steps& steps, const Tensor& tensor) const {
    return tensor.row_range(steps.first * pass_.batch, steps.count * pass_.batch);
  }
  Tensor output() const { return rows_of({1, steps_}, hidden()); }

  /// Forward: call begin_window(), then input_product() and recur() for ranges of steps in ascending order, then
  /// end_window().
  void begin_window() const {
    pass_.backend.cast(node_.state(numbers_.state_hidden), hidden().row_range(0, pass_.batch));
    pass_.backend.cast(node_.state(numbers_.state_cell), cells().row_range(0, pass_.batch));
  }
  void input_product(const Tensor& x, const Steps& steps) const {
    pass_.backend.linear_forward(rows_of(steps, x), node_.weight(numbers_.input), node_.weight(numbers_.bias),
                                 Activation::none, rows_of(steps, gates()));
  }
  void recur(const Steps& steps, Queue queue) const {
    const Steps states{steps.first, steps.count + 1};
    pass_.sequences().lstm_forward(shape(steps, queue), {.gates = rows_of(steps, gates()),
                                                         .recurrent = node_.weight(numbers_.recurrent),
                                                         .cells = rows_of(states, cells()),
                                                         .hidden = rows_of(states, hidden()),
                                                         .places = beginnings_.places});
  }
  void end_window() const {
    const Steps last{steps_, 1};
    pass_.backend.cast(rows_of(last, hidden()), node_.state(numbers_.state_hidden));
    pass_.backend.cast(rows_of(last, cells()), node_.state(numbers_.state_cell));
  }

  /// Backward: call recur_backward() for ranges of steps in descending order, with input_gradient() for each range if
  /// another layer needs it before all are done. Then call parameter_gradients(): one product or sum over all steps for
  /// each gradient. It can also compute d_x, which may share the memory of d_y. d_y is overwritten.
  void recur_backward(const Tensor& d_y, const Steps& steps, Queue queue) const {
    const Steps states{steps.first, steps.count + 1}, after{steps.first + steps.count, 1};
    pass_.sequences().lstm_backward(shape(steps, queue),
                                    {.gates = rows_of(steps, gates()),
                                     .recurrent = node_.weight(numbers_.recurrent),
                                     .cells = rows_of(states, cells()),
                                     .d_hidden = rows_of(steps, d_y),
                                     .d_cell = node_.scratch(numbers_.d_cell),
                                     .gates_after = after.first < steps_ ? rows_of(after, gates()) : Tensor{},
                                     .places = beginnings_.places});
  }
  void input_gradient(const Tensor& x, const Steps& steps, const Tensor& d_x) const {
    pass_.backend.linear_backward({.x = rows_of(steps, x),
                                   .w = node_.weight(numbers_.input),
                                   .d_y = rows_of(steps, gates()),
                                   .d_x = rows_of(steps, d_x)},
                                  Activation::none, Accumulate::no);
  }
  void parameter_gradients(const Tensor& x, const Tensor& d_x) const {
    Tensor before = rows_of(all(), hidden());  // state before each step
    if (beginnings_.places.present()) {
      before = node_.scratch(beginnings_.states_before);
      pass_.sequences().carry_rows(rows_of(all(), hidden()), beginnings_.places, Accumulate::no, before);
    }
    pass_.backend.linear_backward(
        {.x = before, .w = node_.weight(numbers_.recurrent), .d_y = gates(), .d_w = node_.gradient(numbers_.recurrent)},
        Activation::none, node_.accumulate());
    pass_.backend.linear_backward({.x = x,
                                   .w = node_.weight(numbers_.input),
                                   .d_y = gates(),
                                   .d_w = node_.gradient(numbers_.input),
                                   .d_bias = node_.gradient(numbers_.bias),
                                   .d_x = d_x},
                                  Activation::none, node_.accumulate());
    node_.is_final(numbers_.input);
  }

 private:
  Lstm shape(const Steps& steps, Queue queue) const {
    return {.steps = steps.count, .sequences = pass_.batch, .hidden = hidden().columns, .queue = queue};
  }
  Tensor gates() const { return node_.saved(numbers_.gates); }
  Tensor cells() const { return node_.saved(numbers_.cells); }
  Tensor hidden() const {
    return numbers_.hidden == kAsOutput ? node_.out_with_margin() : node_.saved(numbers_.hidden);
  }

  const NodePass& node_;
  const Pass& pass_;
  const Numbers& numbers_;
  Beginnings beginnings_;
  std::int64_t steps_;
};

class TokenLstm final : public Operation {
 public:
  explicit TokenLstm(const Call& call) : width_(call.get<std::int64_t>("units")) {
    for (const Call& part : call.parts.empty() ? std::vector{call} : call.parts) {
      if (part.kind == "dropout") {
        layers_.back().dropout.rate = static_cast<float>(part.get<double>("rate"));
      } else {
        layers_.push_back({.call = part});
      }
    }
  }

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    if (in.count() != 2) {
      throw std::invalid_argument(fmt::format("reads {}, and an lstm reads steps x numbers", to_string(in)));
    }
    steps_ = in.places();
    inputs_ = in.last();
    has_documents_ = inputs.size() > 1;
    if (has_documents_ && inputs[1].shape.elements() != steps_) {
      throw std::invalid_argument("reads places in documents, one for each of its steps");
    }
    for (Layer& layer : layers_) declare_layer(declarations, layer, &layer == &layers_.front() ? inputs_ : width_);
    if (has_documents_) states_before_ = declarations.scratch({.name = "", .rows = steps_, .columns = width_});
    declarations.margin(1);
    return {.shape = in.with_last(width_), .order = RowOrder::time_major};
  }

  bool is_causal() const override { return true; }
  OperationNeeds needs() const override {
    return {.reads_inputs = has_documents_ ? 3u : 1u,
            .reads_output = true,
            .overwrites_gradient = true,
            .gradient_in_place = inputs_ == width_ ? 1u : 0u};
  }

  LayerPlan plan(const NodeView& node) const override { return lines(node).back(); }
  std::vector<LayerPlan> lines(const NodeView& node) const override {
    std::vector<LayerPlan> lines;
    bool goes_on = node.goes_on;
    for (const Layer& layer : layers_) {
      const std::int64_t inputs = lines.empty() ? inputs_ : width_;
      const double rows = 2.0 * static_cast<double>(steps_) * 4 * static_cast<double>(width_);
      const double to_gates = rows * static_cast<double>(inputs), through_time = rows * static_cast<double>(width_);
      const std::size_t first = layer.numbers.input;
      const auto is_trained = [&](std::size_t k) { return !node.table[node.parameters[k]].frozen; };
      const bool trains = is_trained(first) || is_trained(first + 1) || is_trained(first + 2);
      lines.push_back({.name = layer.call.name,
                       .description = fmt::format("{} -> {}, {} steps", inputs, width_, steps_),
                       .parameters = (inputs + width_ + 1) * 4 * width_,
                       .activation_elements = (6 * steps_ + 2) * width_,
                       .forward_flops = to_gates + through_time,
                       .backward_flops = (is_trained(first) ? to_gates : 0) + (goes_on ? to_gates : 0) +
                                         (goes_on || trains ? through_time : 0) +
                                         (is_trained(first + 1) ? through_time : 0),
                       .products = {{.rows = steps_, .inputs = inputs, .outputs = 4 * width_},
                                    {.rows = steps_, .inputs = width_, .outputs = 4 * width_}},
                       .declares = {node.parameters[first], node.parameters[first + 1], node.parameters[first + 2]}});
      if (layers_.size() > 1 && chunks() > 1) {
        lines.back().side_products = {{.rows = 1, .inputs = width_, .outputs = 4 * width_}};
      }
      goes_on = goes_on || trains;
    }
    return lines;
  }

  /// Starts with the carried state and replaces it by the state after the last step.
  void forward(const NodePass& node) const override {
    if (is_wavefront(node)) return forward_as_wavefront(node);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const LayerPass layer = pass_of(i, node);
      layer.begin_window();
      layer.input_product(input_of(i, node), layer.all());
      layer.recur(layer.all(), Queue::main);
      layer.end_window();
      drop_output(i, node, layer.all());
    }
  }

  void backward(const NodePass& node) const override {
    const std::size_t last = layers_.size() - 1;
    std::size_t lowest = 0;  // lowest layer that needs backward
    while (lowest < last && !node.d_in().present() && !trains(node, layers_[lowest])) ++lowest;
    if (is_wavefront(node) && lowest < last) return backward_as_wavefront(node, lowest);
    const Tensor gradient = node.d_out();
    for (std::size_t i = last;; --i) {
      const LayerPass layer = pass_of(i, node);
      layer.recur_backward(gradient, layer.all(), Queue::main);
      layer.parameter_gradients(input_of(i, node), i > lowest ? gradient : i == 0 ? node.d_in() : Tensor{});
      if (i == lowest) return;
      drop_gradient(i - 1, node, layer.all());
    }
  }

  void results(const std::string& /*name*/, const NodePass& node, const TakeResult& take) const override {
    for (std::size_t i = 0; i < layers_.size(); ++i) take(layers_[i].call.name, pass_of(i, node).output());
  }

 private:
  struct Layer {
    Call call;
    Dropout dropout = {.order = RowOrder::time_major};  ///< after the layer
    LayerPass::Numbers numbers = {};
  };

  void declare_layer(Declarations& declarations, Layer& layer, std::int64_t inputs) const {
    const Initializer weights =
        layer.call.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::uniform, .value = 0.1});
    const auto matrix = [&](std::string name, std::int64_t rows) {
      return declarations.parameter(layer.call.name, {.name = std::move(name),
                                                      .shape = {rows, 4 * width_},
                                                      .initializer = weights,
                                                      .fan_in = rows,
                                                      .fan_out = 4 * width_});
    };
    layer.numbers.input = matrix("input", inputs);
    layer.numbers.recurrent = matrix("recurrent", width_);
    layer.numbers.bias = declarations.parameter(
        layer.call.name, {.name = "bias",
                          .shape = {4 * width_},
                          .initializer = layer.call.initializer("bias-init").value_or(Initializer{}),
                          .fan_in = inputs,
                          .fan_out = 4 * width_,
                          .decay = Decay::no});
    const bool is_last = &layer == &layers_.back();
    layer.numbers.gates = declarations.saved({.name = "", .rows = steps_, .columns = 4 * width_});
    layer.numbers.cells = declarations.saved({.name = "", .rows = steps_ + 1, .columns = width_});
    layer.numbers.hidden =
        is_last ? LayerPass::kAsOutput : declarations.saved({.name = "", .rows = steps_ + 1, .columns = width_});
    if (layer.dropout.rate > 0) {
      layer.dropout.stream = declarations.dropout_stream();
      layer.numbers.dropped = declarations.saved({.name = "", .rows = steps_, .columns = width_});
    }
    layer.numbers.d_cell = declarations.scratch({.name = "", .columns = width_});
    layer.numbers.state_hidden = declarations.state({.name = layer.call.name + "/hidden", .columns = width_});
    layer.numbers.state_cell = declarations.state({.name = layer.call.name + "/cell", .columns = width_});
  }

  LayerPass pass_of(std::size_t layer, const NodePass& node) const {
    LayerPass::Beginnings beginnings;
    if (has_documents_) beginnings = {.places = places_of(node), .states_before = states_before_};
    return LayerPass(node, layers_[layer].numbers, beginnings, steps_);
  }
  static bool trains(const NodePass& node, const Layer& layer) {
    return !node.is_frozen(layer.numbers.input) || !node.is_frozen(layer.numbers.recurrent) ||
           !node.is_frozen(layer.numbers.bias);
  }

  // ---- dropout ----

  bool drops(std::size_t layer, const NodePass& node) const {
    return layers_[layer].dropout.rate > 0 && node.pass.keys.present();
  }
  Tensor input_of(std::size_t layer, const NodePass& node) const {
    if (layer == 0) return node.in();
    return drops(layer - 1, node) ? node.saved(layers_[layer - 1].numbers.dropped) : pass_of(layer - 1, node).output();
  }
  void drop(std::size_t layer, const NodePass& node, const Steps& steps, const Tensor& from, const Tensor& to) const {
    if (!drops(layer, node)) return;
    Dropout rule = layers_[layer].dropout;
    rule.first_position = steps.first;
    const LayerPass pass = pass_of(layer, node);
    node.pass.sequences().dropout(pass.rows_of(steps, from), node.pass.keys, rule, pass.rows_of(steps, to));
  }
  void drop_output(std::size_t layer, const NodePass& node, const Steps& steps) const {
    if (layer + 1 < layers_.size()) drop(layer, node, steps, pass_of(layer, node).output(), input_of(layer + 1, node));
  }
  void drop_gradient(std::size_t layer, const NodePass& node, const Steps& steps) const {
    drop(layer, node, steps, node.d_out(), node.d_out());
  }

  // ---- wavefront ----

  std::int64_t chunks() const noexcept { return (steps_ + kChunkSteps - 1) / kChunkSteps; }
  Steps chunk(std::int64_t index) const noexcept {
    const std::int64_t first = index * kChunkSteps;
    return {first, std::min(kChunkSteps, steps_ - first)};
  }
  bool is_wavefront(const NodePass& node) const noexcept {
    return !node.pass.backend.is_host() && layers_.size() > 1 && chunks() > 1 && !has_documents_;
  }

  void forward_as_wavefront(const NodePass& node) const {
    Backend& backend = node.pass.backend;
    for (std::size_t i = 0; i < layers_.size(); ++i) pass_of(i, node).begin_window();
    pass_of(0, node).input_product(node.in(), {0, steps_});
    backend.order(Queue::main, queue_of(0));
    by_diagonals(static_cast<std::int64_t>(layers_.size()), chunks(), [&](std::size_t layer, std::int64_t index) {
      const Steps steps = chunk(index);
      const bool has_next = layer + 1 < layers_.size();
      pass_of(layer, node).recur(steps, queue_of(layer));
      if (has_next || index + 1 == chunks()) backend.order(queue_of(layer), Queue::main);
      if (!has_next) return;
      drop_output(layer, node, steps);
      pass_of(layer + 1, node).input_product(input_of(layer + 1, node), steps);
      backend.order(Queue::main, queue_of(layer + 1));
    });
    for (std::size_t i = 0; i < layers_.size(); ++i) pass_of(i, node).end_window();
  }

  void backward_as_wavefront(const NodePass& node, std::size_t lowest) const {
    Backend& backend = node.pass.backend;
    const Tensor gradient = node.d_out();
    const std::size_t last = layers_.size() - 1;
    backend.order(Queue::main, queue_of(last));
    by_diagonals(static_cast<std::int64_t>(layers_.size() - lowest), chunks(),
                 [&](std::size_t place, std::int64_t index) {
                   const std::size_t i = last - place;
                   const LayerPass layer = pass_of(i, node);
                   const Steps steps = chunk(chunks() - 1 - index);
                   const Tensor input = input_of(i, node);
                   const bool has_next = i > lowest, is_through = index + 1 == chunks();
                   layer.recur_backward(gradient, steps, queue_of(i));
                   if (has_next || is_through) backend.order(queue_of(i), Queue::main);
                   if (has_next) {
                     layer.input_gradient(input, steps, gradient);
                     drop_gradient(i - 1, node, steps);
                     backend.order(Queue::main, queue_of(i - 1));
                   }
                   if (is_through) layer.parameter_gradients(input, i == 0 ? node.d_in() : Tensor{});
                 });
  }

  static Tensor places_of(const NodePass& node) {
    const Tensor places = node.in(1);
    return places.reshaped(places.count(), 1);
  }

  std::int64_t width_, steps_ = 0, inputs_ = 0;
  bool has_documents_ = false;
  std::size_t states_before_ = 0;
  std::vector<Layer> layers_;
};

struct LstmCell {
  static constexpr const char* kName = "an lstm";
  static constexpr std::int64_t kGates = 4;
  static constexpr bool kBiasOfState = false;
  struct Saved {
    std::size_t cells = 0, d_cell = 0;
  };

  static Saved declare(Declarations& declarations, std::int64_t steps, std::int64_t units) {
    return {declarations.saved({.name = "", .rows = steps + 1, .columns = units}),
            declarations.scratch({.name = "", .columns = units})};
  }
  static void forward(const NodePass& node, const Saved& saved, const RecurrentSteps& steps) {
    const Tensor cells = node.saved(saved.cells);
    node.pass.backend.fill_zero(cells.row_range(0, node.pass.batch));
    node.pass.sequences().lstm_forward(shape(node, steps), {.gates = steps.gates,
                                                            .recurrent = steps.recurrent,
                                                            .cells = cells,
                                                            .hidden = steps.hidden,
                                                            .places = steps.places});
  }
  static void backward(const NodePass& node, const Saved& saved, const RecurrentSteps& steps) {
    node.pass.sequences().lstm_backward(shape(node, steps), {.gates = steps.gates,
                                                             .recurrent = steps.recurrent,
                                                             .cells = node.saved(saved.cells),
                                                             .d_hidden = steps.d_hidden,
                                                             .d_cell = node.scratch(saved.d_cell),
                                                             .places = steps.places});
  }
  static Tensor d_products(const NodePass& /*node*/, const Saved& /*saved*/, const Tensor& gates) { return gates; }

 private:
  static Lstm shape(const NodePass& node, const RecurrentSteps& steps) {
    return {.steps = steps.steps, .sequences = node.pass.batch, .hidden = steps.units};
  }
};

/// Selects TokenLstm for tokens, else RecurrentSeries.
class LstmOperation final : public Operation {
 public:
  explicit LstmOperation(const Call& call) : call_(call) {}

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    if (inputs[0].order == RowOrder::time_major) {
      for (const Call& part : call_.parts.empty() ? std::vector{call_} : call_.parts) require_for_tokens(part);
      of_input_ = std::make_unique<TokenLstm>(call_);
    } else {
      of_input_ = std::make_unique<RecurrentSeries<LstmCell>>(call_);
    }
    return of_input_->declare(declarations, inputs);
  }
  bool is_causal() const override { return of_input_->is_causal(); }
  OperationNeeds needs() const override { return of_input_->needs(); }
  LayerPlan plan(const NodeView& node) const override { return of_input_->plan(node); }
  std::vector<LayerPlan> lines(const NodeView& node) const override { return of_input_->lines(node); }
  void forward(const NodePass& node) const override { of_input_->forward(node); }
  void backward(const NodePass& node) const override { of_input_->backward(node); }
  void results(const std::string& name, const NodePass& node, const TakeResult& take) const override {
    of_input_->results(name, node, take);
  }

 private:
  Call call_;
  std::unique_ptr<Operation> of_input_;
};

}  // namespace

extern const OperationKind lstm_operation;
const OperationKind lstm_operation{
    .name = "lstm",
    .summary =
        "long short-term memory over the steps of a series, or over tokens, where the state goes on from batch to "
        "batch",
    .arguments = recurrent_arguments(),
    .most_inputs = 2,
    .token_inputs = 2,
    .rows = ReadsRows::steps,
    .make = [](const Call& call) -> std::unique_ptr<Operation> { return std::make_unique<LstmOperation>(call); }};

}  // namespace lockstep::model
