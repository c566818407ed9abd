/// \file
/// A recurrent operation on series of numbers or on embedded tokens.
///
/// A series of numbers is one sample and begins with zero state. The operation runs in one direction, or in both with
/// their results side by side. Values are sample-major. Each direction copies them to a time-major tensor in its own
/// order of steps: a step is then one block of rows, and one product computes the input of all steps. With lengths
/// (series_lengths.hpp) the steps of padding are computed, too, but have no effect: in backward direction a series
/// begins at its last step, and results of padding are zero.
///
/// Embedded tokens are time-major. The operation runs forward and carries its state from batch to batch. This is for
/// cells whose whole state is their result.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "model/graph/operation.hpp"
#include "model/operations/series_lengths.hpp"

namespace lockstep::model {

/// Arguments of all recurrent operations.
inline std::vector<NetworkOption> recurrent_arguments() {
  return {{.name = "units", .value = 0, .value_name = "N", .help = "outputs", .at_least = 1},
          {.name = "direction",
           .value = "forward",
           .value_name = "WORD",
           .help = "forward, backward from the last step, or both side by side",
           .words = {"forward", "backward", "both"}},
          {.name = "steps",
           .value = "all",
           .value_name = "WORD",
           .help = "the results of all steps, or that of the last step alone",
           .words = {"all", "last"}},
          {.name = "init", .value = Initializers{}, .value_name = "", .help = "weights", .automatic = true},
          {.name = "bias-init", .value = Initializers{}, .value_name = "", .help = "biases", .automatic = true}};
}

/// Throws std::invalid_argument for a call that cannot read tokens.
inline void require_for_tokens(const Call& call) {
  if (call.kind == "dropout") return;
  if (call.get<std::string>("direction") != "forward") {
    throw std::invalid_argument(
        fmt::format("has direction {}, and a language model predicts later tokens: only `forward` reads tokens",
                    call.get<std::string>("direction")));
  }
  if (call.get<std::string>("steps") != "all") {
    throw std::invalid_argument("has the last of its steps alone, and a language model predicts a token behind each");
  }
}

/// Tensors of all steps of one direction, time-major.
struct RecurrentSteps {
  std::int64_t steps, units;
  Tensor gates, recurrent, bias, hidden, d_hidden;
  Tensor places;  ///< one per row; 0: the sequence restarts there; may be absent
};

/// `Cell` has what differs between kinds:
/// - kName; kGates: number of gates; kBiasOfState: h(t-1) R has a bias of its own;
/// - Saved declare(declarations, steps, units): declares what backward reads besides gates and hidden;
/// - forward(node, saved, steps), backward(node, saved, steps): start with the first rows of hidden, zero by default;
/// - d_products(node, saved, gates): returns the gradients of h(t-1) R, after backward.
template <class Cell>
class RecurrentSeries final : public Operation {
 public:
  explicit RecurrentSeries(const Call& call)
      : call_(call), units_(call.get<std::int64_t>("units")), last_only_(call.get<std::string>("steps") == "last") {
    const auto direction = call.get<std::string>("direction");
    if (direction != "backward") directions_.push_back({.is_backward = false});
    if (direction != "forward") directions_.push_back({.is_backward = true});
  }

  ValueType declare(Declarations& declarations, std::span<const ValueType> inputs) override {
    const Shape& in = inputs[0].shape;
    if (in.count() != 2) {
      throw std::invalid_argument(fmt::format("reads {}, and {} reads steps x numbers{}", to_string(in), Cell::kName,
                                              in.count() > 2 ? ": reshape or transpose makes a series of it" : ""));
    }
    steps_ = in.places();
    inputs_ = in.last();
    carries_ = inputs[0].order == RowOrder::time_major;
    if (carries_) require_for_tokens(call_);
    has_lengths_ = !carries_ && reads_lengths(inputs, steps_);
    has_places_ = carries_ && inputs.size() > 1;
    if (has_places_ && inputs[1].shape.elements() != steps_) {
      throw std::invalid_argument("reads places in documents, one for each of its steps");
    }
    if (has_places_ || has_lengths_) {
      states_before_ = declarations.scratch({.name = "", .rows = steps_, .columns = units_});
    }
    if (has_lengths_ && last_only_) {
      rows_ = declarations.saved({.name = "", .rows = steps_, .columns = units_});
      last_ = declarations.saved({.name = "", .columns = units_});
    } else if (has_lengths_) {
      inside_ = declarations.saved({.name = "", .rows = steps_, .columns = 1, .holds = Holds::tokens});
    }
    for (Direction& direction : directions_) declare_direction(declarations, direction);
    const auto columns = static_cast<std::int64_t>(directions_.size()) * units_;
    if (carries_) {
      declarations.margin(1);
      return {.shape = in.with_last(columns), .order = RowOrder::time_major};
    }
    if (directions_.size() > 1) more_ = declarations.scratch({.name = "", .rows = steps_, .columns = inputs_});
    return {.shape = last_only_ ? Shape{columns} : in.with_last(columns)};
  }

  bool is_causal() const override { return directions_.size() == 1 && !directions_[0].is_backward && !last_only_; }
  OperationNeeds needs() const override {
    if (!carries_) return {.reads_inputs = has_lengths_ ? 2u : 0u, .overwrites_gradient = has_lengths_ && !last_only_};
    return {.reads_inputs = has_places_ ? 3u : 1u, .reads_output = true, .overwrites_gradient = true};
  }

  LayerPlan plan(const NodeView& node) const override {
    const auto directions = static_cast<std::int64_t>(directions_.size());
    const std::int64_t sums = Cell::kGates * units_;
    const double rows = 2.0 * static_cast<double>(directions * steps_ * sums);
    const double to_gates = rows * static_cast<double>(inputs_), through_time = rows * static_cast<double>(units_);
    const auto is_trained = [&](std::size_t k) { return !node.table[node.parameters[k]].frozen; };
    LayerPlan line{.name = node.name,
                   .description = fmt::format("{} -> {}, {} steps{}{}", inputs_, directions * units_, steps_,
                                              directions > 1               ? ", both directions"
                                              : directions_[0].is_backward ? ", backward"
                                                                           : "",
                                              last_only_ ? ", the last one's result" : ""),
                   .parameters = directions * (inputs_ + units_ + (Cell::kBiasOfState ? 2 : 1)) * sums,
                   .activation_elements = directions * (2 * Cell::kGates + 1) * steps_ * units_,
                   .forward_flops = to_gates + through_time,
                   .backward_flops = (is_trained(0) ? to_gates : 0) + (node.goes_on ? to_gates : 0) + through_time +
                                     (is_trained(1) ? through_time : 0)};
    for (std::int64_t i = 0; i < directions; ++i) {
      line.products.push_back({.rows = steps_, .inputs = inputs_, .outputs = sums});
      line.products.push_back({.rows = steps_, .inputs = units_, .outputs = sums});
    }
    line.declares.assign(node.parameters.begin(), node.parameters.end());
    return line;
  }

  void forward(const NodePass& node) const override {
    for (std::size_t i = 0; i < directions_.size(); ++i) {
      const Direction& direction = directions_[i];
      const Tensor hidden = hidden_of(direction, node);
      const Tensor x = carries_ ? node.in() : node.saved(direction.ordered);
      if (!carries_) copy(node, Way::to_time_major, i, steps_, node.in(), x, inputs_, inputs_);
      const Tensor before = rows_of(node, hidden, 0, 1);
      carries_ ? node.pass.backend.cast(node.state(0), before) : node.pass.backend.fill_zero(before);
      node.pass.backend.linear_forward(x, node.weight(direction.first_parameter),
                                       node.weight(direction.first_parameter + 2), Activation::none,
                                       node.saved(direction.gates));
      const RecurrentSteps steps = steps_of(direction, node, hidden);
      if (has_lengths_ && steps.places.present()) {
        node.pass.sequences().padded_rows(node.in(1), PaddedRows::behind_the_last, steps.places);
      }
      Cell::forward(node, direction.saved, steps);
      if (carries_) {
        node.pass.backend.cast(rows_of(node, hidden, steps_, 1), node.state(0));
      } else if (last_only_) {
        const Tensor last = has_lengths_ ? last_of_lengths(node, i, hidden) : rows_of(node, hidden, steps_, 1);
        copy(node, Way::to_samples, i, 1, node.out(), last, all_columns(), units_);
      } else {
        copy(node, Way::to_samples, i, steps_, node.out(), rows_of(node, hidden, 1, steps_), all_columns(), units_);
      }
    }
    if (!has_lengths_ || last_only_) return;
    node.pass.sequences().padded_rows(node.in(1), PaddedRows::inside, node.saved(inside_));
    node.pass.sequences().carry_rows(node.out(), node.saved(inside_), Accumulate::no, node.out());
  }

  void backward(const NodePass& node) const override {
    if (has_lengths_ && !last_only_) {
      node.pass.sequences().carry_rows(node.d_out(), node.saved(inside_), Accumulate::no, node.d_out());
    }
    for (std::size_t i = 0; i < directions_.size(); ++i) {
      const Direction& direction = directions_[i];
      const Tensor hidden = hidden_of(direction, node);
      const Tensor d_hidden = carries_ ? node.d_out() : node.scratch(direction.d_hidden);
      if (last_only_ && has_lengths_) {
        gradient_of_last(node, i, d_hidden);
      } else if (last_only_) {
        node.pass.backend.fill_zero(d_hidden);
        copy(node, Way::to_time_major, i, 1, node.d_out(), rows_of(node, d_hidden, steps_ - 1, 1), all_columns(),
             units_);
      } else if (!carries_) {
        copy(node, Way::to_time_major, i, steps_, node.d_out(), d_hidden, all_columns(), units_);
      }
      RecurrentSteps steps = steps_of(direction, node, hidden);
      steps.d_hidden = d_hidden;
      Cell::backward(node, direction.saved, steps);
      const std::size_t first = direction.first_parameter;
      Tensor before = rows_of(node, hidden, 0, steps_);
      if (steps.places.present()) {
        before = node.scratch(states_before_);
        node.pass.sequences().carry_rows(rows_of(node, hidden, 0, steps_), steps.places, Accumulate::no, before);
      }
      node.pass.backend.linear_backward({.x = before,
                                         .w = node.weight(first + 1),
                                         .d_y = Cell::d_products(node, direction.saved, steps.gates),
                                         .d_w = node.gradient(first + 1),
                                         .d_bias = Cell::kBiasOfState ? node.gradient(first + 3) : Tensor{}},
                                        Activation::none, node.accumulate());
      const Tensor d_in = node.d_in();
      const Tensor d_x = !d_in.present() ? Tensor{} : carries_ ? d_in : node.scratch(direction.d_ordered);
      node.pass.backend.linear_backward({.x = carries_ ? node.in() : node.saved(direction.ordered),
                                         .w = node.weight(first),
                                         .d_y = steps.gates,
                                         .d_w = node.gradient(first),
                                         .d_bias = node.gradient(first + 2),
                                         .d_x = d_x},
                                        Activation::none, node.accumulate());
      if (!d_in.present() || carries_) continue;
      const Tensor to = i == 0 ? d_in : node.scratch(more_);
      copy(node, Way::to_samples, i, steps_, to, d_x, inputs_, inputs_);
      if (i > 0) node.pass.backend.add(to, d_in);
    }
  }

 private:
  struct Direction {
    bool is_backward = false;
    std::size_t first_parameter = 0;  ///< input, recurrent, bias, bias of the state
    std::size_t ordered = 0, gates = 0, hidden = 0;
    std::size_t places = 0;  ///< for backward direction with lengths
    typename Cell::Saved saved = {};
    std::size_t d_hidden = 0, d_ordered = 0;
  };

  std::int64_t all_columns() const noexcept { return static_cast<std::int64_t>(directions_.size()) * units_; }

  void declare_direction(Declarations& declarations, Direction& direction) const {
    const std::string name = directions_.size() == 1 ? call_.name
                             : direction.is_backward ? call_.name + "/backward"
                                                     : call_.name + "/forward";
    const Initializer weights =
        call_.initializer("init").value_or(Initializer{.scheme = Initializer::Scheme::uniform, .value = 0.1});
    const std::int64_t sums = Cell::kGates * units_;
    const auto matrix = [&](std::string part, std::int64_t rows) {
      return declarations.parameter(
          name,
          {.name = std::move(part), .shape = {rows, sums}, .initializer = weights, .fan_in = rows, .fan_out = sums});
    };
    const auto bias = [&](std::string part, std::int64_t rows) {
      declarations.parameter(name, {.name = std::move(part),
                                    .shape = {sums},
                                    .initializer = call_.initializer("bias-init").value_or(Initializer{}),
                                    .fan_in = rows,
                                    .fan_out = sums,
                                    .decay = Decay::no});
    };
    direction.first_parameter = matrix("input", inputs_);
    matrix("recurrent", units_);
    bias("bias", inputs_);
    if (Cell::kBiasOfState) bias("recurrent-bias", units_);
    direction.gates = declarations.saved({.name = "", .rows = steps_, .columns = sums});
    direction.saved = Cell::declare(declarations, steps_, units_);
    if (carries_) {
      declarations.state({.name = name + "/hidden", .columns = units_});
      return;
    }
    if (has_lengths_ && direction.is_backward) {
      direction.places = declarations.saved({.name = "", .rows = steps_, .columns = 1, .holds = Holds::tokens});
    }
    direction.hidden = declarations.saved({.name = "", .rows = steps_ + 1, .columns = units_});
    direction.ordered = declarations.saved({.name = "", .rows = steps_, .columns = inputs_});
    direction.d_hidden = declarations.scratch({.name = "", .rows = steps_, .columns = units_});
    direction.d_ordered = declarations.scratch({.name = "", .rows = steps_, .columns = inputs_});
  }

  /// Returns the rows of `count` steps of a time-major tensor.
  static Tensor rows_of(const NodePass& node, const Tensor& tensor, std::int64_t first, std::int64_t count) {
    return tensor.row_range(first * node.pass.batch, count * node.pass.batch);
  }
  Tensor hidden_of(const Direction& direction, const NodePass& node) const {
    return carries_ ? node.out_with_margin() : node.saved(direction.hidden);
  }
  RecurrentSteps steps_of(const Direction& direction, const NodePass& node, const Tensor& hidden) const {
    return {.steps = steps_,
            .units = units_,
            .gates = node.saved(direction.gates),
            .recurrent = node.weight(direction.first_parameter + 1),
            .bias = Cell::kBiasOfState ? node.weight(direction.first_parameter + 3) : Tensor{},
            .hidden = hidden,
            .d_hidden = {},
            .places = places_of(direction, node)};
  }

  /// Returns the result of the last step that is not padding. In backward direction this is the result at the series'
  /// first step.
  Tensor last_of_lengths(const NodePass& node, std::size_t index, const Tensor& hidden) const {
    const Tensor last = node.saved(last_);
    if (directions_[index].is_backward) {
      node.pass.sequences().carry_rows(rows_of(node, hidden, steps_, 1), node.in(1), Accumulate::no, last);
    } else {
      const Tensor rows = node.saved(rows_);
      copy(node, Way::to_samples, index, steps_, rows, rows_of(node, hidden, 1, steps_), units_, units_);
      node.pass.sequences().pool_series_forward(last_of(steps_), rows, node.in(1), last);
    }
    return last;
  }
  void gradient_of_last(const NodePass& node, std::size_t index, const Tensor& d_hidden) const {
    const Tensor d_last = node.saved(last_), d_rows = node.saved(rows_);
    copy(node, Way::to_time_major, index, 1, node.d_out(), d_last, all_columns(), units_);
    if (directions_[index].is_backward) {
      node.pass.backend.fill_zero(d_hidden);
      node.pass.sequences().carry_rows(d_last, node.in(1), Accumulate::no, rows_of(node, d_hidden, steps_ - 1, 1));
    } else {
      node.pass.sequences().pool_series_backward(last_of(steps_), {}, node.in(1), d_last, d_rows);
      copy(node, Way::to_time_major, index, steps_, d_rows, d_hidden, units_, units_);
    }
  }
  static PaddedSeries last_of(std::int64_t steps) { return {.steps = steps, .pool = PaddedSeries::Pool::last}; }

  Tensor places_of(const Direction& direction, const NodePass& node) const {
    if (has_lengths_ && direction.is_backward) return node.saved(direction.places);
    if (!has_places_) return {};
    const Tensor places = node.in(1);
    return places.reshaped(places.count(), 1);
  }

  enum class Way { to_time_major, to_samples };
  /// Copies `steps` steps between sample-major rows and the direction's time-major rows. Sample-major rows have `row`
  /// columns, of which `columns` belong to the direction.
  void copy(const NodePass& node, Way way, std::size_t index, std::int64_t steps, const Tensor& samples,
            const Tensor& ordered, std::int64_t row, std::int64_t columns) const {
    const std::int64_t batch = node.pass.batch;
    if (batch == 0) return;
    const bool is_backward = directions_[index].is_backward;
    StridedCopy copy{.extents = {1, 1, steps, batch, columns},
                     .from_steps = {0, 0, is_backward ? -row : row, steps * row, 1},
                     .to_steps = {0, 0, batch * columns, columns, 1},
                     .from_first = (is_backward ? (steps - 1) * row : 0) +
                                   (row == columns ? 0 : static_cast<std::int64_t>(index) * columns),
                     .from_elements = batch * steps * row,
                     .to_elements = batch * steps * columns};
    const Tensor by_sample = samples.reshaped(1, samples.count()), by_step = ordered.reshaped(1, ordered.count());
    if (way == Way::to_time_major) return node.pass.images().copy_strided(copy, by_sample, by_step);
    std::swap(copy.from_steps, copy.to_steps);
    std::swap(copy.from_first, copy.to_first);
    std::swap(copy.from_elements, copy.to_elements);
    node.pass.images().copy_strided(copy, by_step, by_sample);
  }

  Call call_;
  std::int64_t units_, steps_ = 0, inputs_ = 0;
  bool last_only_, carries_ = false, has_places_ = false, has_lengths_ = false;
  std::size_t states_before_ = 0;                 ///< scratch
  std::size_t rows_ = 0, last_ = 0, inside_ = 0;  ///< saved, with lengths; backward uses the memory of the first two
  std::vector<Direction> directions_;
  std::size_t more_ = 0;  ///< scratch for the input's gradient of the second direction
};

}  // namespace lockstep::model
